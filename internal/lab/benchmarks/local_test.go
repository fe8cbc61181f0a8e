package benchmarks

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/failsafe-go/failsafe-go/ratelimiter"
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

// locals are limiters of one process, ours apart: the others know no keys.
var locals = []struct {
	name string
	open func() func(context.Context) error
}{
	{"xtime", func() func(context.Context) error { return rate.NewLimiter(plenty, plenty).Wait }},
	{"uber", func() func(context.Context) error {
		l := ratelimit.New(plenty)
		return func(context.Context) error { l.Take(); return nil }
	}},
	{"failsafe", func() func(context.Context) error {
		return ratelimiter.NewBursty[any](plenty, time.Second).AcquirePermit
	}},
}

// BenchmarkLocal is a start that has room, in one process. The others keep a
// token bucket, whose state is one number; throttle keeps the starts of a
// sliding window, and the waiters with their places.
func BenchmarkLocal(b *testing.B) {
	for _, goroutines := range []int{1, 2} {
		b.Run(fmt.Sprintf("1-key/%d-goroutines", goroutines), func(b *testing.B) {
			l := newLimiter(b, memstore.New(), throttle.Policy{Limit: throttle.PerSecond(plenty)})
			calls := []call{func(ctx context.Context, _ int) error { return acquire(ctx, l, "") }}
			for _, p := range locals {
				take := p.open()
				calls = append(calls, func(ctx context.Context, _ int) error { return take(ctx) })
			}
			localRace(b, goroutines, calls)
			requireIdle(b, l, "")
		})
		b.Run(fmt.Sprintf("%d-keys/%d-goroutines", manyKeys, goroutines), func(b *testing.B) {
			keys := crowd()
			key := func(i int) string { return keys[i%draws] }
			l := newLimiter(b, memstore.New(), throttle.Policy{Limit: throttle.PerSecond(plenty), Keyed: true})
			calls := []call{func(ctx context.Context, i int) error { return acquire(ctx, l, key(i)) }}
			for _, p := range locals {
				take := perKey(func(string) func(context.Context) error { return p.open() })
				calls = append(calls, func(ctx context.Context, i int) error { return take(key(i))(ctx) })
			}
			localRace(b, goroutines, calls)
			requireIdle(b, l, "customer-0")
		})
	}
}

// BenchmarkLimiters is a start that has room, in one process, under as many policies as rows of a provider's table, beside
// one of x/time/rate, which has one number.
func BenchmarkLimiters(b *testing.B) {
	for _, rows := range []int{1, 3, 6} {
		b.Run(fmt.Sprintf("%d-policies", rows), func(b *testing.B) {
			var policies []throttle.Policy
			var demands []throttle.Demand
			for i := range rows {
				p := throttle.Policy{Name: fmt.Sprint("row ", i), Limit: throttle.PerSecond(plenty)}
				policies, demands = append(policies, p), append(demands, throttle.Demand{Policy: p.Name})
			}
			l, err := throttle.NewLimiters(throttle.Config{Store: memstore.New(), Policies: policies, MaxWait: throttle.Forever})
			require.NoError(b, err)
			wait := locals[0].open()

			race(b, localCalls,
				contestant{name: "throttle", run: func(calls int) error {
					return together(1, calls, func(int) error {
						_, err := l.Acquire(b.Context(), demands...)
						return err
					})
				}},
				contestant{name: "xtime", run: func(calls int) error {
					return together(1, calls, func(int) error { return wait(b.Context()) })
				}})
		})
	}
}

// A call is the i-th start that somebody takes.
type call func(ctx context.Context, i int) error

// localRace races the same kind of call, made by throttle and by each of locals.
func localRace(b *testing.B, goroutines int, calls []call) {
	b.Helper()
	all := []contestant{{name: "throttle"}}
	for _, p := range locals {
		all = append(all, contestant{name: p.name})
	}
	for i, one := range calls {
		at := 0 // rounds go on where the last one ended
		all[i].run = func(calls int) error {
			from := at
			at += calls
			return together(goroutines, calls, func(i int) error { return one(b.Context(), from+i) })
		}
	}
	race(b, localCalls, all...)
}

// acquire drops the permit: for limits that count starts it means nothing.
func acquire(ctx context.Context, l *throttle.Limiter, key string) error {
	_, err := l.Acquire(ctx, key, 1)
	return err
}

func newLimiter(b *testing.B, s throttle.Store, p throttle.Policy) *throttle.Limiter {
	b.Helper()
	p.Name = "benchmark"
	l, err := throttle.NewLimiter(s, p)
	require.NoError(b, err)
	return l
}

// requireIdle checks that the limit was kept count of and was never near.
func requireIdle(b *testing.B, l *throttle.Limiter, key string) {
	b.Helper()
	st, err := l.Status(b.Context(), key)
	require.NoError(b, err)
	require.Positive(b, st.Used, "premise: starts are counted")
	require.Less(b, st.Used, plenty/10, "premise: there was always room")
	require.Equal(b, [2]time.Duration{}, [2]time.Duration{st.Wait, time.Duration(st.Waiting)}, "premise: nobody waits")
}
