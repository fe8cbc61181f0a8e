package throttle_test

import (
	"context"
	"errors"
	"net/http"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fleetthrottle/throttle"
	"github.com/fleetthrottle/throttle/memstore"
	"github.com/fleetthrottle/throttle/store"
)

// slotWays are the ways to a permit of the policy "slots", beside the policy "starts" where several budgets are possible.
var slotWays = map[string]func(l *throttle.Limiters, ctx context.Context) (*throttle.Permit, error){
	"Limiter": func(l *throttle.Limiters, ctx context.Context) (*throttle.Permit, error) {
		return must(l.Limiter("slots")).Acquire(ctx, "", 1)
	},
	"Limiter, at once": func(l *throttle.Limiters, ctx context.Context) (*throttle.Permit, error) {
		return must(l.Limiter("slots")).Acquire(throttle.WithMaxWait(ctx, throttle.NoWait), "", 1)
	},
	"Limiters": func(l *throttle.Limiters, ctx context.Context) (*throttle.Permit, error) {
		return l.Acquire(ctx, throttle.Demand{Policy: "slots"}, throttle.Demand{Policy: "starts"})
	},
	"Limiters, at once": func(l *throttle.Limiters, ctx context.Context) (*throttle.Permit, error) {
		return l.Acquire(throttle.WithMaxWait(ctx, throttle.NoWait), throttle.Demand{Policy: "slots"}, throttle.Demand{Policy: "starts"})
	},
	"by a request": func(l *throttle.Limiters, ctx context.Context) (*throttle.Permit, error) {
		r := must(http.NewRequestWithContext(ctx, http.MethodGet, "https://example.com/", nil))
		return l.AcquireRequest(r)
	},
	"the first that is free": func(l *throttle.Limiters, ctx context.Context) (*throttle.Permit, error) {
		p, _, err := l.AcquireFirst(ctx, throttle.Alternative{Demands: []throttle.Demand{{Policy: "slots"}, {Policy: "starts"}}})
		return p, err
	},
	"Reserve": func(l *throttle.Limiters, ctx context.Context) (*throttle.Permit, error) {
		p, _, err := l.Reserve(ctx, nil, throttle.Demand{Policy: "slots"}, throttle.Demand{Policy: "starts"})
		return p, err
	},
}

// newSlots returns limiters with two slots, and two starts a second.
func newSlots(s throttle.Store, observe func(context.Context, throttle.Event)) *throttle.Limiters {
	return must(throttle.NewLimiters(throttle.Config{Store: s, Observe: observe, Policies: []throttle.Policy{
		{Name: "slots", Match: "example.com/", Limit: throttle.Concurrency(2)},
		{Name: "starts", Match: "example.com/", Limit: throttle.SlidingWindow(2, time.Second), Jitter: -1},
	}}))
}

// TestPermitEndsWithItsContext: when the context of Acquire ends, the slot is given back, once, and the start stays.
func TestPermitEndsWithItsContext(t *testing.T) {
	for name, acquire := range slotWays {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l := newSlots(memstore.New(), nil)
				require.NoError(t, second(l.Acquire(t.Context(), throttle.Demand{Policy: "slots"}))) // of other work, to the end
				ctx, cancel := context.WithCancel(t.Context())
				permit, err := acquire(l, ctx)
				require.NoError(t, err)
				require.Equal(t, 2, used(t, l, "slots", ""))

				cancel()
				synctest.Wait()
				require.Equal(t, 1, used(t, l, "slots", ""))

				permit.Release()
				permit.Cancel()
				synctest.Wait()
				require.Equal(t, 1, used(t, l, "slots", ""), "the slot of other work is not given back")
			})
		})
	}
}

