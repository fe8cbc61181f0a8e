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
