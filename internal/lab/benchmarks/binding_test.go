package benchmarks

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/time/rate"

	"github.com/fleetthrottle/throttle"
	"github.com/fleetthrottle/throttle/internal/stat"
	"github.com/fleetthrottle/throttle/memstore"
)

// The limit that binds, how many callers want more, and for how long.
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
	b.Run("local", func(b *testing.B) {
		l := newLimiter(b, memstore.New(), throttle.Policy{Limit: throttle.PerSecond(quota)})
		bind(b, "throttle", func(ctx context.Context) error { return acquire(ctx, l, "") })
		bind(b, "xtime", rate.NewLimiter(quota, quota).Wait)
	})
	b.Run("redis", func(b *testing.B) {
		s := newServer(b)
		for i, p := range peers {
			if i == few && !*everyone {
				break
			}
			require.NoError(b, s.watch.FlushDB(b.Context()).Err())
			a, err := p.open(s.watch, limit{quota, time.Second})
			require.NoError(b, err)
			bind(b, p.name, func(ctx context.Context) error { return a.wait(ctx, "key") })
		}
	})
}

// bind reports on one contestant. They come one after the other, so that one
// that polls does not keep the others from waking in time.
func bind(b *testing.B, name string, wait func(context.Context) error) {
	b.Run(name, func(b *testing.B) {
		var starts []time.Duration
		for b.Loop() {
			starts = takeAll(b.Context(), wait)
		}
		require.GreaterOrEqual(b, len(starts), quota, "premise: the limit was reached")
		b.ReportMetric(0, "ns/op")
		b.ReportMetric(float64(stat.Most(starts, time.Second)), "most/s")
		b.ReportMetric(float64(stat.Most(starts, hair)), "most/0.95s")
		b.ReportMetric(100*stat.Used(starts, settled, *load, quota, time.Second), "used-%")
	})
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
