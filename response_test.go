package throttle_test

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"math"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fleetthrottle/throttle"
	"github.com/fleetthrottle/throttle/feedback"
	"github.com/fleetthrottle/throttle/memstore"
	"github.com/fleetthrottle/throttle/store"
)

// A distantStore books within a millisecond, and takes long for all that it is told.
type distantStore struct {
	throttle.Store
	takes time.Duration

	mu      sync.Mutex
	quotas  []throttle.Quota
	costs   [][]int
	refused int
}

func (s *distantStore) Book(ctx context.Context, b *store.Booking) (store.Grant, error) {
	const trip = time.Millisecond
	time.Sleep(trip)
	g, err := s.Store.Book(ctx, b)
	g.Age = trip
	return g, err
}

func (s *distantStore) Reconcile(ctx context.Context, c store.Charge, q throttle.Quota) error {
	if err := s.hear(ctx, func() { s.quotas = append(s.quotas, q) }); err != nil {
		return err
	}
	return s.Store.Reconcile(ctx, c, q)
}

func (s *distantStore) Settle(ctx context.Context, b *store.Booking, g store.Grant, costs []int) error {
	if err := s.hear(ctx, func() { s.costs = append(s.costs, costs) }); err != nil {
		return err
	}
	return s.Store.Settle(ctx, b, g, costs)
}

func (s *distantStore) Refuse(ctx context.Context, c store.Charge, r store.Refusal) (from, to float64, err error) {
	if err := s.hear(ctx, func() { s.refused++ }); err != nil {
		return 0, 0, err
	}
	return s.Store.Refuse(ctx, c, r)
}

// hear notes what the store is told, after its time.
func (s *distantStore) hear(ctx context.Context, note func()) error {
	select {
	case <-time.After(s.takes):
	case <-ctx.Done():
		return ctx.Err()
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	note()
	return nil
}

// left is a policy whose answers say that so much is left for an hour, and what they have cost.
func left(left, cost int) throttle.Policy {
	return throttle.Policy{
		Name: "p", Limit: throttle.PerHour(1000),
		Answer: func(*http.Response) (a throttle.Answer) {
			if left >= 0 {
				a = a.WithLeft(throttle.Quota{Left: left, Reset: time.Hour})
			}
			if cost >= 0 {
				a = a.WithCost(cost)
			}
			return a
		},
	}
}

// TestP16_AnswersRideAheadOfReports: only what closes a budget is told to the store before the caller
// gets the answer. All of it is told, with the time that it took.
func TestP16_AnswersRideAheadOfReports(t *testing.T) {
	const takes = 900 * time.Millisecond
	for _, c := range []struct {
		name          string
		status        int
		left, cost    int
		held          time.Duration
		quotas, costs int
		ages          time.Duration // of the quota
	}{
		{name: "much left", status: 200, left: 5, cost: 1, quotas: 1},
		{name: "another cost", status: 200, left: -1, cost: 3, costs: 1},
		{name: "both", status: 200, left: 5, cost: 3, quotas: 1, costs: 1, ages: takes},
		{name: "nothing left", status: 200, left: 0, cost: 1, quotas: 1},
		{name: "a refusal", status: 429, left: -1, cost: 1, held: takes},
		{name: "a refusal, and all else", status: 429, left: 5, cost: 3, held: takes, quotas: 1, costs: 1, ages: 2 * takes},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := &distantStore{Store: memstore.New(), takes: takes}
				tr, err := throttle.New(throttle.Config{
					MaxWait: throttle.Forever,
					Store:   s, Base: answer(c.status, "", "Retry-After", "60"), Policies: everywhere(left(c.left, c.cost)),
				})
				require.NoError(t, err)

				began := time.Now()
				require.NoError(t, send(t, tr, get(t, home)))
				require.Equal(t, time.Millisecond+c.held, time.Since(began))

				time.Sleep(3 * time.Second)
				synctest.Wait()
				require.Len(t, s.quotas, c.quotas)
				require.Len(t, s.costs, c.costs)
				for _, q := range s.quotas {
					require.Equal(t, c.ages, q.Age)
					require.Equal(t, time.Hour-c.ages, q.Reset)
				}
			})
		})
	}
}

