package memstore_test

import (
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fleetthrottle/throttle"
	"github.com/fleetthrottle/throttle/internal/lab/soak"
	"github.com/fleetthrottle/throttle/memstore"
	"github.com/fleetthrottle/throttle/store"
)

// TestP13_RefusedAtOnceOrNever lets thousands come within a moment that wait for so long at the most. Who is not refused at
// once is not refused later: the guess of a turn keeps the pace that the search keeps.
func TestP13_RefusedAtOnceOrNever(t *testing.T) {
	soak.WithoutRace(t)
	for _, n := range []int{40, 100, 128, 500, 1000, 2000} {
		for _, maxWait := range []time.Duration{200, 350, 500, 800, 1200, 1500, 2000, 2500} {
			synctest.Test(t, func(t *testing.T) {
				limiters, err := throttle.NewLimiters(throttle.Config{
					Store: memstore.New(), MaxWait: maxWait * time.Millisecond,
					Policies: []throttle.Policy{{Name: "crowd", Limit: store.PerSecond(n)}},
				})
				require.NoError(t, err)

				var mu sync.Mutex
				served := 0
				var all sync.WaitGroup
				for range 3000 {
					all.Go(func() {
						came := time.Now()
						p, err := limiters.Acquire(t.Context(), throttle.Demand{Policy: "crowd"})
						mu.Lock()
						defer mu.Unlock()
						if err == nil {
							served++
							p.Release()
							return
						}
						require.Zero(t, time.Since(came), "%d a second, patience %v ms: %v", n, int64(maxWait), err)
					})
				}
				all.Wait()
				require.GreaterOrEqual(t, served, min(3000, n*int(maxWait)/1035), "%d a second", n)
			})
		}
	}
}

// perfect returns when the last of a queue of requests starts whose costs are known: each starts as soon as the
// sliding window has room, and after the one before.
func perfect(n int, per time.Duration, costs []int) (last time.Duration) {
	starts, used, first := make([]time.Duration, len(costs)), 0, 0
	for i, cost := range costs {
		for used+cost > n {
			last = max(last, starts[first]+per)
			used -= costs[first]
			first++
		}
		starts[i] = last
		used += cost
	}
	return last
}

// TestP3_QueueOfLongWindows has a queue that needs several long windows, of equal costs and of costs that differ by 50. It takes as
// long as a perfect queue, and a quarter of a second for each window.
func TestP3_QueueOfLongWindows(t *testing.T) {
	soak.WithoutRace(t)
	for _, per := range []time.Duration{5 * time.Second, time.Minute, time.Hour} {
		for _, n := range soak.Most([]int{100, 600}, []int{100}) {
			for _, windows := range soak.Most([]int{2, 3, 6, 12}, []int{3, 6}) {
				for _, big := range []int{1, 10, 50} {
					var costs []int
					for i, sum := 0, 0; sum < windows*n; i++ {
						cost := min([]int{1, 1, 1, big}[i%4], windows*n-sum)
						costs, sum = append(costs, cost), sum+cost
					}
					most := perfect(n, per, costs) + time.Duration(windows)*300*time.Millisecond
					synctest.Test(t, func(t *testing.T) {
						l, err := throttle.NewLimiter(memstore.New(), throttle.Policy{Name: "p", Limit: throttle.SlidingWindow(n, per), Jitter: -1})
						require.NoError(t, err)

						begin := time.Now()
						var queue sync.WaitGroup
						for i, cost := range costs {
							queue.Go(func() {
								time.Sleep(time.Duration(i)) // so that they come in their order
								_, err := l.Acquire(throttle.WithMaxWait(t.Context(), throttle.Forever), "", cost)
								require.NoError(t, err)
							})
						}
						queue.Wait()

						require.LessOrEqual(t, time.Since(begin), most, "%d windows of %d per %v, costs to %d", windows, n, per, big)
					})
				}
			}
		}
	}
}

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
