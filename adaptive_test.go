package throttle_test

import (
	"context"
	"fmt"

	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fleetthrottle/throttle"
	"github.com/fleetthrottle/throttle/internal/soak"
	"github.com/fleetthrottle/throttle/memstore"
)

// A run is what came of the use of an upstream.
type run struct {
	used  float64 // the part of what was allowed, after a while
	first int     // refusals until then
	most  int     // refusals in one minute later
	mean  float64
	falls []throttle.Event
}

// measure uses an upstream for half an hour, or five minutes if windows are short, or less with -short, and
// leaves out what it takes to learn.
func measure(t *testing.T, u *strict, p throttle.Policy) (r run) {
	length, warm := soak.Most[time.Duration](5, 3)*time.Minute, time.Minute
	if p.Limit.Per() > time.Second {
		length, warm = soak.Most[time.Duration](30, 10)*time.Minute, 5*time.Minute
	}
	var mu sync.Mutex
	u.use(t, memstore.New(), p, 4, 12, length, func(_ context.Context, e throttle.Event) {
		if e.Kind == throttle.Lowered {
			mu.Lock()
			r.falls = append(r.falls, e)
			mu.Unlock()
		}
	})
	r.used = float64(between(u.accepted, warm, length)) / float64(u.n) / (float64(length-warm) / float64(u.per))
	r.first, r.mean = between(u.refused, 0, warm), float64(between(u.refused, warm, length))/(length-warm).Minutes()
	for m := warm; m < length; m += time.Minute {
		r.most = max(r.most, between(u.refused, m, m+time.Minute))
	}
	t.Logf("used %.1f %%, refused %.1f a minute and at most %d, %d before; the ceiling fell %d times", 100*r.used, r.mean, r.most, r.first, len(r.falls))
	return r
}

// TestAdaptive_LessThanTheLimit: an upstream that enforces less than the table says
// refuses few requests, and nearly all that it allows is used.
func TestAdaptive_LessThanTheLimit(t *testing.T) {
	for i, c := range []struct {
		limit         throttle.Limit
		n             int
		fixed, polite bool
	}{
		{throttle.PerSecond(40), 20, false, false},
		{throttle.PerSecond(40), 20, false, true},
		{throttle.PerSecond(40), 20, true, true},
		{throttle.PerSecond(40), 36, false, false},
		{throttle.PerSecond(40), 4, false, false},
		{throttle.PerSecond(400), 200, false, false},
		{throttle.PerSecond(400), 200, false, true},
		{throttle.PerSecond(2), 1, false, true},
		{throttle.FixedWindow(40, time.Second), 20, true, true},
		{throttle.FixedWindow(600, time.Minute), 300, true, true},
		{throttle.FixedWindow(600, time.Minute), 300, true, false},
		{throttle.PerMinute(600), 300, false, false},
		{throttle.PerMinute(600), 300, false, true},
		{throttle.PerMinute(600), 300, true, true},
		{throttle.PerMinute(60), 30, false, true},
		{throttle.PerMinute(60), 30, false, false},
		{throttle.TokenBucket(40, time.Second, 10), 20, false, true},
		{throttle.LeakyBucket(40, time.Second), 20, false, false},
	} {
		if i%soak.Most(1, 4) > 0 {
			continue
		}
		t.Run(fmt.Sprintf("%v, true %d, fixed %v, polite %v", c.limit, c.n, c.fixed, c.polite), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				u := newStrict(c.n, c.limit.Per())
				u.fixed, u.polite = c.fixed, c.polite
				r := measure(t, u, throttle.Policy{Name: "p", Limit: c.limit, Adaptive: true})
				require.GreaterOrEqual(t, r.used, 0.85)
				require.LessOrEqual(t, r.most, 10)
			})
		})
	}
}

// TestAdaptive_TheRightLimit: where nothing is refused nothing is learned, and nothing lost.
func TestAdaptive_TheRightLimit(t *testing.T) {
	limits := []throttle.Limit{throttle.PerSecond(40), throttle.FixedWindow(600, time.Minute), throttle.PerMinute(600), throttle.PerSecond(400)}
	for _, l := range limits[:soak.Most(len(limits), 2)] {
		t.Run(l.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				u := newStrict(l.N(), l.Per())
				u.fixed = l.Kind() == throttle.KindFixedWindow
				r := measure(t, u, throttle.Policy{Name: "p", Limit: l, Adaptive: true})
				possible := float64(l.Per()) / float64(l.Per()+throttle.DefaultJitter) // see P3
				require.GreaterOrEqual(t, r.used, 0.99*possible)
				require.Empty(t, r.falls)
				require.Empty(t, u.refused)
			})
		})
	}
}

// TestAdaptive_Strays shows what it costs if a right limit is not all that is refused for.
func TestAdaptive_Strays(t *testing.T) {
	soak.Only(t)
	for _, part := range []float64{0.0001, 0.001, 0.01} {
		for _, adaptive := range []bool{false, true} {
			t.Run(fmt.Sprint(part, adaptive), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					u := newStrict(40, time.Second)
					u.stray = part
					r := measure(t, u, throttle.Policy{Name: "p", Limit: throttle.PerSecond(40), Adaptive: adaptive})
					require.Equal(t, adaptive && len(u.refused) > 0, len(r.falls) > 0)
					require.Greater(t, r.used, 0.02)
				})
			})
		}
	}
}

// TestAdaptive_WithoutIt is what a table that promises twice as much costs as it is.
func TestAdaptive_WithoutIt(t *testing.T) {
	for _, l := range []throttle.Limit{throttle.PerSecond(40), throttle.PerMinute(600)} {
		t.Run(l.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := measure(t, newStrict(l.N()/2, l.Per()), throttle.Policy{Name: "p", Limit: l})
				require.Greater(t, r.mean, 20.0)
				require.Empty(t, r.falls)
			})
		})
	}
}

// TestAdaptive_MoreAgain: an upstream that allows all of the limit again is used again.
func TestAdaptive_MoreAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		u := newStrict(20, time.Second)
		time.AfterFunc(100*time.Second, func() {
			u.mu.Lock()
			u.n = 40
			u.mu.Unlock()
		})
		store := memstore.New()
		u.use(t, store, throttle.Policy{Name: "p", Limit: throttle.PerSecond(40), Adaptive: true}, 2, 20, 5*time.Minute, nil)
		last := between(u.accepted, 295*time.Second, 299*time.Second)
		require.Greater(t, last, 4*36)
	})
}

// TestAdaptive_OnlyForStarts: a limit that no refusal can lower is a mistake.
func TestAdaptive_OnlyForStarts(t *testing.T) {
	for _, l := range []throttle.Limit{throttle.Concurrency(3), throttle.Unlimited()} {
		_, err := throttle.New(throttle.Config{Store: memstore.New(), Policies: []throttle.Policy{{Name: "p", Limit: l, Adaptive: true}}})
		var wrong *throttle.ConfigError
		require.ErrorAs(t, err, &wrong)
		require.Equal(t, "Adaptive", wrong.Field)
	}
}
