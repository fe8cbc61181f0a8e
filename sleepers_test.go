package throttle_test

import (
	"context"
	"net/http"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fleetthrottle/throttle"
	"github.com/fleetthrottle/throttle/memstore"
)

// Sleepers are requests whose starts were booked before a penalty came.
type sleepers struct {
	t    *testing.T
	tr   http.RoundTripper
	all  sync.WaitGroup
	mu   sync.Mutex
	left map[int]departure
}

// A departure is how the wait of a sleeper ended, and when.
type departure struct {
	at  time.Duration
	err error
}

// fallAsleep sends n requests, so that their order is known. Each has the context
// that ctx makes for it.
func fallAsleep(t *testing.T, tr http.RoundTripper, n int, ctx func(i int) context.Context) *sleepers {
	s := &sleepers{t: t, tr: tr, left: make(map[int]departure)}
	begin := time.Now()
	for i := range n {
		r := get(t, home).WithContext(ctx(i))
		s.all.Go(func() {
			err := send(t, tr, r)
			s.mu.Lock()
			defer s.mu.Unlock()
			s.left[i] = departure{time.Since(begin), err}
		})
		synctest.Wait()
	}
	return s
}

// departures returns when all left, in order.
func (s *sleepers) departures() (all []time.Duration) {
	for _, d := range s.left {
		all = append(all, d.at)
	}
	slices.Sort(all)
	return all
}

// patiently is for sleepers that have all the time in the world.
func patiently(t *testing.T) func(int) context.Context {
	return func(int) context.Context { return t.Context() }
}

// since returns the times of at least a duration.
func since(times []time.Duration, d time.Duration) []time.Duration {
	return slices.DeleteFunc(slices.Clone(times), func(at time.Duration) bool { return at < d })
}

// twoPerSecond has starts that are easy to compute.
var twoPerSecond = throttle.Policy{Name: "p", Limit: throttle.LeakyBucket(2, time.Second), Jitter: -1}

// TestP11_SleepersHearOfAPenalty: twenty have booked up to ten seconds ahead when
// the answer to the third closes the budget for a minute.
func TestP11_SleepersHearOfAPenalty(t *testing.T) {
	for name, jitter := range map[string]time.Duration{"without jitter": -1, "with jitter": 0} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				store, s := newSpy(), newStarts()
				s.then = firstly(answer(200, ""), firstly(answer(200, ""), firstly(answer(429, "", "Retry-After", "60"), answer(200, ""))))
				p := twoPerSecond
				p.Jitter = jitter
				tr := must(throttle.New(throttle.Config{Store: store, Base: s, Policies: []throttle.Policy{p}}))
				fallAsleep(t, tr, 20, patiently(t)).all.Wait()
				got := s.seen()
				end := got[2] + time.Minute
				require.Len(t, got, 20)
				require.Len(t, since(got, got[2]+1), 17)
				require.Len(t, since(got, end), 17, "%v", got)
				require.Equal(t, end, got[3])
				time.Sleep(time.Minute)
				require.Equal(t, throttle.Status{Limit: p.Limit}, status(t, store, tr, get(t, home)))
			})
		})
	}
}

// TestP11_OneMeetsAPenaltyThatGoesOn: the upstream bans for six seconds, whatever
// it says, and the limit is so large that an eighth of it lets all leave at once. The
// second penalty is met right after the first, and is twice as long.
func TestP11_OneMeetsAPenaltyThatGoesOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, begin := newStarts(), time.Now()
		s.then = func(r *http.Request) (*http.Response, error) {
			if time.Since(begin) < 6*time.Second {
				return answer(429, "", "Retry-After", "2")(r)
			}
			return answer(200, "")(r)
		}
		tr := newTransport(t, s, throttle.Policy{Name: "address", Limit: throttle.SlidingWindow(10_000, 20*time.Second)})
		line(t, tr, 1, home)
		fallAsleep(t, tr, 20, patiently(t)).all.Wait()
		got := s.seen()
		require.Len(t, got, 21)
		require.Equal(t, []time.Duration{0, 2 * time.Second, 6 * time.Second, 6250 * ms}, got[:4])
	})
}

// TestP11_ACrowdWakesUp: all sleepers book anew, and each finds a start of its own.
func TestP11_ACrowdWakesUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memstore.New()
		tr := must(throttle.New(throttle.Config{Store: store, Base: answer(200, ""), Policies: []throttle.Policy{twoPerSecond}}))
		s := fallAsleep(t, tr, 50, patiently(t))
		require.NoError(t, store.Pause(t.Context(), tr.Explain(get(t, home))[0], time.Minute))
		synctest.Wait()
		require.Equal(t, 49, status(t, store, tr, get(t, home)).Waiting)
		s.all.Wait()
		var want []time.Duration
		for i := range 49 {
			want = append(want, time.Minute+time.Duration(i)*500*ms)
		}
		require.Equal(t, append([]time.Duration{0}, want...), s.departures())
	})
}

