package benchmarks

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/ratelimit"
	"golang.org/x/time/rate"

	"github.com/fleetthrottle/throttle"
	"github.com/fleetthrottle/throttle/memstore"
)

// plenty is a limit for each second that no benchmark reaches.
const plenty = 1_000_000_000

// localCalls is how many calls make a round: enough that starting goroutines
// does not count, few enough that all contestants meet the same machine.
const localCalls = 20_000

// BenchmarkLocal is a start that has room, in one process. The others keep a
// token bucket, whose state is one number; throttle keeps the starts of a
// sliding window, those who wait, and where they stand.
func BenchmarkLocal(b *testing.B) {
	for _, goroutines := range []int{1, 2} {
		b.Run(fmt.Sprintf("1-key/%d-goroutines", goroutines), func(b *testing.B) {
			l := newLimiter(b, memstore.New(), throttle.PerSecond(plenty))
			bucket, leaky := newBucket(), ratelimit.New(plenty)
			localRace(b, goroutines,
				func(ctx context.Context, _ int) error { return acquire(ctx, l, "") },
				func(ctx context.Context, _ int) error { return bucket.Wait(ctx) },
				func(context.Context, int) error { leaky.Take(); return nil })
			requireIdle(b, l, "")
		})
		b.Run(fmt.Sprintf("%d-keys/%d-goroutines", manyKeys, goroutines), func(b *testing.B) {
			keys := crowd()
			key := func(i int) string { return keys[i%draws] }
			l := newLimiter(b, memstore.New(), throttle.PerSecond(plenty))
			buckets := perKey(func(string) *rate.Limiter { return newBucket() })
			leaks := perKey(func(string) ratelimit.Limiter { return ratelimit.New(plenty) })
			localRace(b, goroutines,
				func(ctx context.Context, i int) error { return acquire(ctx, l, key(i)) },
				func(ctx context.Context, i int) error { return buckets(key(i)).Wait(ctx) },
				func(_ context.Context, i int) error { leaks(key(i)).Take(); return nil })
			requireIdle(b, l, "customer-0")
		})
	}
}

// localRace races the same kind of call, made by throttle, by
// golang.org/x/time/rate and by go.uber.org/ratelimit.
func localRace(b *testing.B, goroutines int, ours, xtime, uber func(context.Context, int) error) {
	b.Helper()
	ctx := b.Context()
	many := func(call func(context.Context, int) error) func(int) error {
		at := 0 // rounds go on where the last one ended
		return func(calls int) error {
			from := at
			at += calls
			return together(goroutines, calls, func(i int) error { return call(ctx, from+i) })
		}
	}
	race(b, localCalls,
		contestant{name: "throttle", run: many(ours)},
		contestant{name: "xtime", run: many(xtime)},
		contestant{name: "uber", run: many(uber)})
}

// acquire drops the permit: for limits that count starts it means nothing.
func acquire(ctx context.Context, l *throttle.Limiter, key string) error {
	_, err := l.Acquire(ctx, key, 1)
	return err
}

func newLimiter(b *testing.B, s throttle.Store, limit throttle.Limit) *throttle.Limiter {
	b.Helper()
	l, err := throttle.NewLimiter(s, throttle.Policy{Name: "benchmark", Limit: limit})
	require.NoError(b, err)
	return l
}

func newBucket() *rate.Limiter { return rate.NewLimiter(plenty, plenty) }

// requireIdle checks that the limit was kept count of and was never near.
func requireIdle(b *testing.B, l *throttle.Limiter, key string) {
	b.Helper()
	st, err := l.Status(b.Context(), key)
	require.NoError(b, err)
	require.Positive(b, st.Used, "premise: starts are counted")
	require.Less(b, st.Used, plenty/10, "premise: there was always room")
	require.Equal(b, [2]time.Duration{}, [2]time.Duration{st.Wait, time.Duration(st.Waiting)}, "premise: nobody waits")
}
