package redisstore_test

import (
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fleetthrottle/throttle"
	"github.com/fleetthrottle/throttle/internal/lab/redistest"
	"github.com/fleetthrottle/throttle/internal/lab/soak"
	"github.com/fleetthrottle/throttle/memstore"
	"github.com/fleetthrottle/throttle/redisstore"
	"github.com/fleetthrottle/throttle/store"
)

// TestP3_EstimatesThatAreTooHigh books ten times what each start costs, which is known 20 ms later. While its cost is
// unknown a start counts with its estimate: so of 2,000 a second λ = 2000/(100·0.02 + 10·1.015) starts a second are
// possible, 82 % of the limit. Starts are booked so near that nine tenths of that, 74 %, are reached.
func TestP3_EstimatesThatAreTooHigh(t *testing.T) {
	for _, l := range []store.Limit{store.PerSecond(2000), store.TokenBucket(2000, time.Second, 2000)} {
		for _, workers := range []int{64, 500} {
			synctest.Test(t, func(t *testing.T) {
				requireUsed(t, memstore.New(), l, workers)
			})
			if soak.Most(true, workers == 500 && l.Kind() == store.KindSlidingWindow) { // how near starts are booked is not the store's affair
				runBubble(t, "redis", func(t *testing.T, server *redistest.Server) {
					requireUsed(t, redisstore.NewAt(server.Client(t), redisstore.Options{}, bubbleClock), l, workers)
				})
			}
		}
	}
}

// requireUsed has workers that book 100 for work that costs 10 use a limit of 2,000 a second, without passing it.
func requireUsed(t *testing.T, s store.Store, l store.Limit, workers int) {
	limiter, err := throttle.NewLimiter(s, throttle.Policy{Name: "tokens", Limit: l})
	require.NoError(t, err)

	var mu sync.Mutex
	var starts []time.Time
	end := time.Now().Add(16 * time.Second) // the first callers book far ahead: nothing is known of their costs
	var all sync.WaitGroup
	for range workers {
		all.Go(func() {
			for time.Now().Before(end) {
				p, err := limiter.Acquire(throttle.WithMaxWait(t.Context(), throttle.Forever), "", 100)
				require.NoError(t, err)
				mu.Lock()
				starts = append(starts, time.Now())
				mu.Unlock()
				time.Sleep(20 * time.Millisecond)
				require.NoError(t, p.Tell(t.Context(), throttle.Answer{}.WithCost(10)))
				p.Release()
			}
		})
	}
	all.Wait()

	used, burst := 0, 0
	if l.Kind() == store.KindTokenBucket {
		burst = 2000
	}
	first := 0
	for i, at := range starts {
		for at.Sub(starts[first]) > time.Second {
			first++
		}
		require.LessOrEqual(t, 10*(i-first+1), 2000+burst, "within a second")
		if d := end.Sub(at); 0 < d && d <= 5*time.Second {
			used += 10
		}
	}
	t.Logf("%v, %d workers: %.1f %%", l, workers, float64(used)/100)
	require.GreaterOrEqual(t, used, 5*2000*74/100, "%v, %d workers", l, workers)
}
