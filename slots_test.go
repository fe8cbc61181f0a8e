package throttle_test

import (
	"sync"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"

	"github.com/fleetthrottle/throttle"
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