// TestP1_BookingsComeAfterReports: a caller that books in a budget of which less is left than the store believes waits until the
// store has heard of that, and for nothing else. So an answer that holds nobody lets nobody pass the upstream's limit.
func TestP1_BookingsComeAfterReports(t *testing.T) {
	const takes = 900 * time.Millisecond
	for _, c := range []struct {
		name       string
		left, cost int
		maxWait    time.Duration
		took       time.Duration // the next call, its booking included
		refused    bool
	}{
		{name: "it has cost all", left: -1, cost: 1000, maxWait: time.Minute, took: takes, refused: true},
		{name: "it has cost more", left: -1, cost: 2, maxWait: time.Minute, took: takes},
		{name: "it has cost less", left: -1, cost: 0, maxWait: time.Minute, took: time.Millisecond},
		{name: "nothing is left", left: 0, cost: -1, maxWait: time.Minute, took: takes, refused: true},
		{name: "much is left", left: 500, cost: -1, maxWait: time.Minute, took: time.Millisecond},
		{name: "a short MaxWait", left: -1, cost: 2, maxWait: 300 * time.Millisecond, took: 301 * time.Millisecond},
		{name: "no wait", left: -1, cost: 2, maxWait: throttle.NoWait, took: 101 * time.Millisecond},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := &distantStore{Store: memstore.New(), takes: takes}
				other := throttle.Policy{Name: "other", Match: "elsewhere.org/", Limit: throttle.PerHour(1000)}
				said := left(c.left, c.cost)
				said.Match = "api.example.com/"
				tr, err := throttle.New(throttle.Config{MaxWait: c.maxWait, Store: s, Base: answer(200, ""), Policies: []throttle.Policy{said, other}})
				require.NoError(t, err)
				require.NoError(t, send(t, tr, get(t, "https://api.example.com/")))

				began := time.Now()
				require.NoError(t, send(t, tr, get(t, "https://elsewhere.org/")))
				require.Equal(t, time.Millisecond, time.Since(began), "another budget")

				err = send(t, tr, get(t, "https://api.example.com/"))
				require.Equal(t, c.refused, err != nil, "%v", err)
				require.Equal(t, c.took, time.Since(began)-time.Millisecond)
				time.Sleep(3 * time.Second)
			})
		})
	}
}

// TestP15_ReportsBehindCallersAreBounded: the store hears of 64 answers at a time, and 1024 more wait
// for that. Beyond them a caller waits for its own report, and none is lost.
func TestP15_ReportsBehindCallersAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const callers, most, takes = 1100, 64 + 1024, 900 * time.Millisecond
		s := &distantStore{Store: memstore.New(), takes: takes}
		policy := left(500_000, 1)
		policy.Limit = throttle.PerHour(1_000_000)
		tr, err := throttle.New(throttle.Config{MaxWait: throttle.Forever, Store: s, Base: answer(200, ""), Policies: everywhere(policy)})
		require.NoError(t, err)

		began := time.Now()
		var all sync.WaitGroup
		var mu sync.Mutex
		held := make(map[time.Duration]int)
		for range callers {
			all.Go(func() {
				require.NoError(t, send(t, tr, get(t, home)))
				mu.Lock()
				defer mu.Unlock()
				held[time.Since(began)]++
			})
		}
		all.Wait()
		require.Equal(t, map[time.Duration]int{time.Millisecond: most, time.Millisecond + takes: callers - most}, held)

		time.Sleep(17 * takes)
		synctest.Wait()
		require.Len(t, s.quotas, callers)

		began = time.Now()
		require.NoError(t, send(t, tr, get(t, home)))
		require.Equal(t, time.Millisecond, time.Since(began), "the reports have ended, and callers go ahead again")
		time.Sleep(time.Second)
	})
}

// slotTransport returns a transport of a Concurrency limit, and a function that says how many slots are taken.
func slotTransport(t *testing.T, b http.RoundTripper, seen *events, more ...throttle.Policy) (tr *throttle.Transport, taken func() int) {
	t.Helper()
	s := memstore.New()
	policies := append([]throttle.Policy{{Name: "slots", Match: "/", Limit: throttle.Concurrency(2)}}, more...)
	tr = must(throttle.New(throttle.Config{Store: s, Base: b, Policies: policies, Observe: seen.observe}))
	return tr, func() int { return status(t, s, tr, get(t, "http://a.invalid/")).Used }
}

