package throttle_test

import (
	"context"
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

// A queue is callers of a limiter that came one after the other.
type queue struct {
	all   sync.WaitGroup
	mu    sync.Mutex
	begin time.Time
	at    []time.Duration // when each started, or left; 0 at first
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

// took is how long one caller waits for a start.
func took(t *testing.T, l *throttle.Limiter, ctx context.Context) time.Duration {
	t.Helper()
	begin := time.Now()
	require.NoError(t, acquired(l.Acquire(ctx, "", 1)))
	return time.Since(begin)
}

// TestP5_HighPassesAThousandLow: what Low leaves free is there at once.
func TestP5_HighPassesAThousandLow(t *testing.T) {
	for _, limit := range []throttle.Limit{throttle.PerSecond(20), throttle.FixedWindow(20, time.Second), throttle.TokenBucket(20, time.Second, 20)} {
		t.Run(limit.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := exactly(limit)
				p.Headroom = lowLeaves(0.25)
				l := newLimiter(t, memstore.New(), p)
				ctx, cancel := context.WithCancel(throttle.WithPriority(t.Context(), throttle.Low))
				low := queued(l, 1000, ctx)
				high := throttle.WithPriority(t.Context(), throttle.High)
				time.Sleep(10300 * ms)
				for range 5 {
					require.NoError(t, acquired(l.TryAcquire(high, "", 1)))
				}
				require.LessOrEqual(t, took(t, l, high), time.Second, "and more of them go before the waiters")
				cancel()
				low.all.Wait()
			})
		})
	}
}

// TestP5_AStaleStartGoesNext and not behind the 200 waiters: another caller has taken
// what it gave back.
func TestP5_AStaleStartGoesNext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var first http.Request
		store, d := memstore.New(), newDialer(nil)
		d.dial = func(r *http.Request) time.Duration {
			if r.URL.Path == "/first" {
				return 100 * ms
			}
			return 0
		}
		var at time.Duration
		tr := must(throttle.New(throttle.Config{Store: store, Policies: []throttle.Policy{onePerSecond},
			Base: base(func(r *http.Request) (*http.Response, error) {
				resp, err := d.RoundTrip(r)
				if r.URL.Path == "/first" && err == nil {
					at = d.written.seen()[len(d.written.seen())-1]
				}
				return resp, err
			})}))
		elsewhere(t, store, tr, 50*ms)
		first = *get(t, home+"first")
		var one sync.WaitGroup
		one.Go(func() { _ = send(t, tr, &first) })
		synctest.Wait()
		all := crowd(t, tr, 200)
		one.Wait()
		all.Wait()
		require.Equal(t, 2*spanOfOne, at)
		require.Equal(t, 202*spanOfOne, d.written.seen()[200])
	})
}

// TestP5_AStaleStartIsTakenAnewAtOnce where nobody else took what it gave back: it does
// not go behind those whose starts are booked already.
func TestP5_AStaleStartIsTakenAnewAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const late = 50
		d := newDialer(nil)
		d.dial = func(r *http.Request) time.Duration {
			if r.URL.Path == "/"+strconv.Itoa(late) {
				return 100 * ms
			}
			return 0
		}
		d.written.then = func(r *http.Request) (*http.Response, error) {
			return answer(200, "", "X-At", time.Since(d.written.begin).String())(r)
		}
		tr := newTransport(t, d, throttle.Policy{Name: "p", Limit: throttle.PerSecond(20)})
		var all sync.WaitGroup
		at := make([]time.Duration, 100)
		for i := range at {
			r := get(t, home+strconv.Itoa(i))
			all.Go(func() {
				resp, err := tr.RoundTrip(r)
				if err != nil {
					t.Error(err)
					return
				}
				at[i], _ = time.ParseDuration(resp.Header.Get("X-At"))
				_ = resp.Body.Close()
			})
			synctest.Wait()
		}
		all.Wait()
		require.Equal(t, 100*ms, at[late]-d.handed.seen()[late])
		require.LessOrEqual(t, most(at, time.Second), 20)
	})
}

