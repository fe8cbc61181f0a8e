package throttle_test

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fleetthrottle/throttle"
	"github.com/fleetthrottle/throttle/memstore"
)

// only leaves out the events of other kinds.
func (e *events) only(kinds ...throttle.EventKind) (all []throttle.Event) {
	for _, ev := range e.told() {
		for _, k := range kinds {
			if ev.Kind == k {
				all = append(all, ev)
			}
		}
	}
	return all
}

// TestEventsOfManyClosedBudgets: what is known of them is bounded.
func TestEventsOfManyClosedBudgets(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		seen := &events{}
		l := must(throttle.NewLimiters(throttle.Config{Store: memstore.New(), Observe: seen.observe, MaxWait: -1, Policies: []throttle.Policy{exact("p", throttle.PerSecond(5))}}))
		one := must(l.Limiter("p"))
		for i := range 1100 {
			key := fmt.Sprint(i)
			require.NoError(t, one.Pause(t.Context(), key, time.Minute))
			require.ErrorIs(t, acquired(one.Acquire(t.Context(), key, 1)), throttle.ErrLimited)
		}
		require.Len(t, seen.only(throttle.Closed), 1024)
		time.Sleep(2 * time.Minute)
		require.NoError(t, one.Pause(t.Context(), "next", time.Minute))
		require.ErrorIs(t, acquired(one.Acquire(t.Context(), "next", 1)), throttle.ErrLimited)
		require.Len(t, seen.only(throttle.Closed), 1025, "those that are over make room")
	})
}