// TestDroppedBody: the slot of an answer whose body the program neither reads to its end nor closes, under a context that
// has no deadline, is given back, and the observer is told once.
func TestDroppedBody(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = w.Write(bytes.Repeat([]byte("x"), 1<<20))
	}))
	defer server.Close()
	real := &http.Transport{}
	defer real.CloseIdleConnections()
	cancelable, cancel := context.WithCancel(t.Context())
	defer cancel()

	metered := throttle.Policy{Name: "metered", Match: "/", Limit: throttle.PerSecond(100), Meter: func(*http.Response) throttle.Meter { return blindMeter{} }}
	peeked := throttle.Policy{Name: "peeked", Match: "/", Limit: throttle.PerSecond(100), Answer: func(r *http.Response) throttle.Answer {
		feedback.PeekBody(r, 10)
		return feedback.LeaveOpen(r)
	}}
	upgrade := base(func(r *http.Request) (*http.Response, error) {
		return &http.Response{StatusCode: http.StatusSwitchingProtocols, Body: struct{ io.ReadWriteCloser }{}, Request: r}, nil
	})
	for name, c := range map[string]struct {
		base     http.RoundTripper
		ctx      context.Context
		policies []throttle.Policy
		read     int64
	}{
		"unread":                  {answer(200, "some text"), context.Background(), nil, 0},
		"a server's":              {real, context.Background(), nil, 0},
		"a server's, half read":   {real, context.Background(), nil, 1000},
		"under a long context":    {real, cancelable, nil, 0},
		"metered and looked into": {real, context.Background(), []throttle.Policy{metered, peeked}, 10},
		"an upgraded connection":  {upgrade, context.Background(), nil, 0},
	} {
		t.Run(name, func(t *testing.T) {
			var seen events
			tr, taken := slotTransport(t, c.base, &seen, c.policies...)
			for range 2 {
				func() {
					req, err := http.NewRequestWithContext(c.ctx, http.MethodGet, server.URL, nil)
					require.NoError(t, err)
					resp, err := (&http.Client{Transport: tr}).Do(req) //nolint:bodyclose // that is what is tested
					require.NoError(t, err)
					_, err = io.CopyN(io.Discard, resp.Body, c.read)
					require.NoError(t, err)
				}()
			}
			require.Eventually(t, func() bool {
				runtime.GC()
				return taken() == 0 && len(seen.only(throttle.EventDropped)) == 2
			}, hangs, time.Millisecond)
			require.Equal(t, "slots", seen.only(throttle.EventDropped)[0].Policy)
		})
	}
}

// TestBodiesThatAreNotDropped: a body that is over, and one that the program still has, are not told of.
func TestBodiesThatAreNotDropped(t *testing.T) {
	for name, use := range map[string]func(*http.Response, func()){
		"closed":        func(r *http.Response, _ func()) { require.NoError(t, r.Body.Close()) },
		"read":          func(r *http.Response, _ func()) { require.NotEmpty(t, must(io.ReadAll(r.Body))) },
		"context ended": func(_ *http.Response, cancel func()) { cancel() },
	} {
		var seen events
		tr, taken := slotTransport(t, answer(200, "some text"), &seen)
		ctx, cancel := context.WithCancel(t.Context())
		use(must(tr.RoundTrip(get(t, "http://a.invalid/").WithContext(ctx))), cancel)
		require.Eventually(t, func() bool { return taken() == 0 }, hangs, time.Millisecond, name)
		for range 3 {
			runtime.GC()
		}
		require.Empty(t, seen.only(throttle.EventDropped), name)
		cancel()
	}

	var seen events
	tr, taken := slotTransport(t, answer(200, strings.Repeat("x", 100)), &seen)
	kept := must(tr.RoundTrip(get(t, "http://a.invalid/").WithContext(context.Background())))
	for range 3 {
		runtime.GC()
	}
	require.Equal(t, 1, taken())
	require.Len(t, must(io.ReadAll(kept.Body)), 100)
	require.Zero(t, taken())
	require.Empty(t, seen.only(throttle.EventDropped))
}

// A blindMeter learns nothing.
type blindMeter struct{}

func (blindMeter) Write(p []byte) (int, error) { return len(p), nil }
func (blindMeter) Cost() int                   { return -1 }

