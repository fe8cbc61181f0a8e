//go:build unix

package processes

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fleetthrottle/throttle"
)

// open opens the store for the process of the tests, until the test ends.
func (s *Store) open(t *testing.T, place string, lease time.Duration) throttle.Store {
	store, end, err := s.Open(place, lease)
	require.NoError(t, err)
	if end != nil {
		t.Cleanup(end)
	}
	return store
}

// limiters returns limiters of one policy on many stores, each of which acts as a store of a different process.
func (s *Store) limiters(t *testing.T, place, policy string, many int, limit throttle.Limit) (all []*throttle.Limiter) {
	for range many {
		store := s.open(t, place, s.Lease)
		l, err := throttle.NewLimiter(store, throttle.Policy{Name: policy, Limit: limit})
		require.NoError(t, err)
		all = append(all, l)
	}
	return all
}

// awaitWaiting waits until n callers wait for the limiter's budget.
func awaitWaiting(t *testing.T, l *throttle.Limiter, n int) {
	t.Helper()
	require.Eventually(t, func() bool {
		st, err := l.Status(t.Context(), "")
		return err == nil && st.Waiting == n
	}, time.Minute, time.Millisecond)
}

// NewsOfOthers is P11 of callers in a line: callers of several stores wait while the budget is closed. When a further store
// opens the budget, all callers start.
func (s *Store) NewsOfOthers(t *testing.T, place string) {
	all := s.limiters(t, place, "shared", 4, throttle.LeakyBucket(50, time.Second))
	require.NoError(t, all[3].Pause(t.Context(), "", time.Hour))

	// The store that closes and opens the budget has no callers, so all callers must hear of it from a different store.
	var callers sync.WaitGroup
	for i := range 30 {
		callers.Go(func() {
			if _, err := all[i%3].Acquire(throttle.WithMaxWait(t.Context(), throttle.Forever), "", 1); err != nil {
				t.Error(err)
			}
		})
	}

	awaitWaiting(t, all[3], 30)
	require.NoError(t, all[3].Resume(t.Context(), ""))
	callers.Wait()
}

// penaltyToSleepers is P11 of a caller that sleeps until the start that was booked for it: a second store is told of a penalty, and
// the caller does not start before the penalty is over.
func (s *Store) penaltyToSleepers(t *testing.T, place string) {
	const every, penalty = 2 * time.Second, 3 * time.Second
	for round := 1; ; round++ {
		all := s.limiters(t, place, fmt.Sprint("round ", round), 2, throttle.LeakyBucket(1, every))
		first := time.Now()
		_, err := all[0].Acquire(throttle.WithMaxWait(t.Context(), throttle.Forever), "", 1)
		require.NoError(t, err)
		started := make(chan time.Time, 1)
		go func() {
			if _, err := all[0].Acquire(throttle.WithMaxWait(t.Context(), throttle.Forever), "", 1); err != nil {
				t.Error(err)
			}
			started <- time.Now()
		}()

		require.Eventually(t, func() bool {
			st, err := all[1].Status(t.Context(), "")
			return err == nil && st.Waiting == 1 || len(started) > 0
		}, time.Minute, time.Millisecond)
		began := time.Now()
		require.NoError(t, all[1].Pause(t.Context(), "", penalty))
		told := time.Now()
		start := <-started

		// On a busy machine the penalty may be stored only after the second start. Then the caller did not sleep: try again.
		if told.Sub(first) < every {
			require.GreaterOrEqual(t, start.Sub(began), penalty)
			return
		}
		require.Less(t, round, 10, "a penalty takes longer to be stored than a caller sleeps")
	}
}

// cancelledCrowd is P7: callers of two stores that leave have neither a place nor a start.
func (s *Store) cancelledCrowd(t *testing.T, place string) {
	const n = 200
	all := s.limiters(t, place, "shared", 2, throttle.PerHour(1))
	_, err := all[0].Acquire(throttle.WithMaxWait(t.Context(), throttle.Forever), "", 1)
	require.NoError(t, err)
	ctx, leave := context.WithCancel(t.Context())

	var callers sync.WaitGroup
	for i := range n {
		callers.Go(func() {
			if _, err := all[i%2].Acquire(throttle.WithMaxWait(ctx, throttle.Forever), "", 1); !errors.Is(err, context.Canceled) {
				t.Errorf("%v", err)
			}
		})
	}

	// All stand in line, leave at once, and leave nothing behind.
	awaitWaiting(t, all[0], n)
	leave()
	callers.Wait()
	awaitWaiting(t, all[1], 0)
	st, err := all[1].Status(t.Context(), "")
	require.NoError(t, err)
	require.Equal(t, 1, st.Used)
}
