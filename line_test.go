package throttle_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/http"
	"runtime"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
	"weak"

	"github.com/stretchr/testify/require"

	"github.com/fleetthrottle/throttle"
	"github.com/fleetthrottle/throttle/internal/lab/moments"
	"github.com/fleetthrottle/throttle/internal/lab/soak"
	"github.com/fleetthrottle/throttle/memstore"
	"github.com/fleetthrottle/throttle/store"
)

// A queue is callers of a limiter that came one after the other.
type queue struct {
	all   sync.WaitGroup
	mu    sync.Mutex
	begin time.Time
	at    []time.Duration // when each started, or left. It is 0 at first.
	err   []error
}

// queued has n callers come to the budget of a limiter, each with a cost of 1.
func queued(l *throttle.Limiter, n int, ctx context.Context) *queue {
	q := &queue{begin: time.Now(), at: make([]time.Duration, n), err: make([]error, n)}
	for i := range n {
		q.all.Go(func() {
			_, err := l.Acquire(ctx, "", 1)
			q.mu.Lock()
			defer q.mu.Unlock()
			q.at[i], q.err[i] = time.Since(q.begin), err
		})
		synctest.Wait()
	}
	return q
}

// TestP15_NothingIsLeftOfALine when all have left it: no goroutine, and no timer, which
// would keep the store.
func TestP15_NothingIsLeftOfALine(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memstore.New()
		gone := weak.Make(store)
		func() {
			l := newLimiter(t, store, exactly(throttle.PerHour(1)))
			before := inBubble()
			ctx, cancel := context.WithCancel(throttle.WithMaxWait(t.Context(), throttle.Forever))
			q := queued(l, 100, ctx)
			synctest.Wait()
			require.GreaterOrEqual(t, inBubble(), 100)
			cancel()
			q.all.Wait()
			synctest.Wait()
			require.LessOrEqual(t, inBubble(), before)
			st, err := l.Status(t.Context(), "")
			require.NoError(t, err)
			require.Zero(t, st.Waiting)
		}()
		store = nil
		time.Sleep(time.Second) // timers that were stopped are cleared away by others
		for range 3 {
			runtime.GC()
		}
		require.Nil(t, gone.Value())
	})
}

// inBubble returns how many goroutines there are in the bubbles of the program: goroutines of the
// runtime, and what earlier tests leave for a moment, come and go as they like.
func inBubble() int {
	stacks := make([]byte, 1<<20)
	return strings.Count(string(stacks[:runtime.Stack(stacks, true)]), ", synctest bubble ")
}

// exactly is a policy without jitter that every request matches.
func exactly(l throttle.Limit) throttle.Policy {
	return throttle.Policy{Name: "p", Limit: l, Jitter: -1}
}

// TestP1_ChangedAgainAndAgain switches between two limits under load, from
// another goroutine: no window holds more than the larger one.
func TestP1_ChangedAgainAndAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStarts()
		tables := [][]throttle.Policy{
			{exactly(throttle.PerSecond(40))},
			{exactly(throttle.PerSecond(20)), {Name: "other", Limit: throttle.PerSecond(1000)}},
		}
		tr := newTransport(t, s, tables[0]...)
		var load, changes sync.WaitGroup
		done := make(chan struct{})
		changes.Go(func() {
			for i := 1; ; i++ {
				select {
				case <-done:
					return
				case <-time.After(70 * ms):
				}
				if err := tr.SetPolicies(everywhere(tables[i%2]...)); err != nil {
					t.Error(err)
				}
			}
		})
		for range 50 {
			r := get(t, home)
			load.Go(func() {
				for range 5 {
					if err := send(t, tr, r); err != nil {
						t.Error(err)
					}
				}
			})
		}
		load.Wait()
		close(done)
		changes.Wait()
		require.Len(t, s.seen(), 250)
		require.LessOrEqual(t, most(s.seen(), time.Second), 40)
	})
}