// A teller is an upstream that allows n in any window, and tells a limit with each answer.
type teller struct {
	*strict
	tells func(since time.Duration) (n, seconds int) // what it tells, or 0 and 0 for nothing
}

func newTeller(n int, per time.Duration, tells func(since time.Duration) (n, seconds int)) *teller {
	u := &teller{newStrict(n, per), tells}
	u.polite = true
	return u
}

func (u *teller) RoundTrip(r *http.Request) (*http.Response, error) {
	resp, err := u.strict.RoundTrip(r)
	u.mu.Lock()
	defer u.mu.Unlock()
	if n, seconds := u.tells(time.Since(u.begin)); err == nil && seconds != 0 {
		resp.Header.Set("RateLimit-Policy", fmt.Sprintf(`"api";q=%d;w=%d`, n, seconds))
	}
	return resp, err
}

// toldPolicy is a policy whose limit the upstream tells.
var toldPolicy = throttle.Policy{Name: "api", Match: "/", Limit: throttle.Told(), Answer: feedback.Told{}.Answer}

// flood has programs with so many callers each send what they can for a while.
func (u *teller) flood(t *testing.T, s throttle.Store, d time.Duration, programs, callers int, policies ...throttle.Policy) {
	ctx, stop := context.WithTimeout(t.Context(), d)
	defer stop()
	var all sync.WaitGroup
	for range programs {
		tr := must(throttle.New(throttle.Config{MaxWait: throttle.Forever, Store: s, Policies: policies, Base: u}))
		for range callers {
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
}

// tellsAlways tells the same each time.
func tellsAlways(n, seconds int) func(time.Duration) (int, int) {
	return func(time.Duration) (int, int) { return n, seconds }
}

// TestP1_ToldTheTruth: only what is on its way when the first answer comes is refused. From then on the fleet
// uses nearly all of the limit that it was told, and nothing is refused.
func TestP1_ToldTheTruth(t *testing.T) {
	for _, c := range []struct {
		n   int
		per time.Duration
	}{{20, time.Second}, {400, time.Second}, {300, time.Minute}} {
		t.Run(fmt.Sprint(c.n, c.per), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				length, warm := 10*c.per, 2*c.per
				u := newTeller(c.n, c.per, tellsAlways(c.n, int(c.per/time.Second)))
				u.flood(t, memstore.New(), length, 3, 12, toldPolicy)
				used := float64(between(u.accepted, warm, length)) / float64(c.n) / (float64(length-warm) / float64(c.per))
				t.Logf("used %.1f %%, refused %d at first and %d later", 100*used, between(u.refused, 0, warm), between(u.refused, warm, length))
				require.GreaterOrEqual(t, used, 0.9)
				require.LessOrEqual(t, between(u.refused, 0, warm), 36, "what is on its way at first")
				require.Zero(t, between(u.refused, warm, length))
			})
		})
	}
}

// TestP1_ToldChangesItsMind: a lower limit holds at once, and a higher one a minute later.
func TestP1_ToldChangesItsMind(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		set := func(u *teller, n int) {
			u.mu.Lock()
			u.n = n
			u.mu.Unlock()
		}
		u := newTeller(20, time.Second, func(since time.Duration) (int, int) {
			switch {
			case since < 30*time.Second:
				return 20, 1
			case since < 60*time.Second:
				return 5, 1
			}
			return 40, 1
		})
		time.AfterFunc(60*time.Second, func() { set(u, 40) })
		u.flood(t, memstore.New(), 3*time.Minute, 3, 12, toldPolicy)
		require.InDelta(t, 19, between(u.accepted, 5*time.Second, 30*time.Second)/25, 2)
		require.InDelta(t, 5, between(u.accepted, 35*time.Second, 60*time.Second)/25, 1)
		require.InDelta(t, 38, between(u.accepted, 130*time.Second, 180*time.Second)/50, 3)
	})
}

