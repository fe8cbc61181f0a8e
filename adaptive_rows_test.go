package throttle_test

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fleetthrottle/throttle"
	"github.com/fleetthrottle/throttle/memstore"
)

// TestAdaptive_TwoWindows: of a table with a limit per second and one per hour, all of which
// a refusal closes, the one that is too high is lowered, and the other never.
func TestAdaptive_TwoWindows(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const length, warm = 5 * time.Minute, time.Minute
		u, store := newStrict(20, time.Second), memstore.New()
		var mu sync.Mutex
		falls := make(map[string]int)
		ctx, stop := context.WithTimeout(t.Context(), length)
		defer stop()
		var all sync.WaitGroup
		for range 4 {
			tr := must(throttle.New(throttle.Config{Store: store, Base: u, Policies: []throttle.Policy{
				{Name: "hour", Limit: throttle.PerHour(100_000), Adaptive: true},
				{Name: "second", Limit: throttle.PerSecond(40), Adaptive: true},
			}, Observe: func(_ context.Context, e throttle.Event) {
				if e.Kind == throttle.Lowered {
					mu.Lock()
					falls[e.Policy]++
					mu.Unlock()
				}
			}}))
			for range 12 {
				all.Go(func() {
					for ctx.Err() == nil {
						resp, err := tr.RoundTrip(get(t, home).WithContext(ctx))
						if err != nil {
							return
						}
						resp.Body.Close()
					}
				})
			}
		}
		all.Wait()
		used := float64(between(u.accepted, warm, length)) / 20 / (length - warm).Seconds()
		t.Logf("used %.1f %%, refused %d, falls %v", 100*used, between(u.refused, warm, length), falls)
		require.GreaterOrEqual(t, used, 0.85)
		require.LessOrEqual(t, between(u.refused, warm, length), 40)
		require.Zero(t, falls["hour"])
		require.Positive(t, falls["second"])
	})
}
