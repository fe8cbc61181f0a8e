package throttle_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/http"
	"slices"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fleetthrottle/throttle"
	"github.com/fleetthrottle/throttle/memstore"
)

// A strict upstream allows what it likes: n in any interval of length per, or in each
// window if it is fixed. It refuses with a 429, which says for how long if it is polite.
type strict struct {
	n          int
	per        time.Duration
	fixed      bool
	polite     bool
	stray      float64       // the part of requests that it refuses for another reason
	travel     time.Duration // there and back, at the most
	mu         sync.Mutex
	dice       *rand.Rand
	begin      time.Time
	accepted   []time.Duration // when, since begin
	refused    []time.Duration
	concurrent int
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
		tr := must(throttle.New(throttle.Config{Store: store, Policies: []throttle.Policy{p}, Base: u, Observe: observe}))
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

// TestAdaptive_HalfTheLimit: an upstream that enforces less than the table says refuses
// few requests, and nearly all that it allows is used.
func TestAdaptive_HalfTheLimit(t *testing.T) {
	for _, c := range []struct {
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
		{throttle.TokenBucket(40, time.Second, 40), 20, false, false},
		{throttle.TokenBucket(40, time.Second, 10), 20, false, true},
		{throttle.LeakyBucket(40, time.Second), 20, false, false},
	} {
		for _, adaptive := range []bool{true} {
			t.Run(fmt.Sprintf("%v, %d, fixed %v, polite %v, %v", c.limit, c.n, c.fixed, c.polite, adaptive), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					u := newStrict(c.n, c.limit.Per())
					u.fixed, u.polite = c.fixed, c.polite
					length, warm := 5*time.Minute, time.Minute
					if c.limit.Per() > time.Second {
						length, warm = 30*time.Minute, 5*time.Minute
					}
					var falls []string
					observe := func(_ context.Context, ev throttle.Event) {
						if ev.Kind == throttle.Lowered {
							falls = append(falls, fmt.Sprintf("%v:%.1f>%.1f", time.Since(u.begin).Truncate(time.Second), ev.From, ev.To))
						}
					}
					u.use(t, memstore.New(), throttle.Policy{Name: "p", Limit: c.limit, Adaptive: adaptive}, 4, 12, length, observe)
					used := float64(between(u.accepted, warm, length)) / float64(c.n) / (float64(length-warm) / float64(c.limit.Per()))
					var each []int
					for m := time.Duration(0); m < length; m += time.Minute {
						each = append(each, between(u.refused, m, m+time.Minute))
					}
					late := each[int(warm/time.Minute):]
					mean := float64(between(u.refused, warm, length)) / (length - warm).Minutes()
					t.Logf("used %.1f %%, refused %.1f a minute, at most %d; first minutes %v; %v", 100*used, mean, slices.Max(late), each[:int(warm/time.Minute)], falls)
					_ = require.Greater
				})
			})
		}
	}
}
