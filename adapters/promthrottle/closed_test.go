package promthrottle_test

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fleetthrottle/throttle"
	"github.com/fleetthrottle/throttle/adapters/promthrottle"
)

// TestClosedUntil: the end that is told is the last one of a policy's budgets, and falls when
// a budget is open earlier than it was to be.
func TestClosedUntil(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := promthrottle.New()
		observe := func(k throttle.EventKind, budget string, d time.Duration) {
			m.Observe(t.Context(), throttle.Event{Kind: k, Policy: "calls", Budget: budget, Duration: d})
		}
		in := func() time.Duration {
			until := gauge(t, m, "throttle_closed_until_timestamp_seconds", "calls")
			return time.Until(time.UnixMilli(int64(until * 1000))).Round(time.Second)
		}
		observe(throttle.EventPenalized, "a", time.Minute)
		observe(throttle.EventClosed, "b", time.Hour)
		observe(throttle.EventPenalized, "b", time.Second) // belongs to it
		require.Equal(t, time.Hour, in())
		observe(throttle.EventOpened, "a", 0)
		require.Equal(t, time.Hour, in())
		observe(throttle.EventClosed, "a", 2*time.Hour)
		observe(throttle.EventOpened, "a", 0)
		require.Equal(t, time.Hour, in())
		observe(throttle.EventOpened, "b", 0)
		require.Zero(t, in())
		time.Sleep(time.Second)
		observe(throttle.EventOpened, "b", 0) // known already
		require.Equal(t, -time.Second, in())

		// One that ended by itself does not count as ended when a caller starts.
		observe(throttle.EventClosed, "a", time.Second)
		time.Sleep(time.Minute)
		observe(throttle.EventOpened, "a", 0)
		require.Equal(t, -59*time.Second, in())

		// Of too many budgets, those that are not known do not fall.
		for i := range 65 {
			observe(throttle.EventClosed, fmt.Sprint(i), time.Duration(i+1)*time.Minute)
		}
		for i := range 65 {
			observe(throttle.EventOpened, fmt.Sprint(i), 0)
		}
		require.Equal(t, 65*time.Minute, in())
	})
}