// TestP5_StaleStartsKeepTheirOrder though they were all booked for one moment, and one
// of them leaves.
func TestP5_StaleStartsKeepTheirOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memstore.New()
		var mu sync.Mutex
		var order []string
		d := newDialer(nil)
		d.dial = func(r *http.Request) time.Duration { // the first callers are connected first
			i, _ := strconv.Atoi(r.URL.Path[1:])
			return 100*ms + time.Duration(i)*ms
		}
		d.written.then = func(r *http.Request) (*http.Response, error) {
			mu.Lock()
			defer mu.Unlock()
			order = append(order, r.URL.Path)
			return answer(200, "")(r)
		}
		limit := throttle.Policy{Name: "p", Limit: throttle.PerMinute(8)}
		tr := must(throttle.New(throttle.Config{Store: store, Base: d, Policies: []throttle.Policy{limit}}))
		charges := tr.Explain(get(t, home))
		charges[0].Cost = 8
		time.AfterFunc(50*ms, func() {
			_, _ = store.Book(context.Background(), &throttle.Booking{Charges: charges, MaxWait: -1})
		})
		var all sync.WaitGroup
		var want []string
		for i := range 8 {
			r := get(t, home+strconv.Itoa(i))
			if i == 3 {
				ctx, cancel := context.WithCancel(t.Context())
				time.AfterFunc(30*time.Second, cancel)
				r = r.WithContext(ctx)
			} else {
				want = append(want, r.URL.Path)
			}
			all.Go(func() { _ = send(t, tr, r) })
			synctest.Wait()
		}
		all.Wait()
		require.Equal(t, want, order)
	})
}

// TestP5_ARaisedLimitReachesThoseInLine: they keep their order, and the last of 1,000
// starts when it would in a perfect queue.
func TestP5_ARaisedLimitReachesThoseInLine(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const n, change = 1000, 10 * time.Second
		s := newStarts()
		var order []int
		s.then = func(r *http.Request) (*http.Response, error) {
			i, _ := strconv.Atoi(r.URL.Path[1:])
			s.mu.Lock()
			order = append(order, i)
			s.mu.Unlock()
			return answer(200, "")(r)
		}
		tr := newTransport(t, s, exactly(throttle.PerSecond(20)))
		after(t, change, tr, exactly(throttle.PerSecond(40)))
		var all sync.WaitGroup
		for i := range n {
			r := get(t, home+strconv.Itoa(i))
			all.Go(func() { _ = send(t, tr, r) })
			synctest.Wait()
		}
		all.Wait()
		at := s.seen()
		require.Len(t, at, n)
		near, _ := slices.BinarySearch(at, change+750*ms)
		require.True(t, slices.IsSorted(order[near:]), "in order, but for those that had a start already")
		of := make([]time.Duration, n)
		for i, caller := range order {
			of[caller] = at[i]
		}
		for i := range n - 1 {
			require.Less(t, of[i]-slices.Min(of[i+1:]), 800*ms, "caller %d", i)
		}
		require.LessOrEqual(t, most(at, time.Second), 40)
		before, _ := slices.BinarySearch(at, change)
		perfect := change + time.Duration(n-before)*time.Second/40
		require.InEpsilon(t, perfect, at[n-1], 0.08)
	})
}

// TestP11_AShortBanDelaysAllAlike: nobody loses its place, so it costs each the ban and
// the slow start.
func TestP11_AShortBanDelaysAllAlike(t *testing.T) {
	run := func(t *testing.T, ban time.Duration) (at []time.Duration) {
		synctest.Test(t, func(t *testing.T) {
			l := newLimiter(t, memstore.New(), exactly(throttle.PerSecond(20)))
			q := queued(l, 1000, t.Context())
			time.Sleep(5300 * ms)
			require.NoError(t, l.Pause(t.Context(), "", ban))
			q.all.Wait()
			at = q.at
		})
		return at
	}
	calm, banned := run(t, 0), run(t, time.Second)
	for i := range banned {
		require.LessOrEqual(t, banned[i]-calm[i], 4500*ms, "caller %d", i)
	}
	require.Empty(t, slices.DeleteFunc(slices.Clone(banned), func(at time.Duration) bool {
		return at <= 5300*ms || at >= 6300*ms
	}), "nothing starts during the ban")
	require.True(t, slices.IsSorted(banned), "in order")
}

// TestP3_ADeepLineUsesTheLimit: 99 % of it, while a thousand wait.
func TestP3_ADeepLineUsesTheLimit(t *testing.T) {
	for _, limit := range []throttle.Limit{
		throttle.PerSecond(20), throttle.SlidingWindow(100, 5*time.Second), throttle.FixedWindow(20, time.Second),
		throttle.LeakyBucket(20, time.Second), throttle.TokenBucket(20, time.Second, 5),
	} {
		t.Run(limit.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				q := queued(newLimiter(t, memstore.New(), exactly(limit)), 1000, t.Context())
				q.all.Wait()
				require.True(t, slices.IsSorted(q.at), "in order")
				started := 0
				for _, at := range q.at {
					if at >= 5*time.Second && at < 45*time.Second {
						started++
					}
				}
				require.GreaterOrEqual(t, started, 40*20*99/100)
				require.LessOrEqual(t, started, 40*20+20)
			})
		})
	}
}
