package memstore

import (
	"container/heap"
	"math/bits"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/fleetthrottle/throttle/internal/ledger"
	"github.com/fleetthrottle/throttle/internal/virtual"
	"github.com/fleetthrottle/throttle/store"
)

// shardCount is the number of values of a hashed key's first byte, which selects the shard. It is well above the
// number of cores.
const shardCount = 256

// maxSwept bounds how many idle rows one call clears away, so that no caller
// clears away the rows of very many others.
const maxSwept = 16

// idle is how many microseconds a row is kept beyond its expiry, so that no call
// clears away a row that it is using itself.
const idle = 1_000_000

// A shard holds the budgets whose hashed key falls to it, in the order in which they may
// be forgotten.
type shard struct {
	lines   sync.Mutex // guards the waiters that may stand in lines of these budgets: see [Store.lockLines]
	mu      sync.Mutex // guards all below
	budgets map[ledger.Key]*budget
	due     dueHeap
	last    *budget    // the budget that was asked for last, or nil
	lastKey ledger.Key // its key
	_       [64]byte   // no two locks on one cache line
}

// A due says when a row is looked at again: it is cleared away, or gets a later due
// if it was used since.
type due struct {
	at  int64
	key ledger.Key
}

// row returns the row of a charge, a new one if there is none, but nil for an unlimited budget that
// has none. The shard is locked.
func (s *shard) row(c *store.Charge, now int64) *ledger.Row {
	b := s.find(&c.Budget.Key)
	if b == nil {
		if c.Limit.Kind() == store.KindUnlimited {
			return nil
		}
		b = s.add(c.Budget.Key, now)
	}
	return &b.Row
}

// find returns the budget of a key, or nil if there is none. Most callers ask for the same budget
// as the caller before.
func (s *shard) find(key *ledger.Key) *budget {
	if s.last == nil || s.lastKey != *key {
		s.last, s.lastKey = s.budgets[*key], *key
	}
	return s.last
}

// budget returns the budget of a key, new if need be. The shard must be locked.
func (s *shard) budget(key ledger.Key, now int64) *budget {
	if b := s.budgets[key]; b != nil {
		return b
	}
	return s.add(key, now)
}

// add makes a budget, to be looked at for the first time when it has been idle.
func (s *shard) add(key ledger.Key, now int64) *budget {
	b := new(budget)
	s.budgets[key] = b
	heap.Push(&s.due, due{now + idle, key})
	return b
}

// isDue reports whether a row is to be looked at again.
func (s *shard) isDue(now int64) bool { return len(s.due) > 0 && s.due[0].at <= now }

// sweep looks at the budgets that are due, at most maxSwept of them, and clears away those that are idle. It ends at an idle
// budget of the charges used, which are about to be used.
func (s *shard) sweep(now int64, used []store.Charge) {
	for n := 0; n < maxSwept && s.isDue(now); n++ {
		first := &s.due[0]

		if end := s.budgets[first.key].expiry(now) + idle; end > now {
			// The budget was used since, and is looked at again later.
			first.at = end
			heap.Fix(&s.due, 0)
		} else if slices.ContainsFunc(used, func(c store.Charge) bool { return c.Budget.Key == first.key }) {
			// A row in use stays at the head of the heap, where the next round would find it again.
			break
		} else {
			// Without last, find cannot return the deleted budget.
			delete(s.budgets, first.key)
			s.last = nil
			heap.Pop(&s.due)
		}
	}
}

// dueHeap implements heap.Interface, the earliest first.
type dueHeap []due

func (h dueHeap) Len() int           { return len(h) }
func (h dueHeap) Less(i, j int) bool { return h[i].at < h[j].at }
func (h dueHeap) Swap(i, j int)      { h[i], h[j] = h[j], h[i] }
func (h *dueHeap) Push(x any)        { *h = append(*h, x.(due)) }
func (h *dueHeap) Pop() any {
	old := *h
	x := old[len(old)-1]
	*h = old[:len(old)-1]
	return x
}

// A shardSet is a set of shards, one bit each. Whoever locks several shards locks them in the order of the set.
type shardSet [shardCount / 64]uint64

// shardsOf returns the shards of all charges.
func shardsOf(charges []store.Charge) (set shardSet) {
	for i := range charges {
		k := charges[i].Budget.Key[0]
		set[k/64] |= 1 << (k % 64)
	}
	return set
}

