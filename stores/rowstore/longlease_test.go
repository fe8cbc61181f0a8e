package rowstore_test

import (
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fleetthrottle/throttle"
	"github.com/fleetthrottle/throttle/store"
	"github.com/fleetthrottle/throttle/stores/rowstore"
)

// TestP3_LongLeases: more callers wait than a row lists, and nobody comes or leaves while the budget is closed. When it opens they all start at
// the pace of the limit, however long the lease of their node is.
func TestP3_LongLeases(t *testing.T) {
	const n, callers, closed = 100, 900, 30 * time.Second // more callers than a row lists
	synctest.Test(t, func(t *testing.T) {
		l, err := throttle.NewLimiter(must(rowstore.New(newMemory(), rowstore.Options{Lease: 10 * time.Minute})),
			throttle.Policy{Name: "one", Limit: store.LeakyBucket(n, time.Second)})
		require.NoError(t, err)
		require.NoError(t, l.Pause(t.Context(), "", closed))
		began := time.Now()
		var all sync.WaitGroup
		for range callers {
			all.Go(func() {
				if _, err := l.Acquire(throttle.WithMaxWait(t.Context(), throttle.Forever), "", 1); err != nil {
					t.Error(err)
				}
			})
		}
		time.Sleep(closed - time.Second)
		st, err := l.Status(t.Context(), "")
		require.NoError(t, err)
		all.Wait()
		require.Equal(t, callers, st.Waiting)
		require.LessOrEqual(t, time.Since(began), closed+15*time.Second)
	})
}
