package memstore_test

import (
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fleetthrottle/throttle/memstore"
	"github.com/fleetthrottle/throttle/store"
)

// TestShards spreads budgets over the locks: no lock has more than twice its
// share.
func TestShards(t *testing.T) {
	const shards, each = 256, 100
	s := memstore.New()
	count := make(map[int]int)
	for i := range shards * each {
		count[s.Shard(charge(fmt.Sprint("budget ", i), store.PerSecond(1)).Budget)]++
	}
	require.Len(t, count, shards)
	for shard, n := range count {
		require.Less(t, n, 2*each, "shard %d", shard)
	}
}

// TestOthersAreNotHeldUp books, pauses and looks at budgets while the lock of
// another one is held.
func TestOthersAreNotHeldUp(t *testing.T) {
	inBubble(t, func(t *testing.T, s *memstore.Store) {
		slow, fast, also := charge("slow", store.PerSecond(1)), charge("fast", store.PerSecond(1)), charge("also", store.PerSecond(1))
		require.NotEqual(t, s.Shard(slow.Budget), s.Shard(fast.Budget))
		require.NotEqual(t, s.Shard(slow.Budget), s.Shard(also.Budget))
		release := s.Hold(slow.Budget)
		defer release()
		require.Zero(t, book(t, s, fast, also))
		require.NoError(t, s.Pause(t.Context(), fast, 0))
		status(t, s, also)
	})
}

// TestOtherWaitersAreNotHeldUp has callers wait in a line, leave it and be served while the locks of another budget are
// held.
func TestOtherWaitersAreNotHeldUp(t *testing.T) {
	inBubble(t, func(t *testing.T, s *memstore.Store) {
		slow, fast := charge("slow", store.PerSecond(1)), charge("fast", store.PerSecond(1))
		require.NotEqual(t, s.Shard(slow.Budget), s.Shard(fast.Budget))
		release := s.Hold(slow.Budget)
		defer release()

		begun := time.Now()
		require.Zero(t, book(t, s, fast))
		var served sync.WaitGroup
		for i := range 10 {
			served.Go(func() { waitInLine(t, s, i%2 == 0, fast) })
		}
		served.Wait()

		// Five start, a second apart. A start that one of the other five gives back is lost if all behind it are booked.
		took := time.Since(begun)
		require.GreaterOrEqual(t, took, 5*time.Second)
		require.Less(t, took, 11*time.Second)
	})
}

// waitInLine books a start, and stands in line for it if need be. A caller that leaves gives its first place back instead.
func waitInLine(t *testing.T, s *memstore.Store, leaves bool, charges ...store.Charge) {
	b := booking(charges...)
	for {
		g, err := s.Book(t.Context(), b)
		require.NoError(t, err)
		if leaves {
			s.Cancel(b, g)
			return
		}
		if g.Ready == nil {
			time.Sleep(g.Wait)
			return
		}
		<-g.Ready
		b.Turn = g.Turn
	}
}

// TestP6_NoDeadlockInLines has callers stand in line for several budgets, in every order at once, and some of them leave.
// Everybody is served, as fast as the slowest budget allows.
func TestP6_NoDeadlockInLines(t *testing.T) {
	const callers, each = 32, 20
	inBubble(t, func(t *testing.T, s *memstore.Store) {
		var all []store.Charge
		for i := range 5 {
			all = append(all, charge(fmt.Sprint("budget ", i), store.PerSecond(20+i)))
		}
		begun := time.Now()
		var served sync.WaitGroup
		for i := range callers {
			served.Go(func() {
				rng := rand.New(rand.NewPCG(uint64(i), 1))
				for range each {
					few := make([]store.Charge, 0, len(all))
					for _, j := range rng.Perm(len(all))[:1+rng.IntN(len(all))] {
						few = append(few, all[j])
					}
					waitInLine(t, s, rng.IntN(4) == 0, few...)
				}
			})
		}
		served.Wait()
		require.Less(t, time.Since(begun), 60*time.Second, "640 callers at 20 a second take 32 s if none leaves")
	})
}

// TestP6_NoDeadlock books the same budgets in every order at once, and counts.
func TestP6_NoDeadlock(t *testing.T) {
	const callers, each, n = 16, 200, 1000
	s := memstore.New()
	var all []store.Charge
	for i := range 6 {
		all = append(all, charge(fmt.Sprint("budget ", i), store.PerHour(n)))
	}
	var granted atomic.Int64
	var wg sync.WaitGroup
	for i := range callers {
		wg.Go(func() {
			rng := rand.New(rand.NewPCG(uint64(i), 0))
			for range each {
				k := booking()
				for _, j := range rng.Perm(len(all)) {
					k.Charges = append(k.Charges, all[j])
				}
				k.MaxWait = 0
				g, err := s.Book(t.Context(), k)
				if err == nil && g.OK {
					granted.Add(1)
				}
				_, _ = s.Status(t.Context(), k.Charges[0])
			}
		})
	}
	wg.Wait()
	require.Equal(t, int64(n), granted.Load())
}

// TestP7_ConcurrentCancels gives every grant back, while others book. In the end
// everything is free.
func TestP7_ConcurrentCancels(t *testing.T) {
	s := memstore.New()
	c := charge("busy", store.PerHour(100))
	var wg sync.WaitGroup
	for range 16 {
		wg.Go(func() {
			for range 100 {
				k := booking(c)
				g, err := s.Book(t.Context(), k)
				if err == nil {
					s.Cancel(k, g)
				}
			}
		})
	}
	wg.Wait()
	st := status(t, s, c)
	require.Equal(t, store.Status{Limit: c.Limit}, st)
}

// TestP1_IdleBudgetsOfOneBooking: of two idle budgets that share a lock, none is cleared away while
// both are booked in.
func TestP1_IdleBudgetsOfOneBooking(t *testing.T) {
	inBubble(t, func(t *testing.T, s *memstore.Store) {
		a, b := charge("a", store.PerSecond(1)), charge("b", store.PerSecond(1))
		b.Budget.Key[0] = a.Budget.Key[0]
		for range 3 {
			require.Zero(t, book(t, s, a, b))
			require.NotZero(t, book(t, s, a))
			require.NotZero(t, book(t, s, b))
			time.Sleep(time.Minute)
		}
	})
}

// TestStatusKeepsNothing asks about budgets that nobody uses.
func TestStatusKeepsNothing(t *testing.T) {
	s := memstore.New()
	for i := range 100 {
		status(t, s, charge(fmt.Sprint(i), store.PerSecond(1)))
	}
	kept, due := s.Rows()
	require.Zero(t, kept)
	require.Zero(t, due)
}

// TestStatusChangesNothing asks under a limit that is not the budget's. The
// budget goes on as if nobody had asked.
func TestStatusChangesNothing(t *testing.T) {
	inBubble(t, func(t *testing.T, s *memstore.Store) {
		c := charge("one", store.PerSecond(1))
		k := booking(c)
		require.Zero(t, book(t, s, c))
		g := ask(t, s, k)
		c.Limit = store.LeakyBucket(1, time.Hour) // keeps cancelled places, if somebody books
		status(t, s, c)
		s.Cancel(k, g)
		require.Equal(t, time.Second+time.Microsecond, book(t, s, k.Charges...))
	})
}
