package redisstore_test

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fleetthrottle/throttle"
	"github.com/fleetthrottle/throttle/internal/redistest"
	"github.com/fleetthrottle/throttle/internal/soak"
	"github.com/fleetthrottle/throttle/memstore"
	"github.com/fleetthrottle/throttle/redisstore"
)

// TestP1_PartsAsMemstore: callers that wait for large windows have the same starts in both stores: those
// of a single budget at the begin of a part, those of several budgets anywhere.
func TestP1_PartsAsMemstore(t *testing.T) {
	limits := []int{40, 129, 200, 255, 700, 1000, 5000}
	eachBubble(t, seeds(soak.Most(400, 20)), func(t *testing.T, server *redistest.Server, seed uint64) {
		client := server.Client(t)
		forgets(t, client)
		rng := rand.New(rand.NewPCG(seed, 3))
		mem, red := memstore.New(), atRest(t, redisstore.NewAt(client, nil, bubbleClock))
		var budgets []throttle.Charge
		for _, name := range []string{"one", "two"} {
			n, per := limits[rng.IntN(len(limits))], time.Duration(50+rng.IntN(1950))*time.Millisecond
			c := charge(name, throttle.SlidingWindow(n, per))
			c.Jitter, c.Pace = time.Duration(rng.IntN(2)*35)*time.Millisecond, per/time.Duration(n*(1+rng.IntN(2)))
			budgets = append(budgets, c)
		}
		for range 300 {
			first := rng.IntN(2)
			b := throttle.Booking{MaxWait: -1, Horizon: time.Hour}
			for _, c := range budgets[first : first+1+rng.IntN(2-first)] {
				if rng.IntN(3) == 0 {
					c.Cost = 1 + rng.IntN(1+c.Limit.N()/8)
				}
				b.Charges = append(b.Charges, c)
			}
			want, got := ask(t, mem, &b), ask(t, red, &b)
			require.Equal(t, want.Wait, got.Wait, "seed %d: %+v", seed, b)
			if rng.IntN(4) == 0 {
				time.Sleep(time.Duration(rng.IntN(100_000)) * time.Microsecond)
			}
		}
	})
}
