package throttle_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/http"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fleetthrottle/throttle"
	"github.com/fleetthrottle/throttle/internal/acquire"
	"github.com/fleetthrottle/throttle/internal/lab/soak"
	"github.com/fleetthrottle/throttle/memstore"
	"github.com/fleetthrottle/throttle/store"
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
		if e.Kind == throttle.EventLowered {
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
				u.fixed = l.Kind() == store.KindFixedWindow
				r := measure(t, u, throttle.Policy{Name: "p", Limit: l, Adaptive: true})
				possible := float64(l.Per()) / float64(l.Per()+acquire.DefaultJitter) // see P3
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
		_, err := throttle.New(throttle.Config{MaxWait: throttle.Forever, Store: memstore.New(), Policies: []throttle.Policy{{Name: "p", Match: "/", Limit: l, Adaptive: true}}})
		var wrong *throttle.ConfigError
		require.ErrorAs(t, err, &wrong)
		require.Equal(t, "Adaptive", wrong.Field)
	}
}

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
			tr := must(throttle.New(throttle.Config{MaxWait: throttle.Forever, Store: store, Base: u, Policies: []throttle.Policy{
				{Name: "hour", Match: "/", Limit: throttle.PerHour(100_000), Adaptive: true},
				{Name: "second", Match: "/", Limit: throttle.PerSecond(40), Adaptive: true},
			}, Observe: func(_ context.Context, e throttle.Event) {
				if e.Kind == throttle.EventLowered {
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

// A strict upstream allows what it likes: n in any interval of length per, or in each
// window if it is fixed. It refuses with a 429, which says for how long if it is polite.
type strict struct {
	n        int
	per      time.Duration
	fixed    bool
	polite   bool
	stray    float64       // the part of requests that it refuses for another reason
	travel   time.Duration // there and back, at the most
	mu       sync.Mutex
	dice     *rand.Rand
	begin    time.Time
	accepted []time.Duration // when, since begin
	refused  []time.Duration
}

func (u *strict) RoundTrip(r *http.Request) (*http.Response, error) {
	u.mu.Lock()
	there, back := u.dice.Int64N(int64(u.travel/4)), int64(u.travel/4)+u.dice.Int64N(int64(u.travel/2))
	u.mu.Unlock()
	time.Sleep(time.Duration(there))
	wait, ok := u.decide()
	time.Sleep(time.Duration(back))
	if ok {
		return answer(200, "")(r)
	}
	if u.polite {
		return answer(429, "", "Retry-After", strconv.Itoa(int((wait+time.Second-1)/time.Second)))(r)
	}
	return answer(429, "")(r)
}

// decide counts a request, or says in how long there will be room.
func (u *strict) decide() (wait time.Duration, ok bool) {
	u.mu.Lock()
	defer u.mu.Unlock()
	now := time.Since(u.begin)
	since := now - u.per
	if u.fixed {
		since = now.Truncate(u.per) - 1
	}
	k := len(u.accepted)
	for k > 0 && u.accepted[k-1] > since {
		k--
	}
	if len(u.accepted)-k >= u.n {
		u.refused = append(u.refused, now)
		if u.fixed {
			return since + 1 + u.per - now, false
		}
		return u.accepted[len(u.accepted)-u.n] + u.per - now, false
	}
	if u.dice.Float64() < u.stray {
		u.refused = append(u.refused, now)
		return time.Second, false
	}
	u.accepted = append(u.accepted, now)
	return 0, true
}

// between counts what lies in [from, to).
func between(times []time.Duration, from, to time.Duration) (n int) {
	for _, t := range times {
		if from <= t && t < to {
			n++
		}
	}
	return n
}

// use has a fleet of programs with so many callers each send what they can for a while.
func (u *strict) use(t *testing.T, store throttle.Store, p throttle.Policy, programs, callers int, d time.Duration, observe func(context.Context, throttle.Event)) {
	ctx, stop := context.WithTimeout(t.Context(), d)
	defer stop()
	var all sync.WaitGroup
	for range programs {
		tr := must(throttle.New(throttle.Config{MaxWait: throttle.Forever, Store: store, Policies: everywhere(p), Base: u, Observe: observe}))
		for range callers {
			all.Go(func() {
				for ctx.Err() == nil {
					req := get(t, home).WithContext(ctx)
					resp, err := tr.RoundTrip(req)
					if err != nil {
						return // it cannot be sent in what is left of the time
					}
					resp.Body.Close()
				}
			})
		}
	}
	all.Wait()
}

func newStrict(n int, per time.Duration) *strict {
	return &strict{n: n, per: per, travel: 60 * ms, dice: rand.New(rand.NewPCG(1, 2)), begin: time.Now()}
}
