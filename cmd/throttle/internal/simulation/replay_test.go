package simulation_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fleetthrottle/throttle"
	"github.com/fleetthrottle/throttle/cmd/throttle/internal/simulation"
	"github.com/fleetthrottle/throttle/memstore"
)

// TestReplayAsATransport: of requests that come when they come, as many wait and are refused as
// with a real Transport, and as long.
func TestReplayAsATransport(t *testing.T) {
	policies := []throttle.Policy{
		{Name: "calls", Match: "/", Limit: throttle.PerSecond(10)},
		{Name: "few", Match: "/", Limit: throttle.Concurrency(4)},
		{Name: "trial", Match: "/", Limit: throttle.PerSecond(5), Shadow: true},
	}
	const latency = 300 * time.Millisecond
	for _, maxWait := range []time.Duration{throttle.Forever, 0, throttle.NoWait, 2 * time.Second} {
		synctest.Test(t, func(t *testing.T) {
			rnd := rand.New(rand.NewPCG(1, 2))
			replay := &simulation.Replay{Policies: policies, MaxWait: maxWait, Latency: latency}
			transport := throttle.Must(throttle.New(throttle.Config{Store: memstore.New(), Policies: policies, MaxWait: maxWait, Base: slow{latency}}))
			req := get("https://example.com/", 1).Request
			var mu sync.Mutex
			refused, last := 0, time.Duration(0)
			begin := time.Now()
			for i := range 400 {
				if i > 0 {
					time.Sleep(time.Duration(rnd.IntN(130_000)+1) * time.Microsecond)
				}
				require.NoError(t, replay.Send(t.Context(), req, time.Now()))
				go func() {
					_, err := transport.RoundTrip(req)
					mu.Lock()
					defer mu.Unlock()
					if errors.Is(err, throttle.ErrLimited) {
						refused++
					} else if err == nil {
						last = time.Since(begin) - latency
					}
				}()
				synctest.Wait()
			}
			r, err := replay.End(t.Context())
			require.NoError(t, err)
			time.Sleep(time.Hour)
			synctest.Wait()
			t.Log(maxWait, r.Refused, refused, r.Took, last, r.Waits.N)
			require.Equal(t, 400, r.Requests)
			require.Equal(t, refused, r.Refused)
			require.Equal(t, last, r.Took)
			require.Equal(t, maxWait >= 0, r.Waits.N > 0)
			require.Positive(t, r.Policies[2].Over.N)
		})
	}
}

// TestReplayIsInterrupted: a replay ends with its context, also while it only lets those that
// wait have their starts.
func TestReplayIsInterrupted(t *testing.T) {
	replay := &simulation.Replay{Policies: []throttle.Policy{{Name: "calls", Match: "/", Limit: throttle.PerSecond(1)}}}
	req := get("https://example.com/", 1).Request
	for range 10 {
		require.NoError(t, replay.Send(t.Context(), req, time.Unix(1_795_420_800, 0)))
	}
	ctx, stop := context.WithCancel(t.Context())
	stop()
	require.ErrorIs(t, replay.Send(ctx, req, time.Unix(1_795_420_800, 0)), context.Canceled)
	_, err := replay.End(ctx)
	require.ErrorIs(t, err, context.Canceled)
}

// TestQuantiles are too large by less than a hundredth, and never too small.
func TestQuantiles(t *testing.T) {
	var none simulation.Durations
	require.Zero(t, none.Quantile(0.5))
	rnd := rand.New(rand.NewPCG(1, 2))
	for _, most := range []time.Duration{100 * time.Microsecond, time.Second, 48 * time.Hour} {
		var d simulation.Durations
		var all []time.Duration
		for range 10_000 {
			one := time.Duration(rnd.Int64N(int64(most))).Truncate(time.Microsecond)
			d.Add(one)
			all = append(all, one)
		}
		slices.Sort(all)
		require.Equal(t, all[len(all)-1], d.Max)
		for _, q := range []float64{0, 0.5, 0.99, 1} {
			exact := all[max(0, int(q*10_000)-1)]
			require.GreaterOrEqual(t, d.Quantile(q), exact)
			require.LessOrEqual(t, d.Quantile(q), exact+exact/100+time.Microsecond)
		}
	}
}
