package redisstore_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fleetthrottle/throttle"
	"github.com/fleetthrottle/throttle/internal/redistest"
	"github.com/fleetthrottle/throttle/redisstore"
)

// TestP6_SettleAfterAStepBack: where a start lies cannot be told any more, so it
// stays. Only what it cost more than was booked is added.
func TestP6_SettleAfterAStepBack(t *testing.T) {
	t.Parallel()
	for _, test := range []struct{ cost, sum int }{{1, 6}, {5, 6}, {7, 8}} {
		onSkewed(t, func(t *testing.T, s *redisstore.Store, c *skewed) {
			five := charge("five", throttle.PerHour(10))
			one := five
			five.Cost = 5
			k := booking(five)
			g, err := s.Book(t.Context(), k)
			require.NoError(t, err)
			c.step(-time.Second)
			book(t, s, one)
			require.NoError(t, s.Settle(t.Context(), k, g, []int{test.cost}))
			st, err := s.Status(t.Context(), one)
			require.NoError(t, err)
			require.Equal(t, test.sum, st.Used+st.Waiting)
		})
	}
}

// TestP11_TheLatestEndCountsInFlight: a second penalty that ends sooner changes
// nothing.
func TestP11_TheLatestEndCountsInFlight(t *testing.T) {
	t.Parallel()
	server := redistest.Shared(t)
	synctest.Test(t, func(t *testing.T) {
		s := redisstore.NewAt(server.Client(t), nil, bubbleClock)
		two := charge("two", throttle.Concurrency(2))
		for _, d := range []time.Duration{10 * time.Second, time.Second} {
			require.NoError(t, s.Pause(t.Context(), two, d))
			st, err := s.Status(t.Context(), two)
			require.NoError(t, err)
			require.Equal(t, 10*time.Second, st.Paused)
		}
	})
}
