package memstore_test

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
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

// A caller is one request on its way.
type caller struct {
	*testing.T
	store *memstore.Store
	k     *store.Booking
	g     store.Grant
}

// arrive books for a new caller.
func arrive(t *testing.T, s *memstore.Store, charges ...store.Charge) *caller {
	t.Helper()
	c := &caller{T: t, store: s, k: booking(charges...)}
	c.book()
	return c
}

func (c *caller) book() {
	c.Helper()
	g, err := c.store.Book(c.Context(), c.k)
	require.NoError(c, err)
	c.g = g
}

// again books with what the caller has.
func (c *caller) again() {
	c.Helper()
	c.k.Instead = c.g.Handle
	c.book()
}

func (c *caller) release() { c.store.Release(c.k, c.g) }
func (c *caller) cancel()  { c.store.Cancel(c.k, c.g) }

// runs requires a start now.
func (c *caller) runs() {
	c.Helper()
	require.True(c, c.g.OK)
	require.Zero(c, c.g.Wait)
	require.NotZero(c, c.g.Handle.Start)
	require.Nil(c, c.g.Ready)
	require.Equal(c, -1, c.g.HeldBy)
}

// inLine requires a place in the line of the charge held.
func (c *caller) inLine(held int) {
	c.Helper()
	require.False(c, c.g.OK)
	require.Zero(c, c.g.Wait)
	require.NotZero(c, c.g.Handle.Place)
	require.Equal(c, held, c.g.HeldBy)
	require.False(c, c.called())
}

// called reports whether it is the caller's turn.
func (c *caller) called() bool {
	select {
	case <-c.g.Ready:
		return true
	default:
		return false
	}
}

// inFlight requires what runs, and how many callers of cost 1 wait.
func inFlight(t *testing.T, s *memstore.Store, c store.Charge, used, waiting int) {
	t.Helper()
	st := status(t, s, c)
	require.Equal(t, store.Status{Limit: c.Limit, Used: used, Waiting: waiting, Callers: waiting}, st)
}

func costing(c store.Charge, cost int) store.Charge {
	c.Cost = cost
	return c
}

func TestP1_InFlight(t *testing.T) {
	s := memstore.New()
	c := charge("pair", store.Concurrency(2))
	inFlight(t, s, c, 0, 0)
	first, second := arrive(t, s, c), arrive(t, s, c)
	first.runs()
	second.runs()
	inFlight(t, s, c, 2, 0)
	third := arrive(t, s, c)
	third.inLine(0)
	inFlight(t, s, c, 2, 1)
	first.release()
	require.True(t, third.called())
	inFlight(t, s, c, 1, 1)
	third.again()
	third.runs()
	inFlight(t, s, c, 2, 0)
	second.release()
	third.cancel()
	inFlight(t, s, c, 0, 0)
}

// TestP10_InFlightIsForgotten when nothing runs and nobody waits, and not before.
func TestP10_InFlightIsForgotten(t *testing.T) {
	inBubble(t, func(t *testing.T, s *memstore.Store) {
		c, other := charge("long", store.Concurrency(1)), charge("other", store.PerSecond(1))
		other.Budget.Key[0] = c.Budget.Key[0] // memstore forgets only what shares a shard
		running := arrive(t, s, c)
		for range 5 {
			time.Sleep(time.Hour)
			book(t, s, other)
			inFlight(t, s, c, 1, 0)
		}
		waits := arrive(t, s, c)
		running.release()
		require.True(t, waits.called())
		time.Sleep(time.Hour)
		book(t, s, other)
		inFlight(t, s, c, 0, 1)
		waits.cancel()
		time.Sleep(time.Hour)
		book(t, s, other)
		kept, due := s.Rows()
		require.Equal(t, 1, kept)
		require.Equal(t, 1, due)
	})
}

// TestP1_InFlightCrowd has many callers on two budgets. Never more run than may,
// and all are served.
func TestP1_InFlightCrowd(t *testing.T) {
	const callers, each = 32, 50
	s := memstore.New()
	limits := []store.Charge{charge("wide", store.Concurrency(5)), charge("narrow", store.Concurrency(2))}
	var running [2]atomic.Int64
	var tooMany atomic.Int64
	var wg sync.WaitGroup
	for i := range callers {
		charges := limits[:1+i%2]
		wg.Go(func() {
			for j := range each {
				k := booking(charges...)
				g, err := s.Book(t.Context(), k)
				for ; err == nil && !g.OK; g, err = s.Book(t.Context(), k) {
					if j%7 == 3 {
						break // it gives up
					}
					<-g.Ready
					k.Instead = g.Handle
				}
				if !g.OK {
					s.Cancel(k, g)
					continue
				}
				for n, c := range charges {
					if running[n].Add(1) > int64(c.Limit.N()) {
						tooMany.Add(1)
					}
				}
				for n := range charges {
					running[n].Add(-1)
				}
				s.Release(k, g)
			}
		})
	}
	wg.Wait()
	require.Zero(t, tooMany.Load())
	for _, c := range limits {
		inFlight(t, s, c, 0, 0)
	}
}

