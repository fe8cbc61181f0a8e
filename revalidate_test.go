package throttle_test

import (
	"context"
	"errors"
	"net/http"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fleetthrottle/throttle"
)

// A watchSpy counts the watches of a store, and may hear no news or answer
// for it.
type watchSpy struct {
	*spyStore
	noNews  bool
	confirm func(context.Context) (bool, error)

	mu       sync.Mutex
	begun    int
	going    map[*spiedWatch]bool
	maxWaits []time.Duration // of callers that wanted a start confirmed
}

func newWatchSpy() *watchSpy {
	return &watchSpy{spyStore: newSpy(), going: make(map[*spiedWatch]bool)}
}

func (s *watchSpy) Watch(b *throttle.Booking, g throttle.Grant, news chan<- struct{}) throttle.Watch {
	if s.noNews {
		news = nil
	}
	w := &spiedWatch{s.spyStore.Watch(b, g, news), b, s}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.begun++
	s.going[w] = true
	return w
}

// asked returns how often a start was confirmed, and over how many was watched.
func (s *watchSpy) asked() (confirms, begun int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.maxWaits), s.begun
}

// allStopped wants that there were some watches and that none goes on.
func (s *watchSpy) allStopped(t *testing.T) {
	t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	require.Positive(t, s.begun)
	require.Empty(t, s.going)
}

type spiedWatch struct {
	throttle.Watch
	booking *throttle.Booking
	spy     *watchSpy
}

func (w *spiedWatch) Confirm(ctx context.Context, maxWait time.Duration) (bool, error) {
	w.spy.mu.Lock()
	w.spy.maxWaits = append(w.spy.maxWaits, maxWait)
	confirm := w.spy.confirm
	w.spy.mu.Unlock()
	if confirm != nil {
		return confirm(ctx)
	}
	return w.Watch.Confirm(ctx, maxWait)
}

func (w *spiedWatch) Stop() {
	w.spy.mu.Lock()
	delete(w.spy.going, w)
	w.spy.mu.Unlock()
	w.Watch.Stop()
}

// TestP15_EveryWatchIsStopped on every way that a request can go.
func TestP15_EveryWatchIsStopped(t *testing.T) {
	var errBroken = errors.New("broken")
	for _, c := range []struct {
		name string
		base http.RoundTripper
		do   func(t *testing.T, store *watchSpy, tr *throttle.Transport, cancel context.CancelFunc)
	}{
		{"all is well", answer(200, ""), nil},
		{"all is well, with a dial", newDialer(always(ms)), nil},
		{"the base fails", base(func(*http.Request) (*http.Response, error) { return nil, errBroken }), nil},
		{"the base panics", base(func(*http.Request) (*http.Response, error) { panic("base") }), nil},
		{"the base fails while it dials", newDialer(always(time.Hour)), func(_ *testing.T, _ *watchSpy, _ *throttle.Transport, cancel context.CancelFunc) {
			time.Sleep(2 * time.Second)
			cancel()
		}},
		{"the caller leaves", answer(200, ""), func(_ *testing.T, _ *watchSpy, _ *throttle.Transport, cancel context.CancelFunc) { cancel() }},
		{"refused after the news", answer(200, ""), func(t *testing.T, store *watchSpy, tr *throttle.Transport, _ context.CancelFunc) {
			require.NoError(t, store.Pause(t.Context(), tr.Explain(get(t, home))[0], time.Hour))
		}},
		{"a later start after the news", answer(200, ""), func(t *testing.T, store *watchSpy, tr *throttle.Transport, _ context.CancelFunc) {
			require.NoError(t, store.Pause(t.Context(), tr.Explain(get(t, home))[0], 5*time.Second))
		}},
		{"nobody knows", answer(200, ""), func(_ *testing.T, store *watchSpy, _ *throttle.Transport, _ context.CancelFunc) {
			store.mu.Lock()
			defer store.mu.Unlock()
			store.confirm = func(context.Context) (bool, error) { return false, errBroken }
		}},
		{"new policies", answer(200, ""), func(t *testing.T, _ *watchSpy, tr *throttle.Transport, _ context.CancelFunc) {
			require.NoError(t, tr.SetPolicies([]throttle.Policy{twoPerSecond, onePerHour}))
			synctest.Wait()
			require.NoError(t, tr.SetPolicies([]throttle.Policy{twoPerSecond}))
		}},
		{"no policies", answer(200, ""), func(t *testing.T, _ *watchSpy, tr *throttle.Transport, _ context.CancelFunc) {
			require.NoError(t, tr.SetPolicies(nil))
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				store := newWatchSpy()
				tr := must(throttle.New(throttle.Config{Store: store, Base: c.base, Policies: []throttle.Policy{twoPerSecond}}))
				ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
				defer cancel()
				var all sync.WaitGroup
				for range 4 {
					r := get(t, home).WithContext(ctx)
					all.Go(func() {
						defer func() { _ = recover() }()
						if resp, err := tr.RoundTrip(r); err == nil {
							require.NoError(t, resp.Body.Close())
						}
					})
					synctest.Wait()
				}
				if c.do != nil {
					c.do(t, store, tr, cancel)
				}
				all.Wait()
				store.allStopped(t)
				time.Sleep(time.Hour)
				require.Zero(t, status(t, store, must(throttle.New(throttle.Config{Store: store,
					Policies: []throttle.Policy{twoPerSecond}})), get(t, home)).Waiting)
			})
		})
	}
}