// TestP1_ToldLies: an upstream that enforces less than it tells refuses little if the policy is adaptive; one that tells
// nothing that can be true opens nothing above a second policy, and closes nothing.
func TestP1_ToldLies(t *testing.T) {
	t.Run("too much", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			p := toldPolicy
			p.Adaptive = true
			u := newTeller(20, time.Second, tellsAlways(40, 1))
			u.flood(t, memstore.New(), 5*time.Minute, 3, 12, p)
			used := float64(between(u.accepted, time.Minute, 5*time.Minute)) / 20 / 240
			t.Logf("used %.1f %%, refused %d", 100*used, between(u.refused, time.Minute, 5*time.Minute))
			require.GreaterOrEqual(t, used, 0.85)
			require.LessOrEqual(t, between(u.refused, time.Minute, 5*time.Minute), 40)
		})
	})

	t.Run("anything", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			says := []struct{ n, seconds int }{{0, 1}, {-1, 1}, {1_000_000_000, 1}, {10, 0}, {10, -1}, {10, 86400}, {min(1<<40, math.MaxInt), 60}, {1_000_000, 1}}
			i := 0
			u := newTeller(10, time.Second, func(time.Duration) (int, int) {
				i++
				return says[i%len(says)].n, says[i%len(says)].seconds
			})
			ceiling := throttle.Policy{Name: "ours", Match: "/", Limit: throttle.PerSecond(10)}
			u.flood(t, memstore.New(), time.Minute, 3, 12, toldPolicy, ceiling)
			require.Empty(t, u.refused)
			require.GreaterOrEqual(t, len(u.accepted), 540)
		})
	})

	t.Run("too little, once", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			u := newTeller(20, time.Second, func(since time.Duration) (int, int) {
				if since < 5*time.Second {
					return 1, 3600
				}
				return 20, 1
			})
			u.flood(t, memstore.New(), 63*time.Minute, 2, 5, toldPolicy)
			require.Greater(t, between(u.accepted, 62*time.Minute, 63*time.Minute), 18*60)
		})
	})
}

// TestTold_OnePermitTells: work without HTTP tells the limit by its permit, all holders of the store keep it, status says
// what was told and when, and Resume forgets it.
func TestTold_OnePermitTells(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := memstore.New()
		p := throttle.Policy{Name: "api", Limit: throttle.Told()}
		one, two := must(throttle.NewLimiter(s, p)), must(throttle.NewLimiter(s, p))
		for range 100 {
			must(two.Acquire(t.Context(), "", 1)).Release()
		}

		permit := must(one.Acquire(t.Context(), "", 1))
		require.NoError(t, permit.Tell(t.Context(), throttle.Answer{}.WithLeft(throttle.Quota{Left: 2, Reset: time.Minute, Told: throttle.PerMinute(3)})))
		time.Sleep(5 * time.Second)
		st := must(two.Status(t.Context(), ""))
		require.Equal(t, throttle.Told(), st.Limit)
		require.Equal(t, throttle.PerMinute(3), st.Told)
		require.Equal(t, 5*time.Second, st.ToldAgo)

		begin := time.Now()
		for range 3 {
			must(two.Acquire(t.Context(), "", 1))
		}
		require.GreaterOrEqual(t, time.Since(begin), 50*time.Second, "two were left")

		require.NoError(t, two.Resume(t.Context(), ""))
		begin = time.Now()
		for range 10 {
			must(two.Acquire(t.Context(), "", 1))
		}
		require.Zero(t, time.Since(begin))
		require.Zero(t, must(two.Status(t.Context(), "")).Told)
	})
}

// TestTold_IsForgotten: a window and ten minutes after an answer told it last, a limit means nothing.
func TestTold_IsForgotten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := must(throttle.NewLimiter(memstore.New(), throttle.Policy{Name: "api", Limit: throttle.Told()}))
		permit := must(l.Acquire(t.Context(), "", 1))
		require.NoError(t, permit.Tell(t.Context(), throttle.Answer{}.WithLeft(throttle.Quota{Left: 100, Told: throttle.PerMinute(3)})))
		told := time.Now()
		time.Sleep(time.Until(told.Add(11*time.Minute - time.Microsecond)))
		require.Equal(t, throttle.PerMinute(3), must(l.Status(t.Context(), "")).Told)
		time.Sleep(time.Microsecond)
		require.Zero(t, must(l.Status(t.Context(), "")).Told)
		require.Zero(t, must(l.Status(t.Context(), "")).ToldAgo)
	})
}

