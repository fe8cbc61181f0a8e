package memstore_test

import (
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fleetthrottle/throttle/internal/lab/soak"
	"github.com/fleetthrottle/throttle/memstore"
	"github.com/fleetthrottle/throttle/store"
)

// TestUnlimitedCostsNothing books, cancels, settles and looks at an unlimited budget:
// there is no row, and no memory is asked for. One that was closed is forgotten again.
func TestUnlimitedCostsNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, free := memstore.New(), charge("free", store.Unlimited())
		k := booking(free)
		require.EqualValues(t, soak.AllocsOf32Bits, testing.AllocsPerRun(100, func() {
			if _, err := s.Book(t.Context(), k); err != nil {
				t.Fatal(err)
			}
		}))
		g := ask(t, s, k)
		s.Cancel(k, g)
		require.NoError(t, s.Settle(t.Context(), k, g, []int{7}))
		require.NoError(t, s.Resume(t.Context(), free))
		require.NoError(t, s.Reconcile(t.Context(), free, store.Quota{Reset: time.Hour}))
		kept, _ := s.Rows()
		require.Zero(t, kept)

		require.NoError(t, s.Pause(t.Context(), free, time.Second))
		kept, _ = s.Rows()
		require.Equal(t, 1, kept)
		time.Sleep(time.Minute)
		book(t, s, free)
		time.Sleep(time.Minute)
		other := charge("other", store.PerSecond(1))
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
			mine, all := charge(string(rune('a'+i)), store.Unlimited()), charge("all", store.Unlimited())
			for n := range 300 {
				k := booking(mine, all, charge("real", store.PerSecond(1<<30)))
				k.Horizon, k.NotBefore = 750*time.Millisecond, time.Duration(n%2)*time.Second
				g := ask(t, s, k)
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

// TestP10_IdleBudgetsAreForgotten uses many budgets once, and then a few others.
// Each later call clears some away, so that all are gone in the end.
func TestP10_IdleBudgetsAreForgotten(t *testing.T) {
	const crowd, few = 100_000, 2000
	inBubble(t, func(t *testing.T, s *memstore.Store) {
		for i := range crowd {
			book(t, s, charge(fmt.Sprint("crowd ", i), store.PerSecond(1)))
		}
		kept, due := s.Rows()
		require.Equal(t, crowd, kept)
		require.Equal(t, crowd, due)

		time.Sleep(time.Minute)
		others := make([]store.Charge, few)
		for i := range others {
			others[i] = charge(fmt.Sprint("few ", i), store.PerSecond(1))
		}
		for range 20 {
			for i := range others {
				book(t, s, others[i])
			}
			time.Sleep(time.Minute)
		}
		kept, due = s.Rows()
		require.Equal(t, few, kept)
		require.Equal(t, few, due)
	})
}

// TestP10_BusyBudgetsAreKept keeps a booked start and a penalty for as long as
// they matter, whatever is cleared away around them.
func TestP10_BusyBudgetsAreKept(t *testing.T) {
	inBubble(t, func(t *testing.T, s *memstore.Store) {
		hourly, closed := charge("hourly", store.PerHour(1)), charge("closed", store.PerSecond(1))
		require.Zero(t, book(t, s, hourly))
		require.NoError(t, s.Pause(t.Context(), closed, time.Hour))
		for i := range 59 {
			time.Sleep(time.Minute)
			for j := range 2000 {
				book(t, s, charge(fmt.Sprint(i, " ", j), store.PerSecond(1)))
			}
		}
		require.Equal(t, time.Minute+time.Microsecond, book(t, s, hourly))
		require.Equal(t, time.Minute, book(t, s, closed))
	})
}

// TestP10_RowsAreBounded has a queue of ten thousand.
func TestP10_RowsAreBounded(t *testing.T) {
	for _, limit := range []store.Limit{
		store.PerSecond(20), store.PerHour(1_000_000),
		store.LeakyBucket(7, time.Second), store.TokenBucket(20, time.Second, 20), store.TokenBucket(20, time.Second, 1_000_000),
	} {
		t.Run(limit.String(), func(t *testing.T) {
			inBubble(t, func(t *testing.T, s *memstore.Store) {
				c := charge("deep", limit)
				c.Pace = time.Millisecond
				c.Cost = max(1, limit.N()/100)
				for range 10_000 {
					book(t, s, c)
					time.Sleep(100 * time.Microsecond)
				}
				size, room := s.Entries(c.Budget)
				require.LessOrEqual(t, size, memstore.MaxEntries)
				require.LessOrEqual(t, room, 2*memstore.MaxEntries)
			})
		})
	}
}

// TestP11_APauseClosesNoOther: an unlimited budget is closed whose row is idle, just when a caller of another budget tidies up. No budget that has no row is closed
// instead.
func TestP11_APauseClosesNoOther(t *testing.T) {
	s := memstore.New()
	closed, free := charge("closed", store.Unlimited()), charge("free", store.Unlimited())
	other := charge("other", store.PerSecond(1<<30))
	other.Budget.Key[0] = closed.Budget.Key[0] // what shares a shard tidies it up
	var wg sync.WaitGroup
	defer wg.Wait()
	over := make(chan struct{})
	defer close(over)
	wg.Go(func() {
		for k := booking(other); ; {
			select {
			case <-over:
				return
			default:
				_, _ = s.Book(t.Context(), k)
			}
		}
	})

	for n := range 5_000 {
		s.Gain(time.Duration(n) * 100 * time.Hour)
		require.NoError(t, s.Pause(t.Context(), closed, time.Hour))
		require.Zero(t, book(t, s, free))
		require.NotZero(t, status(t, s, closed).Paused)
	}
}