// TestP15_TheWatchEndsWithTheAnswersHeaders where the base tells nothing, and not
// with its body.
func TestP15_TheWatchEndsWithTheAnswersHeaders(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newWatchSpy()
		tr := must(throttle.New(throttle.Config{Store: store, Base: answer(200, "long"), Policies: []throttle.Policy{twoPerSecond}}))
		line(t, tr, 1, home)
		resp, err := tr.RoundTrip(get(t, home))
		require.NoError(t, err)
		store.allStopped(t)
		require.NoError(t, resp.Body.Close())
	})
}

// TestP15_TheWatchEndsWithTheRequestsHeaders and not with its answer.
func TestP15_TheWatchEndsWithTheRequestsHeaders(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store, d := newWatchSpy(), newDialer(always(ms))
		d.written.then = func(r *http.Request) (*http.Response, error) {
			time.Sleep(time.Minute)
			return answer(200, "")(r)
		}
		tr := must(throttle.New(throttle.Config{Store: store, Base: d, Policies: []throttle.Policy{twoPerSecond}}))
		s := fallAsleep(t, tr, 2, patiently(t))
		time.Sleep(10 * time.Second)
		store.allStopped(t)
		s.all.Wait()
	})
}

// TestP15_LimiterWatchesAreStopped too.
func TestP15_LimiterWatchesAreStopped(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newWatchSpy()
		l := must(throttle.NewLimiter(store, twoPerSecond))
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
		defer cancel()
		var all sync.WaitGroup
		for range 4 {
			all.Go(func() { _, _ = l.Acquire(ctx, "", 1) })
			synctest.Wait()
		}
		time.Sleep(800 * ms)
		store.mu.Lock()
		going := len(store.going)
		store.mu.Unlock()
		require.Equal(t, 2, going, "one need not wait, one has waited")
		require.NoError(t, l.Pause(t.Context(), "", time.Second))
		synctest.Wait()
		require.NoError(t, l.Pause(t.Context(), "", time.Hour))
		all.Wait()
		store.allStopped(t)
		st, err := l.Status(t.Context(), "")
		require.NoError(t, err)
		require.Zero(t, st.Waiting)
	})
}

