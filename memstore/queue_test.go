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
)

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
