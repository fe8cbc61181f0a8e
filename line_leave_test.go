package throttle_test

import (
	"context"
	"runtime"

	"strings"
	"testing"
	"testing/synctest"
	"time"
	"weak"

	"github.com/stretchr/testify/require"

	"github.com/fleetthrottle/throttle"
	"github.com/fleetthrottle/throttle/memstore"
)

// TestP15_NothingIsLeftOfALine when all have left it: no goroutine, and no timer, which
// would keep the store.
func TestP15_NothingIsLeftOfALine(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memstore.New()
		gone := weak.Make(store)
		func() {
			l := newLimiter(t, store, exactly(throttle.PerHour(1)))
			before := inBubble()
			ctx, cancel := context.WithCancel(t.Context())
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