const ms = time.Millisecond

// TestP1_BucketUnderLoad keeps a bucket busy for hours, so that all but the
// last moments are forgotten. Each start is the earliest that the whole history
// allows.
func TestP1_BucketUnderLoad(t *testing.T) {
	for _, limit := range []store.Limit{
		store.TokenBucket(2, time.Second, 40),
		store.TokenBucket(7, time.Second, 3),
		store.TokenBucket(1, time.Minute, 20),
		store.TokenBucket(3, 10*time.Second, 100),
	} {
		for _, jitter := range []time.Duration{0, 35 * ms, 700 * ms} {
			t.Run(limit.String()+" "+jitter.String(), func(t *testing.T) {
				inBubble(t, func(t *testing.T, s *memstore.Store) {
					c := charge("busy", limit)
					c.Jitter = jitter
					var h history
					for range 2000 {
						want := h.next(c)
						require.Equal(t, want, book(t, s, c))
						h.add(want, 1)
						time.Sleep(want)
					}
				})
			})
		}
	}
}

// TestP3_LargeBucketUnderLoad lets starts share entries. That costs little, once.
func TestP3_LargeBucketUnderLoad(t *testing.T) {
	inBubble(t, func(t *testing.T, s *memstore.Store) {
		c := charge("large", store.TokenBucket(100, time.Second, 1000))
		var h history
		for range 3000 {
			wait := book(t, s, c)
			h.add(wait, 1)
			time.Sleep(wait)
		}
		require.Zero(t, h.excess(c))
		require.LessOrEqual(t, h.last(), 20*time.Second+c.Span()/128+time.Microsecond)
	})
}

// TestP3_DeepBucketQueue is a queue of thousands, in which neighbours are joined.
// That breaks no rule, and nearly all that flows in is used.
func TestP3_DeepBucketQueue(t *testing.T) {
	inBubble(t, func(t *testing.T, s *memstore.Store) {
		c := charge("deep", store.TokenBucket(10, time.Second, 20))
		c.Jitter = 35 * ms
		var h history
		for range 3000 {
			h.add(book(t, s, c), 1)
		}
		require.Zero(t, h.excess(c))
		require.LessOrEqual(t, h.last(), 298*time.Second*101/100)
	})
}

// TestP1_BucketForgetsNoLoad mixes costs, cancels and idle moments.
func TestP1_BucketForgetsNoLoad(t *testing.T) {
	for seed := range uint64(20) {
		synctest.Test(t, func(t *testing.T) {
			rng := rand.New(rand.NewPCG(seed, 3))
			s := memstore.New()
			c := charge("busy", store.TokenBucket(1+rng.IntN(20), time.Second, 1+rng.IntN(10)))
			c.Jitter = time.Duration(rng.IntN(100)) * ms
			var h history
			for range 500 {
				time.Sleep(time.Duration(rng.IntN(300)) * ms)
				c.Cost = 1 + rng.IntN(c.Limit.Capacity())
				c.KeepFree = rng.IntN(1 + c.Limit.Capacity() - c.Cost)
				k := booking(c)
				g := ask(t, s, k)
				if rng.IntN(4) == 0 {
					s.Cancel(k, g)
					continue
				}
				h.add(g.Wait, c.Cost)
			}
			require.Zero(t, h.excess(c), "seed %d", seed)
		})
	}
}

// TestBucketChanges counts under other numbers what was spent of a bucket, even
// if the starts are forgotten: one that was empty for a minute gained a twentieth
// of a token in each of the 20 seconds since the last that was forgotten.
func TestBucketChanges(t *testing.T) {
	for _, test := range []struct {
		spent, burst int
		want         time.Duration
	}{
		{20, 20, 18095239 * time.Microsecond}, // 19 tokens are missing
		{19, 20, 17142858 * time.Microsecond}, // 18
		{20, 10, 8571429 * time.Microsecond},  // 9: no more is spent than there can be
	} {
		inBubble(t, func(t *testing.T, s *memstore.Store) {
			c := charge("one", store.TokenBucket(1, time.Second, 20))
			require.Zero(t, book(t, s, costing(c, test.spent)))
			for range 60 {
				time.Sleep(time.Second)
				require.Zero(t, book(t, s, c))
			}
			c.Limit = store.TokenBucket(21, 20*time.Second, test.burst)
			require.Equal(t, test.want, book(t, s, costing(c, test.burst)))
		})
	}
}