// needs is a Policy.Cost: what the path names is needed.
func needs(name string) func(*http.Request) int {
	return func(r *http.Request) int { return strings.Count(r.URL.Path, name) }
}

// TestP5_TwoTightBudgetsInFlight sends crowds that need room in one of two
// budgets in flight, or in both. What is set aside in one for a request that needs
// the other one, too, goes round; still all come through.
func TestP5_TwoTightBudgetsInFlight(t *testing.T) {
	for seed := range uint64(20) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				rng := rand.New(rand.NewPCG(seed, 8))
				tr := throttle.Must(throttle.New(throttle.Config{
					MaxWait: throttle.Forever,
					Store:   memstore.New(),
					Base: base(func(r *http.Request) (*http.Response, error) {
						time.Sleep(10 * time.Millisecond)
						return answer(http.StatusOK, "")(r)
					}),
					Policies: []throttle.Policy{
						{Name: "a", Match: "/", Limit: throttle.Concurrency(1 + rng.IntN(3)), Cost: needs("a")},
						{Name: "b", Match: "/", Limit: throttle.Concurrency(1 + rng.IntN(3)), Cost: needs("b")},
					},
				}))
				begun := time.Now()
				var all sync.WaitGroup
				for range 80 {
					path := []string{"a", "b", "ab"}[rng.IntN(3)]
					all.Go(func() {
						r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "https://example.com/"+path, nil)
						if err != nil {
							t.Error(err)
							return
						}
						resp, err := tr.RoundTrip(r)
						if err != nil {
							t.Error(err)
							return
						}
						if err := resp.Body.Close(); err != nil {
							t.Error(err)
						}
					})
					time.Sleep(time.Duration(rng.IntN(2)) * time.Millisecond)
				}
				all.Wait()
				require.Less(t, time.Since(begun), 10*time.Second)
			})
		})
	}
}

// atOnce is a policy that allows n in flight.
func atOnce(n int) throttle.Policy {
	return throttle.Policy{Name: "p", Limit: throttle.Concurrency(n)}
}

// inFlight returns how much of the budget of key "" runs.
func inFlight(t *testing.T, l *throttle.Limiter) int {
	t.Helper()
	st, err := l.Status(t.Context(), "")
	require.NoError(t, err)
	return st.Used
}

func TestReleaseEndsAPermitOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newSpy()
		l := newLimiter(t, store, atOnce(9))
		first, err := l.Acquire(t.Context(), "", 3)
		require.NoError(t, err)
		_, err = l.Acquire(throttle.WithMaxWait(t.Context(), throttle.NoWait), "", 4)
		require.NoError(t, err)
		require.Equal(t, 7, inFlight(t, l))
		var all sync.WaitGroup
		for range 10 {
			all.Go(first.Release)
		}
		all.Wait()
		require.Equal(t, 4, inFlight(t, l))
		require.Equal(t, 1, store.released())
	})
}

// TestP4_NoCallerAsksTwiceAtOneMoment plays random lines: two or three budgets of mixed kinds,
// costs, priorities, callers with and without MaxWait, and pauses. The test of redisstore with this
// name plays them in a fleet.
func TestP4_NoCallerAsksTwiceAtOneMoment(t *testing.T) {
	for seed := range uint64(soak.Seeds(3000, 500)) {
		synctest.Test(t, func(t *testing.T) {
			require.NoError(t, moments.Play(t.Context(), seed, memstore.New()), "seed %d", seed)
		})
	}
}

// A restlessStore answers anything but that the caller may start, and calls whoever waits at once.
type restlessStore struct {
	throttle.Store
	rand *rand.Rand
	asks []time.Time
}

func (s *restlessStore) ask() { s.asks = append(s.asks, time.Now()) }

