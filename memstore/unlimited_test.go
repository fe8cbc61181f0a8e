package memstore_test

import (
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fleetthrottle/throttle"
	"github.com/fleetthrottle/throttle/memstore"
)

// TestUnlimitedCostsNothing books, cancels, settles and looks at an unlimited budget:
// there is no row, and no memory is asked for. One that was closed is forgotten again.
func TestUnlimitedCostsNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, free := memstore.New(), charge("free", throttle.Unlimited())
		k := booking(free)
		require.Zero(t, testing.AllocsPerRun(100, func() {
			if _, err := s.Book(t.Context(), k); err != nil {
				t.Fatal(err)
			}
		}))
		g, err := s.Book(t.Context(), k)
		require.NoError(t, err)
		s.Cancel(k, g)
		require.NoError(t, s.Settle(t.Context(), k, g, []int{7}))
		require.NoError(t, s.Resume(t.Context(), free))
		require.NoError(t, s.Reconcile(t.Context(), free, throttle.Quota{Reset: time.Hour}))
		kept, _ := s.Rows()
		require.Zero(t, kept)

		require.NoError(t, s.Pause(t.Context(), free, time.Second))
		kept, _ = s.Rows()
		require.Equal(t, 1, kept)
		time.Sleep(time.Minute)
		book(t, s, free)
		time.Sleep(time.Minute)
		other := charge("other", throttle.PerSecond(1))
		other.Budget.Key[0] = free.Budget.Key[0] // what shares a shard tidies it up
		book(t, s, other)
		kept, _ = s.Rows()
		require.Equal(t, 1, kept, "the other one")
	})
}

// TestUnlimitedIsSharedByAll books and closes many unlimited budgets at once, for the
// race detector: what stands for their rows is one.
func TestUnlimitedIsSharedByAll(t *testing.T) {
	s := memstore.New()
	var wg sync.WaitGroup
	for i := range 8 {
		wg.Go(func() {
			mine, all := charge(string(rune('a'+i)), throttle.Unlimited()), charge("all", throttle.Unlimited())
			for n := range 300 {
				k := booking(mine, all, charge("real", throttle.PerSecond(1<<30)))
				k.Horizon, k.NotBefore = 750*time.Millisecond, time.Duration(n%2)*time.Second
				g, err := s.Book(t.Context(), k)
				require.NoError(t, err)
				w := s.Watch(k, g, nil)
				if n%50 == 7 {
					require.NoError(t, s.Pause(t.Context(), mine, time.Microsecond))
				}
				w.Stop()
				s.Cancel(k, g)
				require.NoError(t, s.Resume(t.Context(), all))
			}
		})
	}
	wg.Wait()
}