// TestP11_AWaitThatIsTooLongIsRefusedAtOnce: the news come at 1 s, and nobody
// sleeps on for nothing.
func TestP11_AWaitThatIsTooLongIsRefusedAtOnce(t *testing.T) {
	for name, bound := range map[string]func(context.Context) (context.Context, context.CancelFunc){
		"deadline": func(ctx context.Context) (context.Context, context.CancelFunc) {
			return context.WithTimeout(ctx, 30*time.Second)
		},
		"MaxWait": func(ctx context.Context) (context.Context, context.CancelFunc) {
			return throttle.WithMaxWait(ctx, 30*time.Second), func() {}
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				store, seen := newSpy(), &events{}
				tr := must(throttle.New(throttle.Config{Store: store, Observe: seen.observe,
					Base: answer(200, ""), Policies: []throttle.Policy{twoPerSecond}}))
				s := fallAsleep(t, tr, 10, func(i int) context.Context {
					if i%2 == 0 {
						return t.Context()
					}
					ctx, cancel := bound(t.Context())
					t.Cleanup(cancel)
					return ctx
				})
				time.Sleep(1100 * ms) // numbers 0 to 2 are through
				charge := tr.Explain(get(t, home))[0]
				require.NoError(t, store.Pause(t.Context(), charge, 20*time.Second))
				synctest.Wait()
				require.Len(t, s.left, 3, "20 s are not too long")
				require.NoError(t, store.Pause(t.Context(), charge, time.Minute))
				synctest.Wait()
				for _, i := range []int{3, 5, 7, 9} {
					require.Equal(t, 1100*ms, s.left[i].at)
					var limited *throttle.LimitError
					require.ErrorAs(t, s.left[i].err, &limited)
					require.True(t, limited.Paused)
					require.Equal(t, time.Minute, limited.RetryAfter.Truncate(time.Minute))
				}
				st := status(t, store, tr, get(t, home))
				require.Equal(t, 3, st.Waiting, "4, 6 and 8: the others gave their places back")
				s.all.Wait()
				require.Equal(t, []time.Duration{61100 * ms, 61600 * ms, 62100 * ms}, s.departures()[7:])
				require.Equal(t, throttle.Refused, seen.first(t, throttle.Refused).Kind)
			})
		})
	}
}

// TestP11_LimiterSleepersHearOfAPenalty.
func TestP11_LimiterSleepersHearOfAPenalty(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := must(throttle.NewLimiter(memstore.New(), twoPerSecond))
		begin := time.Now()
		var all sync.WaitGroup
		var mu sync.Mutex
		var got []time.Duration
		for range 10 {
			all.Go(func() {
				_, err := l.Acquire(t.Context(), "a", 1)
				mu.Lock()
				defer mu.Unlock()
				require.NoError(t, err)
				got = append(got, time.Since(begin))
			})
			synctest.Wait()
		}
		time.Sleep(1100 * ms)
		require.NoError(t, l.Pause(t.Context(), "b", time.Hour), "another key")
		require.NoError(t, l.Pause(t.Context(), "a", time.Minute))
		all.Wait()
		require.Equal(t, []time.Duration{0, 500 * ms, time.Second}, got[:3])
		require.Equal(t, 61100*ms, got[3])
		require.Equal(t, 64100*ms, got[9])
	})
}

// TestP11_AnOperatorPausesAndResumes with a Limiter whose policy has the name and
// the match of the transport's.
func TestP11_AnOperatorPausesAndResumes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store, s, p := memstore.New(), newStarts(), twoPerSecond
		p.Match = "example.com/"
		tr := must(throttle.New(throttle.Config{Store: store, Base: s, Policies: []throttle.Policy{p}}))
		operator := must(throttle.NewLimiter(store, p))
		asleep := fallAsleep(t, tr, 5, patiently(t))
		time.Sleep(100 * ms)
		require.NoError(t, operator.Pause(t.Context(), "", time.Hour))
		time.Sleep(time.Minute)
		require.Equal(t, []time.Duration{0}, s.seen())
		require.NoError(t, operator.Resume(t.Context(), ""))
		asleep.all.Wait()
		at := time.Minute + 100*ms
		require.Equal(t, []time.Duration{0, at, at + 500*ms, at + time.Second, at + 1500*ms}, s.seen())
	})
}

// TestP11_SleepersOfReplacedPolicies keep their places, and still hear of a penalty.
func TestP11_SleepersOfReplacedPolicies(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStarts()
		tr := newTransport(t, s, twoPerSecond)
		s.then = func(r *http.Request) (*http.Response, error) {
			if len(s.seen()) == 2 {
				return answer(429, "", "Retry-After", "60")(r)
			}
			return answer(200, "")(r)
		}
		asleep := fallAsleep(t, tr, 5, patiently(t))
		time.Sleep(100 * ms)
		more := throttle.Policy{Name: "elsewhere", Match: "example.org/", Limit: throttle.PerSecond(1)}
		require.NoError(t, tr.SetPolicies([]throttle.Policy{twoPerSecond, more}))
		time.Sleep(500 * ms) // the penalty has come
		require.NoError(t, tr.SetPolicies([]throttle.Policy{twoPerSecond}))
		asleep.all.Wait()
		require.Equal(t, []time.Duration{0, 500 * ms, 60500 * ms, 61 * time.Second, 61500 * ms}, s.seen())
	})
}