// tell has a limiter hear a limit.
func tell(t *testing.T, l *throttle.Limiter, limit throttle.Limit) {
	t.Helper()
	permit := must(l.Acquire(t.Context(), "", throttle.Free))
	require.NoError(t, permit.Tell(t.Context(), throttle.Answer{}.WithLeft(throttle.Quota{Left: 1 << 20, Told: limit})))
	permit.Release()
}

// takes returns how long some starts of a cost take together.
func takes(t *testing.T, l *throttle.Limiter, starts, cost int) time.Duration {
	t.Helper()
	begin := time.Now()
	for range starts {
		must(l.Acquire(throttle.WithMaxWait(t.Context(), throttle.Forever), "", cost)).Release()
	}
	return time.Since(begin)
}

// TestTold_Changes: which of two limits holds, and what of the starts before counts under it.
func TestTold_Changes(t *testing.T) {
	for name, play := range map[string]func(t *testing.T, l *throttle.Limiter){
		"a longer window begins with the starts that are known": func(t *testing.T, l *throttle.Limiter) {
			tell(t, l, throttle.PerSecond(2))
			for range 3 {
				require.Zero(t, takes(t, l, 2, 1))
				time.Sleep(3 * time.Second)
			}
			tell(t, l, throttle.PerHour(60))
			require.Zero(t, takes(t, l, 50, 1))
		},
		"a limit is preferred for its window": func(t *testing.T, l *throttle.Limiter) {
			tell(t, l, throttle.PerHour(60))
			time.Sleep(59 * time.Minute)
			tell(t, l, throttle.PerHour(100))
			require.Equal(t, throttle.PerHour(60), must(l.Status(t.Context(), "")).Told)
			time.Sleep(time.Minute)
			tell(t, l, throttle.PerHour(100))
			require.Equal(t, throttle.PerHour(100), must(l.Status(t.Context(), "")).Told)
		},
		"a short limit is preferred for a minute": func(t *testing.T, l *throttle.Limiter) {
			tell(t, l, throttle.PerSecond(2))
			time.Sleep(59 * time.Second)
			tell(t, l, throttle.PerSecond(9))
			require.Equal(t, throttle.PerSecond(2), must(l.Status(t.Context(), "")).Told)
			time.Sleep(time.Second)
			tell(t, l, throttle.PerSecond(9))
			require.Equal(t, throttle.PerSecond(9), must(l.Status(t.Context(), "")).Told)
		},
		"a limit out of bounds is ignored": func(t *testing.T, l *throttle.Limiter) {
			for _, limit := range []throttle.Limit{
				throttle.SlidingWindow(5, store.MaxTold+time.Microsecond), throttle.SlidingWindow(5, store.MinTold-time.Microsecond), throttle.PerSecond(1<<30 + 1),
			} {
				tell(t, l, limit)
				require.Zero(t, must(l.Status(t.Context(), "")).Told, limit)
			}
		},
		"of equal rates the shorter window holds": func(t *testing.T, l *throttle.Limiter) {
			tell(t, l, throttle.PerHour(3600))
			tell(t, l, throttle.PerMinute(60))
			tell(t, l, throttle.PerHour(3600))
			require.Equal(t, throttle.PerMinute(60), must(l.Status(t.Context(), "")).Told)
		},
		"a cost above the limit counts as all of it": func(t *testing.T, l *throttle.Limiter) {
			tell(t, l, throttle.PerMinute(3))
			require.Zero(t, takes(t, l, 1, 1000))
			require.InDelta(t, time.Minute, takes(t, l, 3, 1), float64(2*time.Second))
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				play(t, must(throttle.NewLimiter(memstore.New(), throttle.Policy{Name: "api", Limit: throttle.Told()})))
			})
		})
	}
}

// TestTold_Mistakes: what needs a number of its own is refused at once.
func TestTold_Mistakes(t *testing.T) {
	for field, p := range map[string]throttle.Policy{
		"Headroom": {Headroom: map[throttle.Priority]float64{throttle.PriorityLow: 0.2}},
		"Share":    {Share: func(*http.Request) string { return strconv.Itoa(1) }},
	} {
		p.Name, p.Match, p.Limit = "api", "/", throttle.Told()
		_, err := throttle.New(throttle.Config{Store: memstore.New(), Policies: []throttle.Policy{p}})
		var wrong *throttle.ConfigError
		require.ErrorAs(t, err, &wrong)
		require.Equal(t, field, wrong.Field)
	}
}
