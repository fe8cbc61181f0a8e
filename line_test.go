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
