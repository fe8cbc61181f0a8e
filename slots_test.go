package throttle_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fleetthrottle/throttle"
	"github.com/fleetthrottle/throttle/memstore"
)

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

func TestConcurrencyOfALimiter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, begin := newLimiter(t, memstore.New(), atOnce(2)), time.Now()
		var all sync.WaitGroup
		var mu sync.Mutex
		var got []time.Duration
		for range 5 {
			all.Go(func() {
				p, err := l.Acquire(t.Context(), "", 1)
				if err != nil {
					t.Error(err)
					return
				}
				mu.Lock()
				got = append(got, time.Since(begin))
				mu.Unlock()
				time.Sleep(time.Second)
				p.Release()
			})
			synctest.Wait()
			time.Sleep(100 * ms)
		}
		all.Wait()
		require.Equal(t, []time.Duration{0, 100 * ms, 1000 * ms, 1100 * ms, 2000 * ms}, got)
		require.Zero(t, inFlight(t, l))
	})
}

func TestReleaseEndsAPermitOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newSpy()
		l := newLimiter(t, store, atOnce(9))
		first, err := l.Acquire(t.Context(), "", 3)
		require.NoError(t, err)
		_, err = l.TryAcquire(t.Context(), "", 4)
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

func TestReleaseDoesNothingForStarts(t *testing.T) {
	store := newSpy()
	l := newLimiter(t, store, onePerHour)
	p, err := l.Acquire(t.Context(), "", 1)
	require.NoError(t, err)
	p.Release()
	require.Zero(t, store.released())
	require.Equal(t, 1, inFlight(t, l), "a start counts for its window")
}

// TestP5_TheLineIsServedInOrder: also past waiters that leave it.
func TestP5_TheLineIsServedInOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLimiter(t, memstore.New(), atOnce(1))
		running, err := l.Acquire(t.Context(), "", 1)
		require.NoError(t, err)
		gone, leave := context.WithCancelCause(t.Context())
		reason := errors.New("called off")
		begin := time.Now()
		ends := make(map[string]time.Duration)
		var mu sync.Mutex
		join := func(name string, ctx context.Context, want string) {
			go func() {
				p, err := l.Acquire(ctx, "", 1)
				mu.Lock()
				ends[name] = time.Since(begin)
				mu.Unlock()
				if want != "" {
					if err == nil || err.Error() != want {
						t.Errorf("%s: %v", name, err)
					}
					return
				}
				if err != nil {
					t.Error(name, err)
					return
				}
				time.Sleep(10 * time.Second)
				p.Release()
			}()
			synctest.Wait()
		}
		join("a", t.Context(), "")
		join("leaves", gone, `throttle: the caller gave up after waiting 2s for policy "p": called off`)
		join("impatient", throttle.WithMaxWait(t.Context(), 3*time.Second),
			`throttle: policy "p" (1 in flight): no room yet, but MaxWait is 3s`)
		join("b", t.Context(), "")
		time.AfterFunc(2*time.Second, func() { leave(reason) })
		time.Sleep(5 * time.Second)
		running.Release()
		time.Sleep(time.Minute)
		synctest.Wait()
		require.Equal(t, map[string]time.Duration{
			"leaves": 2 * time.Second, "impatient": 3 * time.Second, "a": 5 * time.Second, "b": 15 * time.Second,
		}, ends)
		require.Zero(t, inFlight(t, l))
	})
}

func TestRefusedBecauseOfWhatIsInFlight(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLimiter(t, memstore.New(), atOnce(1))
		p, err := l.TryAcquire(t.Context(), "", 1)
		require.NoError(t, err)
		_, err = l.TryAcquire(t.Context(), "", 1)
		require.EqualError(t, err, `throttle: policy "p" (1 in flight): no room yet, but may not wait at all`)
		require.ErrorIs(t, err, throttle.ErrLimited)
		var limited *throttle.LimitError
		require.ErrorAs(t, err, &limited)
		require.Zero(t, limited.RetryAfter, "nobody knows")

		soon, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, err = l.Acquire(soon, "", 1)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.EqualError(t, err, `throttle: the caller gave up after waiting 1s for policy "p": context deadline exceeded`)

		_, err = l.Acquire(t.Context(), "", 2)
		require.EqualError(t, err, `throttle: policy "p" (1 in flight): a cost of 2 can never fit`)
		p.Release()
		_, err = l.TryAcquire(t.Context(), "", 1)
		require.NoError(t, err, "waiters that left hold nothing")
	})
}

func TestP11_APenaltyClosesWhatIsCountedInFlight(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, begin := newLimiter(t, memstore.New(), atOnce(1)), time.Now()
		require.NoError(t, l.Pause(t.Context(), "", time.Minute))
		p, err := l.Acquire(t.Context(), "", 1)
		require.NoError(t, err)
		require.Equal(t, time.Minute, time.Since(begin))
		require.Equal(t, 1, inFlight(t, l), "held from its start")
		p.Release()
		require.Zero(t, inFlight(t, l))
	})
}

func TestAShadowInFlightNeverHolds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := atOnce(1)
		p.Shadow = true
		l := newLimiter(t, memstore.New(), p)
		var permits []*throttle.Permit
		for range 3 {
			p, err := l.TryAcquire(t.Context(), "", 1)
			require.NoError(t, err)
			permits = append(permits, p)
		}
		require.Equal(t, 3, inFlight(t, l))
		for _, p := range permits {
			p.Release()
		}
		require.Zero(t, inFlight(t, l))
	})
}
