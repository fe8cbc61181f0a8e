package throttle_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fleetthrottle/throttle"
)

// TestP2_TheLeastJitterCounts: of several policies the one that bears the least
// says how old a grant may be, whichever comes first.
func TestP2_TheLeastJitterCounts(t *testing.T) {
	for name, jitters := range map[string][2]time.Duration{
		"first": {7 * ms, 70 * ms},
		"last":  {70 * ms, 7 * ms},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				store := newSpy()
				ages := []time.Duration{2 * ms, 2*ms + 1, 0}
				store.change = func(g *throttle.Grant) { g.Age, ages = ages[0], ages[1:] }
				tr := must(throttle.New(throttle.Config{Store: store, Base: newStarts(), Policies: []throttle.Policy{
					{Name: "a", Limit: throttle.PerSecond(10), Jitter: jitters[0]},
					{Name: "b", Limit: throttle.PerSecond(10), Jitter: jitters[1]},
				}}))

				require.NoError(t, send(t, tr, get(t, home)))
				require.Len(t, store.booked(), 1, "2 ms are two sevenths of 7 ms")

				require.NoError(t, send(t, tr, get(t, home)))
				require.Len(t, store.booked(), 3, "a nanosecond more is too old")
			})
		})
	}
}