// TestPermitOfAContextThatHasEnded: what is done with a permit whose context has ended.
func TestPermitOfAContextThatHasEnded(t *testing.T) {
	both := []throttle.Demand{{Policy: "slots"}, {Policy: "starts"}}
	for name, c := range map[string]struct {
		do            func(t *testing.T, p *throttle.Permit)
		slots, starts int
	}{
		"nothing": {func(*testing.T, *throttle.Permit) {}, 0, 1},
		"Cancel":  {func(_ *testing.T, p *throttle.Permit) { p.Cancel() }, 0, 0},
		"Settle": {func(t *testing.T, p *throttle.Permit) {
			require.NoError(t, p.TellBudget(t.Context(), "starts", "", throttle.Answer{}.WithCost(2)))
			p.Release()
		}, 0, 2},
		"Renew": {func(t *testing.T, p *throttle.Permit) {
			require.ErrorContains(t, p.Renew(t.Context()), "its context has ended")
			p.Release()
		}, 0, 0},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l := newSlots(memstore.New(), nil)
				ctx, cancel := context.WithCancel(t.Context())
				permit, err := l.Acquire(ctx, both...)
				require.NoError(t, err)
				cancel()
				synctest.Wait()

				c.do(t, permit)
				require.Equal(t, []int{c.slots, c.starts}, []int{used(t, l, "slots", ""), used(t, l, "starts", "")})
			})
		})
	}
}

// TestPermitThatIsRenewed: a renewed permit ends with the context of Acquire, too.
func TestPermitThatIsRenewed(t *testing.T) {
	for name, pauses := range map[string]bool{"fresh": false, "anew": true} {
		for way, acquire := range slotWays {
			t.Run(name+", "+way, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					l := newSlots(memstore.New(), nil)
					ctx, cancel := context.WithCancel(t.Context())
					permit, err := acquire(l, ctx)
					require.NoError(t, err)
					if pauses {
						require.NoError(t, must(l.Limiter("slots")).Pause(t.Context(), "", time.Second))
					}
					require.NoError(t, permit.Renew(throttle.WithMaxWait(t.Context(), throttle.Forever)))
					require.Equal(t, 1, used(t, l, "slots", ""))

					cancel()
					synctest.Wait()
					require.Zero(t, used(t, l, "slots", ""))
					permit.Release()
					require.Zero(t, used(t, l, "slots", ""))
				})
			})
		}
	}
}

// TestWaitOnly: a context that bounds the wait alone ends the wait, and does not end the permit.
func TestWaitOnly(t *testing.T) {
	for name, acquire := range slotWays {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l := newSlots(memstore.New(), nil)
				ctx, cancel := context.WithTimeout(t.Context(), time.Second)
				permit, err := acquire(l, throttle.WithWaitOnly(ctx))
				require.NoError(t, err)
				cancel()
				synctest.Wait()
				require.Equal(t, 1, used(t, l, "slots", ""))

				require.NoError(t, permit.Renew(t.Context()))
				permit.Release()
				require.Zero(t, used(t, l, "slots", ""))
			})
		})
	}
}

// TestReleaseAsTheContextEnds: Release, Cancel and the end of the context give a slot back once, whoever is first.
func TestReleaseAsTheContextEnds(t *testing.T) {
	releases := &countingReleases{Store: memstore.New()}
	l := newSlots(releases, nil)
	kept, err := l.Acquire(context.Background(), throttle.Demand{Policy: "slots"})
	require.NoError(t, err)
	defer runtime.KeepAlive(kept) // a dropped permit would give its slot back

	for i := range 300 {
		ctx, cancel := context.WithCancel(t.Context())
		permit, err := l.Acquire(ctx, throttle.Demand{Policy: "slots"})
		require.NoError(t, err)
		var all sync.WaitGroup
		all.Go(cancel)
		all.Go(permit.Release)
		if i%2 == 0 {
			all.Go(permit.Cancel)
		}
		all.Wait()
		require.Eventually(t, func() bool { return releases.count() == i+1 }, hangs, time.Millisecond)
	}
	require.Equal(t, 1, used(t, l, "slots", ""))
}

// A countingReleases counts how often something was given back.
type countingReleases struct {
	throttle.Store
	mu sync.Mutex
	n  int
}

func (s *countingReleases) count() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.n
}

func (s *countingReleases) Release(b *store.Booking, g store.Grant) {
	s.Store.Release(b, g)
	s.mu.Lock()
	s.n++
	s.mu.Unlock()
}

func (s *countingReleases) Cancel(b *store.Booking, g store.Grant) {
	s.Store.Cancel(b, g)
	s.mu.Lock()
	s.n++
	s.mu.Unlock()
}