// TestBucketOwesInSpiteOfOthers asks under another kind of limit now and then, as
// a fleet does whose programs are replaced one by one. The bucket stays empty.
func TestBucketOwesInSpiteOfOthers(t *testing.T) {
	inBubble(t, func(t *testing.T, s *memstore.Store) {
		c := charge("one", store.TokenBucket(10, time.Second, 10))
		other := charge("one", store.PerSecond(1000))
		require.Zero(t, book(t, s, costing(c, 10)))
		for range 50 {
			require.Equal(t, 100*ms, book(t, s, c))
			time.Sleep(100 * ms)
			require.NoError(t, s.Pause(t.Context(), other, 0))
		}
		require.Equal(t, time.Second, book(t, s, costing(c, 10)))
	})
}

// TestBucketChangesALittle counts what was forgotten once, not as a level and as
// a start.
func TestBucketChangesALittle(t *testing.T) {
	inBubble(t, func(t *testing.T, s *memstore.Store) {
		c := charge("one", store.TokenBucket(10, time.Second, 10))
		require.Zero(t, book(t, s, costing(c, 10)))
		for range 30 {
			time.Sleep(100 * ms)
			require.Zero(t, book(t, s, c))
		}
		c.Limit = store.TokenBucket(10, time.Second, 11)
		require.Equal(t, 100*ms, book(t, s, c))
	})
}

// TestBucketChangesToLonger takes a bucket whose past is unknown for an empty one.
func TestBucketChangesToLonger(t *testing.T) {
	inBubble(t, func(t *testing.T, s *memstore.Store) {
		c := charge("one", store.TokenBucket(10, time.Second, 10))
		require.Zero(t, book(t, s, costing(c, 10)))
		time.Sleep(time.Second)
		require.Zero(t, book(t, s, c)) // what is a second old is forgotten
		c.Limit = store.TokenBucket(1, time.Second, 20)
		require.Equal(t, time.Second, book(t, s, costing(c, 1)), "20 were spent a second ago, 1 now")
	})
}

// A history is all that was started in a bubble, in any order of booking.
type history []past

type past struct {
	at   int64
	cost int64
}

func (h *history) add(wait time.Duration, cost int) {
	*h = append(*h, past{time.Now().Add(wait).UnixMicro(), int64(cost)})
}

// next is how long the charge waits, if it cost 1, after all those starts.
func (h history) next(c store.Charge) (wait time.Duration) {
	tokens, micros := c.Refill()
	missing, now := int64(len(h)+1-c.Limit.Capacity()), time.Now().UnixMicro()
	for i := 0; missing > 0; i, missing = i+1, missing-1 {
		flow := (missing*micros + tokens - 1) / tokens
		wait = max(wait, time.Duration(h[i].at-now+flow)*time.Microsecond+c.Jitter)
	}
	return wait
}

// last is how long after the first start the last one is.
func (h history) last() time.Duration {
	return time.Duration(h[len(h)-1].at-h[0].at) * time.Microsecond
}

// excess is by how many units, at the most, the costs of any run of starts pass
// what the bucket allows in so long.
func (h history) excess(c store.Charge) (most int64) {
	byTime := slices.SortedFunc(slices.Values(h), func(a, b past) int { return cmp.Compare(a.at, b.at) })
	tokens, micros := c.Refill()
	burst, jitter := int64(c.Limit.Capacity()), c.Jitter.Microseconds()
	for i := range byTime {
		sum := int64(0)
		for _, p := range byTime[i:] {
			sum += p.cost
			most = max(most, (sum-burst)*micros-tokens*max(0, p.at-byTime[i].at-jitter))
		}
	}
	return most
}

// TestP11_APauseMeetsCallersThatMove: a budget is closed while callers that cannot wait go on to the lines of other budgets, for the race detector.
func TestP11_APauseMeetsCallersThatMove(t *testing.T) {
	s := memstore.New()
	var lines []store.Charge
	for _, name := range []string{"one", "two", "three"} {
		c := charge(name, store.PerHour(1000))
		full := c
		full.Cost = 1000
		book(t, s, full)
		lines = append(lines, c)
	}

	var wg sync.WaitGroup
	var waited atomic.Int64
	over := make(chan struct{})
	for range 64 {
		wg.Go(func() {
			g := store.Grant{}
			for n := 0; ; n++ {
				select {
				case <-over:
					return
				default:
				}

				b := booking(lines[n%len(lines)])
				b.Horizon, b.MaxWait = time.Second, 90*time.Minute
				b.Turn, b.Instead, b.Returns = g.Turn, g.Handle, n > 0
				g, _ = s.Book(t.Context(), b)
				if g.Ready != nil {
					waited.Add(1)
				}
			}
		})
	}

	for range 40_000 {
		require.NoError(t, s.Pause(t.Context(), lines[0], 2*time.Hour))
		require.NoError(t, s.Resume(t.Context(), lines[0]))
	}
	close(over)
	wg.Wait()
	require.NotZero(t, waited.Load())
}