func (s *restlessStore) Book(context.Context, *store.Booking) (store.Grant, error) {
	s.ask()
	called := make(chan struct{})
	close(called)
	wait := []time.Duration{0, time.Nanosecond, 10 * time.Millisecond}[s.rand.IntN(3)]
	switch s.rand.IntN(3) {
	case 0: // a start that is too old
		return store.Grant{OK: true, Wait: wait, Age: time.Hour, HeldBy: store.NotHeld, Handle: store.Handle{Start: 1}}, nil
	case 1: // a start that is lost before it comes
		return store.Grant{OK: true, Wait: 10 * time.Millisecond, HeldBy: 0, Handle: store.Handle{Start: 1}}, nil
	}
	return store.Grant{Ready: called, Wait: wait, HeldBy: 0}, nil
}

func (s *restlessStore) Cancel(*store.Booking, store.Grant) {}

func (s *restlessStore) Watch(_ *store.Booking, _ store.Grant, news chan<- struct{}) store.Watch {
	w := &restlessWatch{s, news}
	w.tell()
	return w
}

type restlessWatch struct {
	*restlessStore
	news chan<- struct{}
}

func (w *restlessWatch) Confirm(context.Context, time.Duration) (bool, error) {
	w.ask()
	w.tell()
	return w.rand.IntN(2) == 0, nil
}

func (*restlessWatch) Stop() {}

func (w *restlessWatch) tell() {
	select {
	case w.news <- struct{}{}:
	default:
	}
}

// TestP4_NoAnswerMakesACallerSpin: whatever a store answers, a caller asks at most 8 times
// in 8 ms, and obeys MaxWait and its context.
func TestP4_NoAnswerMakesACallerSpin(t *testing.T) {
	for seed := range uint64(soak.Seeds(600, 100)) {
		synctest.Test(t, func(t *testing.T) {
			store := &restlessStore{Store: memstore.New(), rand: rand.New(rand.NewPCG(seed, 5))}
			maxWait, deadline := time.Second, time.Hour
			if seed%2 == 0 {
				maxWait, deadline = 0, time.Second
			}
			limiter, err := throttle.NewLimiters(throttle.Config{
				Store: store, MaxWait: maxWait, Policies: []throttle.Policy{{Name: "api", Limit: throttle.PerSecond(10)}},
			})
			require.NoError(t, err)
			ctx, cancel := context.WithTimeout(t.Context(), deadline)
			defer cancel()
			begin := time.Now()
			_, _ = limiter.Acquire(ctx, throttle.Demand{Policy: "api"}) // it may get a start
			require.LessOrEqual(t, time.Since(begin), 1200*time.Millisecond)
			for i := 16; i < len(store.asks); i++ {
				require.GreaterOrEqual(t, store.asks[i].Sub(store.asks[i-16]), 8*time.Millisecond, "seed %d", seed)
			}
		})
	}
}

// TestP4_AfterMaxWaitNoPlaceIsKept: a caller asks once more when its MaxWait is over, and takes
// no further place in line, whatever the store gives.
func TestP4_AfterMaxWaitNoPlaceIsKept(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &placeStore{Store: memstore.New()}
		limiter, err := throttle.NewLimiters(throttle.Config{
			Store: store, MaxWait: time.Second, Policies: []throttle.Policy{{Name: "api", Limit: throttle.PerSecond(10)}},
		})
		require.NoError(t, err)
		_, err = limiter.Acquire(t.Context(), throttle.Demand{Policy: "api"})
		require.ErrorIs(t, err, throttle.ErrLimited)
		require.Equal(t, 2, store.asks)
		require.Equal(t, 1, store.cancelled)
	})
}

// A placeStore gives everybody a place in line with a wait of 0, and calls nobody.
type placeStore struct {
	throttle.Store
	asks, cancelled int
}

func (s *placeStore) Book(context.Context, *store.Booking) (store.Grant, error) {
	s.asks++
	return store.Grant{Ready: make(chan struct{})}, nil
}

func (s *placeStore) Cancel(*store.Booking, store.Grant) { s.cancelled++ }