// TestDroppedPermit: the slot of a permit that the program has dropped, under a context that never ends, is given back,
// and the observer is told once.
func TestDroppedPermit(t *testing.T) {
	for name, acquire := range slotWays {
		t.Run(name, func(t *testing.T) {
			var seen events
			l := newSlots(memstore.New(), seen.observe)
			for range 2 {
				require.NoError(t, second(acquire(l, context.Background())))
			}
			require.Eventually(t, func() bool {
				runtime.GC()
				return used(t, l, "slots", "") == 0 && len(seen.only(throttle.EventDropped)) == 2
			}, hangs, time.Millisecond)
			require.Equal(t, "slots", seen.only(throttle.EventDropped)[0].Policy)
			require.Equal(t, throttle.Concurrency(2), seen.only(throttle.EventDropped)[0].Limit)
		})
	}
}

// TestReleasedPermitIsNotDropped: a permit that was released is not told of, and its memory is free.
func TestReleasedPermitIsNotDropped(t *testing.T) {
	for name, acquire := range slotWays {
		t.Run(name, func(t *testing.T) {
			var seen events
			l := newSlots(memstore.New(), seen.observe)
			for i, end := range []func(*throttle.Permit){(*throttle.Permit).Release, (*throttle.Permit).Cancel} {
				permit, err := acquire(l, context.Background())
				require.NoError(t, err)
				end(permit)
				require.Zero(t, used(t, l, "slots", ""), i)
			}
			for range 3 {
				runtime.GC()
			}
			require.Empty(t, seen.only(throttle.EventDropped))
		})
	}
}

// TestPermitsOfOneContext: a context that lives for long keeps nothing of permits that were released.
func TestPermitsOfOneContext(t *testing.T) {
	ctx := &countedContext{Context: t.Context(), done: make(chan struct{})}
	l := newSlots(memstore.New(), nil)
	for range 100 {
		permit, err := l.Acquire(ctx, throttle.Demand{Policy: "slots"})
		require.NoError(t, err)
		permit.Release()
	}
	require.Equal(t, 100, ctx.stopped)
}

// A countedContext counts how many functions wait for its end no more.
type countedContext struct {
	context.Context
	done    chan struct{}
	stopped int
}

func (c *countedContext) Done() <-chan struct{} { return c.done }

// AfterFunc is what context.AfterFunc asks a context for.
func (c *countedContext) AfterFunc(func()) func() bool {
	return func() bool {
		c.stopped++
		return true
	}
}

// second returns the second of two values.
func second(_ *throttle.Permit, err error) error { return err }

// TestCostsHaveOneMeaning: wherever a caller says a cost, 0 is the default of 1, Free is nothing, and no other cost is negative.
func TestCostsHaveOneMeaning(t *testing.T) {
	ways := map[string]func(l *throttle.Limiters, cost int) (*throttle.Permit, error){
		"Limiter": func(l *throttle.Limiters, cost int) (*throttle.Permit, error) {
			return must(l.Limiter("p")).Acquire(t.Context(), "", cost)
		},
		"Limiter, at once": func(l *throttle.Limiters, cost int) (*throttle.Permit, error) {
			return must(l.Limiter("p")).Acquire(throttle.WithMaxWait(t.Context(), throttle.NoWait), "", cost)
		},
		"Limiters": func(l *throttle.Limiters, cost int) (*throttle.Permit, error) {
			return l.Acquire(t.Context(), throttle.Demand{Policy: "p", Cost: cost})
		},
		"Limiters, at once": func(l *throttle.Limiters, cost int) (*throttle.Permit, error) {
			return l.Acquire(throttle.WithMaxWait(t.Context(), throttle.NoWait), throttle.Demand{Policy: "p", Cost: cost})
		},
		"the first that is free": func(l *throttle.Limiters, cost int) (*throttle.Permit, error) {
			p, _, err := l.AcquireFirst(t.Context(), throttle.Alternative{Demands: []throttle.Demand{{Policy: "p", Cost: cost}}})
			return p, err
		},
		"Reserve": func(l *throttle.Limiters, cost int) (*throttle.Permit, error) {
			p, _, err := l.Reserve(t.Context(), nil, throttle.Demand{Policy: "p", Cost: cost})
			return p, err
		},
	}
	for name, acquire := range ways {
		for _, kind := range []throttle.Limit{throttle.PerHour(10), throttle.Concurrency(10)} {
			for cost, want := range map[int]int{0: 1, 1: 1, 3: 3, throttle.Free: 0} {
				l := must(throttle.NewLimiters(throttle.Config{Store: memstore.New(), Policies: []throttle.Policy{{Name: "p", Limit: kind}}}))
				permit, err := acquire(l, cost)
				require.NoError(t, err, name)
				require.Equal(t, want, used(t, l, "p", ""), "%s, %v, a cost of %d", name, kind, cost)

				permit.Cancel()
				require.Zero(t, used(t, l, "p", ""), "%s, %v, a cost of %d", name, kind, cost)
			}

			for _, cost := range []int{-1, -2, throttle.Free + 1} {
				l := must(throttle.NewLimiters(throttle.Config{Store: memstore.New(), Policies: []throttle.Policy{{Name: "p", Limit: kind}}}))
				_, err := acquire(l, cost)
				require.EqualError(t, err, `throttle: policy "p": cost: is negative: use 1 or more, or throttle.Free`, name)
				require.Zero(t, used(t, l, "p", ""))
			}
		}
	}
}

