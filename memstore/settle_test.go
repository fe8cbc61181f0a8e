package memstore_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fleetthrottle/throttle"
	"github.com/fleetthrottle/throttle/memstore"
)

// settle tells the store what the caller's start cost.
func (c *caller) settle(costs ...int) {
	c.Helper()
	require.NoError(c, c.store.Settle(c.Context(), c.k, c.g, costs))
}

// TestSettleTooLate changes nothing once the start does not count.
func TestSettleTooLate(t *testing.T) {
	tests := []struct {
		limit throttle.Limit
		after time.Duration // the start, of cost 10, no longer counts
	}{
		{throttle.PerSecond(10), time.Second + time.Microsecond},
		{throttle.FixedWindow(10, time.Second), time.Second},
		{throttle.LeakyBucket(10, time.Second), time.Second},
		{throttle.TokenBucket(10, time.Second, 10), time.Second},
	}
	for _, test := range tests {
		for _, cost := range []int{0, 1000} {
			t.Run(test.limit.String(), func(t *testing.T) {
				inBubble(t, func(t *testing.T, s *memstore.Store) {
					c := costing(charge("late", test.limit), 10)
					start := arrive(t, s, c)
					start.runs()
					time.Sleep(test.after - time.Microsecond)
					next := arrive(t, s, c)
					require.Equal(t, time.Microsecond, next.g.Wait)
					next.cancel()
					time.Sleep(time.Microsecond)
					start.settle(cost)
					require.Zero(t, book(t, s, c))
				})
			})
		}
	}
}

// TestSettleFrozen gives nothing back where that could be another's, and still
// books what is more.
func TestSettleFrozen(t *testing.T) {
	for _, test := range []struct{ cost, sum int }{{1, 6}, {5, 6}, {7, 8}} {
		inBubble(t, func(t *testing.T, s *memstore.Store) {
			c := charge("changed", throttle.LeakyBucket(10, time.Second))
			start := arrive(t, s, costing(c, 5))
			c.Limit = throttle.LeakyBucket(5, time.Second)
			book(t, s, c)
			c.Limit = throttle.PerSecond(10)
			start.k.Charges[0].Limit = c.Limit
			start.settle(test.cost)
			st := status(t, s, c)
			require.Equal(t, test.sum, st.Used+st.Waiting)
		})
	}
}