// with returns the shards of both sets.
func (set shardSet) with(other shardSet) shardSet {
	for w, word := range other {
		set[w] |= word
	}
	return set
}

// each calls do with the number of each shard of the set, in ascending order.
func (set *shardSet) each(do func(i int)) {
	for w, word := range set {
		// word & (word-1) is word without its lowest bit, which was just used.
		for ; word != 0; word &= word - 1 {
			do(w*64 + bits.TrailingZeros64(word))
		}
	}
}

// lock locks the rows of all charges.
func (s *Store) lock(charges []store.Charge) shardSet {
	set := shardsOf(charges)
	set.each(func(i int) { s.shards[i].mu.Lock() })
	return set
}

// unlock unlocks the rows of shards.
func (s *Store) unlock(set shardSet) {
	set.each(func(i int) { s.shards[i].mu.Unlock() })
}

// lockLines locks the lines of shards. Whoever changes a waiter holds the lines of all charges of the waiter's booking. Lines are
// locked before any rows, and nobody who holds lines locks further lines.
func (s *Store) lockLines(set shardSet) {
	set.each(func(i int) { s.shards[i].lines.Lock() })
}

// unlockLines unlocks the lines of shards.
func (s *Store) unlockLines(set shardSet) {
	set.each(func(i int) { s.shards[i].lines.Unlock() })
}

// A clock reads microseconds since the Unix epoch and never goes back. It
// follows the monotonic clock; when the wall clock is found ahead of it (the
// machine was suspended, or the time was corrected), it catches up, so that
// calendar windows stay right.
type clock struct {
	base  time.Time    // with its monotonic reading
	begun int64        // base, in nanoseconds since the Unix epoch
	ahead atomic.Int64 // how much the wall clock has gained since, in nanoseconds
	next  atomic.Int64 // when, in nanoseconds since base, to compare the two again

	virtual *virtual.Clock // of a simulation, or nil if time is the machine's
}

// A timer is a [time.Timer], or the timer of a simulation.
type timer interface {
	Reset(time.Duration) bool
	Stop() bool
}

// compareEvery is how often, in nanoseconds, the wall clock is looked at, which is
// dearer to read.
const compareEvery = int64(100 * time.Millisecond)

// drift is the largest gain, in nanoseconds, that is not worth following: between
// the two clocks there is always a small difference.
const drift = int64(100 * time.Millisecond)

// start sets the clock to the machine's time.
func (c *clock) start() {
	c.base = time.Now()
	c.begun = c.base.UnixNano()
}

// now reads the clock in microseconds.
func (c *clock) now() int64 {
	if c.virtual != nil {
		return c.virtual.Now()
	}
	return c.nanos() / int64(time.Microsecond)
}

// since returns how long ago a reading of now was, with the part of a microsecond that now has cut off. A penalty is
// longer by this part, so that it does not end early.
func (c *clock) since(now int64) time.Duration {
	if c.virtual != nil {
		return 0
	}
	return time.Duration(c.nanos() - now*int64(time.Microsecond))
}

// nanos reads the clock in nanoseconds.
func (c *clock) nanos() int64 {
	elapsed := int64(time.Since(c.base))
	if elapsed >= c.next.Load() {
		c.next.Store(elapsed + compareEvery)
		c.compare()
	}
	return c.begun + elapsed + c.ahead.Load()
}

// compare follows the wall clock, if it has gained enough.
func (c *clock) compare() {
	t := time.Now()
	c.follow(t.UnixNano() - c.begun - int64(t.Sub(c.base)))
}

// follow sets ahead to the gain of the wall clock, in nanoseconds, if that is more
// than drift above the present value.
func (c *clock) follow(gain int64) {
	for {
		// Two goroutines may follow at once. The larger gain wins, and the clock never goes back.
		ahead := c.ahead.Load()
		if gain <= ahead+drift || c.ahead.CompareAndSwap(ahead, gain) {
			return
		}
	}
}

// afterFunc calls f in d.
func (c *clock) afterFunc(d time.Duration, f func()) timer {
	if c.virtual != nil {
		return c.virtual.AfterFunc(d, f)
	}
	return time.AfterFunc(d, f)
}

// wake closes the channel of a waiter that is to book again, or has a start.
func (c *clock) wake(ready chan struct{}) {
	if c.virtual != nil {
		c.virtual.Close(ready)
		return
	}
	close(ready)
}