// TestCostsThatAreResults: what a function returns, and what Tell is told, is a result, so 0 is as free as Free.
// A result of -1 is refused as before: a function that does not know a cost does not make the request free.
func TestCostsThatAreResults(t *testing.T) {
	for cost, want := range map[int]int{0: 0, throttle.Free: 0, 1: 1, 4: 4} {
		l := must(throttle.NewLimiters(throttle.Config{Store: memstore.New(), Policies: []throttle.Policy{
			{Name: "p", Match: "example.com/", Limit: throttle.PerHour(10), Cost: func(*http.Request) int { return cost }},
		}}))
		require.NoError(t, second(l.AcquireRequest(get(t, "https://example.com/"))))
		require.Equal(t, want, used(t, l, "p", ""), cost)

		permit, err := l.Acquire(t.Context(), throttle.Demand{Policy: "p", Cost: 3})
		require.NoError(t, err)
		require.NoError(t, permit.Tell(t.Context(), throttle.Answer{}.WithCost(cost)))
		require.Equal(t, 2*want, used(t, l, "p", ""), cost)
		var mistake *throttle.ConfigError
		require.ErrorAs(t, permit.Tell(t.Context(), throttle.Answer{}.WithCost(-1)), &mistake)
		require.Equal(t, "p", mistake.Policy)
	}
}

// A deafStore books, and answers no other call.
type deafStore struct{ throttle.Store }

func (deafStore) unanswered(ctx context.Context) error {
	<-ctx.Done()
	return context.Cause(ctx)
}

func (s deafStore) Pause(ctx context.Context, _ store.Charge, _ time.Duration) error {
	return s.unanswered(ctx)
}

func (s deafStore) Resume(ctx context.Context, _ store.Charge) error { return s.unanswered(ctx) }

func (s deafStore) Status(ctx context.Context, _ store.Charge) (store.Status, error) {
	return store.Status{}, s.unanswered(ctx)
}

func (s deafStore) Refuse(ctx context.Context, _ store.Charge, _ store.Refusal) (from, to float64, err error) {
	return 0, 0, s.unanswered(ctx)
}

func (s deafStore) Settle(ctx context.Context, _ *store.Booking, _ store.Grant, _ []int) error {
	return s.unanswered(ctx)
}

