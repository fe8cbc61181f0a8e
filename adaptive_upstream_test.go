package throttle_test

import (
	"context"
	"math/rand/v2"
	"net/http"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/fleetthrottle/throttle"
)

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
