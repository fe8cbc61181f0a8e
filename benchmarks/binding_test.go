package benchmarks

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/time/rate"

	"github.com/fleetthrottle/throttle"
	"github.com/fleetthrottle/throttle/internal/fleet"
	"github.com/fleetthrottle/throttle/memstore"
)

// The limit that binds, who wants more, and for how long.
const (
	quota   = 40 // a second
	workers = 64
	quiet   = 900 * time.Millisecond // between the first start and all others
	settled = time.Second            // what a full bucket gave before is not counted as use
)

// BenchmarkBinding is what the speed is worth: the most starts that are seen in
// any second, of a limit that allows 40, and the share of it that is used
// after the first second. One start is taken, and just before its second is
// over everybody comes, which is what a limit meets after each quiet moment.
func BenchmarkBinding(b *testing.B) {
	limit := throttle.PerSecond(quota)
	b.Run("local", func(b *testing.B) {
		for b.Loop() {
			l := newLimiter(b, memstore.New(), limit)
			bucket := rate.NewLimiter(quota, quota)
			bind(b, "throttle", func(ctx context.Context) error { return acquire(ctx, l, "") })
			bind(b, "xtime", bucket.Wait)
		}
	})
}

// bind reports on one contestant. They come one after the other, so that one
// that polls does not keep the others from waking in time.
func bind(b *testing.B, name string, wait func(context.Context) error) {
	b.Helper()
	starts := takeAll(b.Context(), wait)
	require.Greater(b, len(starts), quota, "premise: the limit binds")
	b.ReportMetric(0, "ns/op")
	b.ReportMetric(float64(fleet.Worst(starts, time.Second)), name+"-most/s")
	b.ReportMetric(100*fleet.Used(starts, settled, *load, quota, time.Second), name+"-used-%")
}

// takeAll lets the workers take as many starts as they get, and says when.
func takeAll(ctx context.Context, wait func(context.Context) error) []time.Duration {
	ctx, cancel := context.WithTimeout(ctx, *load)
	defer cancel()
	begin := time.Now()
	var mu sync.Mutex
	var starts []time.Duration
	take := func() bool {
		if wait(ctx) != nil {
			return false // there is no more room before the end
		}
		mu.Lock()
		defer mu.Unlock()
		starts = append(starts, time.Since(begin))
		return true
	}
	take()
	time.Sleep(time.Until(begin.Add(quiet)))
	var all sync.WaitGroup
	for range workers {
		all.Go(func() {
			for take() {
			}
		})
	}
	all.Wait()
	return starts
}