// TestCallsThatNobodyBounded: a call that tells the store something, or asks it, ends after a minute if nobody bounded it.
func TestCallsThatNobodyBounded(t *testing.T) {
	calls := map[string]func(ctx context.Context, l *throttle.Limiters) error{
		"Pause": func(ctx context.Context, l *throttle.Limiters) error {
			return must(l.Limiter("p")).Pause(ctx, "", time.Second)
		},
		"Resume": func(ctx context.Context, l *throttle.Limiters) error { return must(l.Limiter("p")).Resume(ctx, "") },
		"Status": func(ctx context.Context, l *throttle.Limiters) error {
			_, err := must(l.Limiter("p")).Status(ctx, "")
			return err
		},
		"Statuses": func(ctx context.Context, l *throttle.Limiters) error {
			_, err := l.Statuses(ctx)
			return err
		},
		"a cost": func(ctx context.Context, l *throttle.Limiters) error {
			return must(l.Acquire(ctx, throttle.Demand{Policy: "p", Cost: 3})).Tell(ctx, throttle.Answer{}.WithCost(2))
		},
		"a refusal": func(ctx context.Context, l *throttle.Limiters) error {
			return must(l.Acquire(ctx, throttle.Demand{Policy: "p"})).Tell(ctx, throttle.Refused(time.Hour))
		},
	}
	bounds := map[string]struct {
		of   func(context.Context) (context.Context, context.CancelFunc)
		want time.Duration
	}{
		"nothing": {func(ctx context.Context) (context.Context, context.CancelFunc) { return ctx, func() {} }, time.Minute},
		"a deadline": {func(ctx context.Context) (context.Context, context.CancelFunc) {
			return context.WithTimeout(ctx, 2*time.Minute)
		}, 2 * time.Minute},
		"MaxWait": {func(ctx context.Context) (context.Context, context.CancelFunc) {
			return throttle.WithMaxWait(ctx, 5*time.Second), func() {}
		}, 5 * time.Second},
		"NoWait": {func(ctx context.Context) (context.Context, context.CancelFunc) {
			return throttle.WithMaxWait(ctx, throttle.NoWait), func() {}
		}, time.Minute},
		"forever": {func(ctx context.Context) (context.Context, context.CancelFunc) {
			ctx, cancel := context.WithCancel(throttle.WithMaxWait(ctx, throttle.Forever))
			time.AfterFunc(time.Hour, cancel)
			return ctx, cancel
		}, time.Hour},
	}
	for name, call := range calls {
		for bound, c := range bounds {
			t.Run(name+", "+bound, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					l := must(throttle.NewLimiters(throttle.Config{Store: deafStore{memstore.New()}, Policies: []throttle.Policy{{Name: "p", Limit: throttle.PerHour(10)}}}))
					ctx, cancel := c.of(t.Context())
					defer cancel()
					begin := time.Now()
					var failed *throttle.StoreError
					require.ErrorAs(t, call(ctx, l), &failed)
					require.Equal(t, c.want, time.Since(begin))
				})
			})
		}
	}
}

// A silentStore answers no call until it speaks.
type silentStore struct {
	*absentStore
	speaks chan struct{} // closed: it does
	asked  int           // how often, meanwhile
}

func (s *silentStore) Book(ctx context.Context, b *store.Booking) (store.Grant, error) {
	s.asked++
	select {
	case <-s.speaks:
		return s.absentStore.Book(ctx, b)
	case <-ctx.Done():
		return store.Grant{}, context.Cause(ctx)
	}
}

var (
	counted = throttle.Policy{Name: "counted", Match: "example.com/", Limit: throttle.PerHour(1), Shadow: true}
	slots   = throttle.Policy{Name: "slots", Match: "example.com/", Limit: throttle.Concurrency(1), Shadow: true}
)

// usedOf returns how much of a policy's budget a store has counted.
func usedOf(t *testing.T, store throttle.Store, p throttle.Policy) int {
	t.Helper()
	p.Match = ""
	l := must(throttle.NewLimiter(store, p))
	return must(l.Status(t.Context(), "")).Used
}