// TestP11_ACallerWithoutNewsAsks: the store's news are all lost.
func TestP11_ACallerWithoutNewsAsks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store, s := newWatchSpy(), newStarts()
		store.noNews = true
		tr := must(throttle.New(throttle.Config{Store: store, Base: s, Policies: []throttle.Policy{twoPerSecond}}))
		asleep := fallAsleep(t, tr, 5, patiently(t))
		time.Sleep(600 * ms)
		require.NoError(t, store.Pause(t.Context(), tr.Explain(get(t, home))[0], time.Minute))
		asleep.all.Wait()
		require.Equal(t, []time.Duration{0, 500 * ms, 60600 * ms}, s.seen()[:3])
		confirms, _ := store.asked()
		require.Equal(t, 1+1+3, confirms, "each at its start, and one of those at its second; two had none yet")
	})
}

// TestP11_AskingKeepsMaxWait is what is left of it.
func TestP11_AskingKeepsMaxWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newWatchSpy()
		tr := must(throttle.New(throttle.Config{Store: store, Base: answer(200, ""), MaxWait: 10 * time.Second,
			Policies: []throttle.Policy{twoPerSecond}}))
		line(t, tr, 2, home)
		require.Equal(t, []time.Duration{9500 * ms}, store.maxWaits)
	})
}

// TestP11_NobodyKnows: a start that cannot be confirmed is given back.
func TestP11_NobodyKnows(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store, s, down := newWatchSpy(), newStarts(), errors.New("down")
		store.confirm = func(context.Context) (bool, error) { return true, down }
		tr := must(throttle.New(throttle.Config{Store: store, Base: s, Policies: []throttle.Policy{onePerHour}}))
		asleep := fallAsleep(t, tr, 2, patiently(t))
		asleep.all.Wait()
		var failed *throttle.StoreError
		require.ErrorAs(t, asleep.left[1].err, &failed)
		require.ErrorIs(t, asleep.left[1].err, down)
		require.Equal(t, []time.Duration{0}, s.seen())
		require.Equal(t, throttle.Status{Limit: onePerHour.Limit}, status(t, store, tr, get(t, home)))
	})
}

// TestP11_TheCallerLeavesWhileItAsks: the store does not answer.
func TestP11_TheCallerLeavesWhileItAsks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store, s := newWatchSpy(), newStarts()
		store.confirm = func(ctx context.Context) (bool, error) {
			<-ctx.Done()
			return false, context.Cause(ctx)
		}
		tr := must(throttle.New(throttle.Config{Store: store, Base: s, Policies: []throttle.Policy{twoPerSecond}}))
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		asleep := fallAsleep(t, tr, 2, func(int) context.Context { return ctx })
		asleep.all.Wait()
		require.ErrorIs(t, asleep.left[1].err, context.DeadlineExceeded)
		require.Equal(t, 10*time.Second, asleep.left[1].at)
		require.Equal(t, []time.Duration{0}, s.seen())
	})
}

// TestP11_AWordThatIsOldIsConfirmed: the store was away for four seconds. What it
// answers then, and what comes soon after, may have been decided long ago.
func TestP11_AWordThatIsOldIsConfirmed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store, s := newWatchSpy(), newStarts()
		age := 4 * time.Second
		store.change = func(g *throttle.Grant) { g.Age, age = age, 0 }
		p := twoPerSecond
		p.Limit = throttle.PerHour(2)
		tr := must(throttle.New(throttle.Config{Store: store, Base: s, Policies: []throttle.Policy{p}}))
		line(t, tr, 1, home)
		confirms, _ := store.asked()
		require.Equal(t, 1, confirms, "its answer was four seconds old")
		line(t, tr, 1, home)
		confirms, _ = store.asked()
		require.Equal(t, 1, confirms, "its answer was not")

		require.NoError(t, tr.SetPolicies([]throttle.Policy{{Name: "half", Limit: throttle.LeakyBucket(2, time.Second), Jitter: -1}}))
		line(t, tr, 2, home)
		confirms, _ = store.asked()
		require.Equal(t, 2, confirms, "half a second is long, though the store was away for four once")
	})
}
