package memstore_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fleetthrottle/throttle/memstore"
	"github.com/fleetthrottle/throttle/store"
)

// settle tells the store what the caller's start cost.
func (c *caller) settle(costs ...int) {
	c.Helper()
	require.NoError(c, c.store.Settle(c.Context(), c.k, c.g, costs))
}

// TestSettleTooLate changes nothing once the start does not count.
func TestSettleTooLate(t *testing.T) {
	tests := []struct {
		limit store.Limit
		after time.Duration // the start, of cost 10, no longer counts
	}{
		{store.PerSecond(10), time.Second + time.Microsecond},
		{store.FixedWindow(10, time.Second), time.Second},
		{store.LeakyBucket(10, time.Second), time.Second},
		{store.TokenBucket(10, time.Second, 10), time.Second},
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
			c := charge("changed", store.LeakyBucket(10, time.Second))
			start := arrive(t, s, costing(c, 5))
			c.Limit = store.LeakyBucket(5, time.Second)
			book(t, s, c)
			c.Limit = store.PerSecond(10)
			start.k.Charges[0].Limit = c.Limit
			start.settle(test.cost)
			st := status(t, s, c)
			require.Equal(t, test.sum, st.Used+st.Waiting)
		})
	}
}