// TestP12_ShadowsDoNotWait: requests and work whose policies are all in shadow mode start at once while
// the store is away, and are counted again afterwards.
func TestP12_ShadowsDoNotWait(t *testing.T) {
	ways := map[string]func(*testing.T, throttle.Config) func() error{
		"transport": func(t *testing.T, c throttle.Config) func() error {
			tr := must(throttle.New(c))
			return func() error { return send(t, tr, get(t, home)) }
		},
		"limiter": func(t *testing.T, c throttle.Config) func() error {
			l := must(must(throttle.New(c)).Limiter("counted"))
			return func() error {
				p, err := l.Acquire(t.Context(), "", 1)
				if err == nil {
					err = errors.Join(p.Renew(t.Context()), p.Tell(t.Context(), throttle.Answer{}.WithCost(1)))
					p.Release()
				}
				return err
			}
		},
		"limiters": func(t *testing.T, c throttle.Config) func() error {
			c.Base = nil
			l := must(throttle.NewLimiters(c))
			return func() error {
				p, err := l.Acquire(t.Context(), throttle.Demand{Policy: "counted"}, throttle.Demand{Policy: "slots"})
				if err == nil {
					err = p.Renew(t.Context())
					p.Release()
				}
				return err
			}
		},
	}
	for name, way := range ways {
		for _, maxWait := range []time.Duration{0, -1, time.Minute} {
			t.Run(name+" "+maxWait.String(), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					store := absent([2]time.Duration{time.Second, time.Minute})
					var failures atomic.Int32
					run := way(t, throttle.Config{
						Store: store, MaxWait: maxWait, Base: answer(429, "", "Retry-After", "5"), Policies: []throttle.Policy{counted, slots},
						Observe: func(_ context.Context, e throttle.Event) {
							if e.Kind == throttle.EventStoreFailed {
								failures.Add(1)
							}
						},
					})
					for i := range 3 {
						require.NoError(t, run())
						require.Equal(t, i+1, usedOf(t, store, counted))
					}
					time.Sleep(10 * time.Second)
					begin := time.Now()
					for range 100 {
						require.NoError(t, run())
					}
					require.Zero(t, time.Since(begin))
					require.Equal(t, 3, usedOf(t, store, counted))
					require.EqualValues(t, 1, failures.Load(), "one caller asked")
					time.Sleep(time.Minute)
					require.NoError(t, run())
					require.Equal(t, 4, usedOf(t, store, counted))
					require.Zero(t, usedOf(t, store, slots), "no slot is left taken")
				})
			})
		}
	}
}

// TestP12_ShadowsHardlyWaitForSilence: while the store says nothing at all, one caller in a second and a
// half waits for half a second, and no other one.
func TestP12_ShadowsHardlyWaitForSilence(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &silentStore{absent(), make(chan struct{}), 0}
		base := newStarts()
		tr := must(throttle.New(throttle.Config{MaxWait: throttle.Forever, Store: store, Base: base, Policies: everywhere(counted)}))
		var slow, all int
		for begin := time.Now(); time.Since(begin) < 30*time.Second; all++ {
			sent := time.Now()
			require.NoError(t, send(t, tr, get(t, home)))
			if d := time.Since(sent); d > 0 {
				require.Equal(t, 500*time.Millisecond, d)
				slow++
			}
			time.Sleep(10 * time.Millisecond)
		}
		require.Equal(t, slow, store.asked)
		require.LessOrEqual(t, slow, 20)
		require.Greater(t, all, 1900)
		close(store.speaks)
		time.Sleep(time.Second)
		require.NoError(t, send(t, tr, get(t, home)))
		require.Equal(t, 1, usedOf(t, store.absentStore, counted))
	})
}

// TestP12_AShadowBesideALimitWaits: a request that a limit may hold waits for the store, and a context
// that has ended ends a request that is only counted, too.
func TestP12_AShadowBesideALimitWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := absent([2]time.Duration{0, time.Minute})
		tr := must(throttle.New(throttle.Config{MaxWait: throttle.Forever, Store: store, Base: answer(200, ""), Policies: everywhere(counted, onePerSecond)}))
		begin := time.Now()
		require.NoError(t, send(t, tr, get(t, home)))
		require.Equal(t, time.Minute, time.Since(begin))

		silent := &silentStore{absent(), make(chan struct{}), 0}
		tr = must(throttle.New(throttle.Config{MaxWait: throttle.Forever, Store: silent, Base: answer(200, ""), Policies: everywhere(counted)}))
		ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		defer cancel()
		r, err := http.NewRequestWithContext(ctx, http.MethodGet, home, nil)
		require.NoError(t, err)
		begin = time.Now()
		require.ErrorIs(t, send(t, tr, r), context.DeadlineExceeded)
		require.Equal(t, 100*time.Millisecond, time.Since(begin))
	})
}
