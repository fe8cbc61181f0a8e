package redisstore

import (
	"context"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/fleetthrottle/throttle"
	"github.com/fleetthrottle/throttle/memstore"
	"github.com/fleetthrottle/throttle/redisstore/internal/history"
	"github.com/fleetthrottle/throttle/redisstore/internal/wire"
)

// An island is where a node keeps its share of the limits by itself, in memory,
// while Redis is away; with [Open] it keeps penalties only.
type island struct {
	store      *Store
	divisor    int       // of the share; 0: there are no limits
	left       time.Time // from when on the others leave room
	generation int64     // of this island's starts in the rows of Redis
	local      *memstore.Store

	mu     sync.Mutex
	closed bool // on the way back
	starts map[string]*tally
	stays  map[*stay]struct{}
	paused map[string]time.Time
}

// A tally is what was started of one budget.
type tally struct {
	charge throttle.Charge
	count  int64
	starts history.Budget
}

// islandMark begins the marks of starts on an island. Those in Redis are times,
// and much less.
const islandMark = 1 << 62

func newIsland(s *Store, divisor int, left time.Time) *island {
	isl := &island{
		store: s, left: left, generation: 1 + rand.Int64N(1<<53-1), local: memstore.New(), divisor: divisor,
		starts: make(map[string]*tally), stays: make(map[*stay]struct{}), paused: make(map[string]time.Time),
	}
	if s.bridges.mode == Open {
		isl.divisor = 0
	}
	return isl
}

// part returns the node's part of a charge. ok is false if it has none.
func (isl *island) part(c throttle.Charge) (part throttle.Charge, ok bool) {
	c.Over = 0
	if isl.divisor == 0 {
		c.Limit, c.Reserve, c.Pace, c.Jitter, c.Shadow = throttle.Unlimited(), 0, 0, 0, false
		return c, true
	}
	if wire.Unlimited(&c) {
		return c, true // there is nothing to share
	}
	n, d := c.Limit.N(), isl.divisor
	limit := throttle.SlidingWindow(share(n, d), c.Limit.Per())
	switch c.Limit.Kind() {
	case throttle.KindLeakyBucket, throttle.KindConcurrency:
		return c, c.Shadow
	case throttle.KindTokenBucket:
		limit = throttle.TokenBucket(n, c.Limit.Per()*time.Duration(d), share(c.Limit.Capacity(), d))
	case throttle.KindFixedWindow:
		if c.Limit.Per() == 0 {
			limit = throttle.SlidingWindow(share(n, d), keep(&c))
		}
	}
	reserve := (c.Reserve + d - 1) / d
	if c.Cost > limit.Capacity()-reserve {
		return c, c.Shadow
	}
	c.Limit, c.Reserve = limit, reserve
	return c, true
}

// parts returns the booking as the island has it, and from when on it is good.
func (isl *island) parts(b *throttle.Booking) (own throttle.Booking, opens time.Time, ok bool) {
	own = *b
	own.Horizon, own.Turn = 0, nil // nobody is called in a line of an island that ends
	own.Charges = make([]throttle.Charge, len(b.Charges))
	if own.Instead -= islandMark; own.Instead < 0 {
		own.Instead = 0 // it was booked in Redis, and stays taken
	}
	for i, c := range b.Charges {
		part, ok := isl.part(c)
		if !ok {
			return own, noTime, false
		}
		if own.Charges[i] = part; isl.divisor > 0 && !c.Shadow && !wire.Unlimited(&c) {
			opens = latest(opens, isl.opens(&c, &part))
		}
	}
	return own, opens, true
}

// opens returns when the share of a budget does: a window after the last start
// that anybody can have booked in Redis.
func (isl *island) opens(c, part *throttle.Charge) time.Time {
	last := isl.store.history.LastStart(isl.store.key(&c.Budget)).Add(aloneAfter)
	return latest(isl.left, last).Add(part.Span())
}

func latest(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

// book books on the island, or returns when that will be possible.
func (isl *island) book(b *throttle.Booking) (g throttle.Grant, opens time.Time, booked bool) {
	isl.mu.Lock()
	defer isl.mu.Unlock()
	own, opens, ok := isl.parts(b)
	now := time.Now()
	if !ok || isl.closed || opens.After(now) {
		if isl.closed {
			opens = noTime
		}
		return g, opens, false
	}
	isl.closeKnown(own.Charges)
	g, _ = isl.local.Book(context.Background(), &own) // a memory does not fail
	if takeOver(b, &own); !g.OK {
		return g, opens, true
	}
	if g.Wait <= confirmed {
		isl.count(b.Charges, now.Add(g.Wait))
	}
	g.Mark += islandMark
	return g, opens, true
}

// confirmed is how long a start may be ahead that is used without being confirmed.
const confirmed = 50 * time.Millisecond

// closeKnown closes what the node knows to be closed by a penalty. The island is
// locked.
func (isl *island) closeKnown(charges []throttle.Charge) {
	for i := range charges {
		c := &charges[i]
		key := isl.store.key(&c.Budget)
		until := isl.store.pauses.End(key)
		if until.After(isl.paused[key]) {
			isl.paused[key] = until
			_ = isl.local.Pause(context.Background(), *c, time.Until(until))
		}
	}
}

// count notes starts that are used. The island is locked.
func (isl *island) count(charges []throttle.Charge, start time.Time) {
	for i := range charges {
		c := &charges[i]
		if wire.Holds(c) || wire.Unlimited(c) {
			continue
		}
		isl.add(c, int64(c.Cost), start)
	}
}

// add notes more of a budget.
func (isl *island) add(c *throttle.Charge, cost int64, start time.Time) {
	key := isl.store.key(&c.Budget)
	t := isl.starts[key]
	if t == nil {
		t = &tally{charge: *c}
		isl.starts[key] = t
	}
	t.starts.Keep = max(t.starts.Keep, keep(c))
	t.count += cost
	t.starts.Add(history.Sample{By: start, Count: cost})
}

// span is the longest time for which its starts matter.
func (isl *island) span() (longest time.Duration) {
	isl.mu.Lock()
	defer isl.mu.Unlock()
	for _, t := range isl.starts {
		longest = max(longest, t.starts.Keep)
	}
	return longest
}

// close ends what can be booked, and wakes all who wait. It returns true.
func (isl *island) close() bool {
	isl.mu.Lock()
	defer isl.mu.Unlock()
	isl.closed = true
	for st := range isl.stays {
		st.tell()
	}
	return true
}

// open takes the end back: Redis is away again.
func (isl *island) open(left time.Time) {
	isl.mu.Lock()
	defer isl.mu.Unlock()
	isl.closed, isl.left = false, left
}
