package throttle_test

import (
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fleetthrottle/throttle"
	"github.com/fleetthrottle/throttle/memstore"
)

// TestP3_StartsOfDifferentCosts use what a window has room for at once: apart, each of them would
// leave room that the next one does not fit into.
func TestP3_StartsOfDifferentCosts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, err := throttle.NewLimiter(memstore.New(), throttle.Policy{Name: "ten", Limit: throttle.PerSecond(10)})
		require.NoError(t, err)
		begin := time.Now()
		starts := make([]time.Duration, 5)
		var all sync.WaitGroup
		for i, cost := range []int{10, 6, 4, 7, 3} {
			all.Go(func() {
				_, err := l.Acquire(t.Context(), "", cost)
				require.NoError(t, err)
				starts[i] = time.Since(begin)
			})
			synctest.Wait()
		}
		all.Wait()
		window := time.Second + throttle.DefaultJitter + time.Microsecond // no closed window holds more than ten
		require.Equal(t, []time.Duration{0, window, window, 2 * window, 2 * window}, starts)
	})
}
