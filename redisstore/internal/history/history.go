// Package history keeps what a node knows of the budgets that it used: how many
// starts there were and when, what Redis said of them last, when their pauses
// end, and how far the servers' clocks are ahead of the node's. A Redis that
// lost budgets is told of it; see docs/state-loss.md. It does no I/O, and callers
// pass the time in.
package history

import (
	"maps"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/fleetthrottle/throttle/redisstore/internal/wire"
)

// MostBudgets bounds how many budgets a node remembers.
const MostBudgets = 1 << 14

// A History is what a node knows of each budget, by the budget's key in Redis.
type History struct {
	mu      sync.Mutex
	budgets map[string]*Budget
}

// New returns a History that knows nothing.
func New() *History { return &History{budgets: make(map[string]*Budget)} }

// Restore returns a History that knows what a Snapshot holds.
func Restore(of map[string]Budget) *History {
	h := New()
	for key, b := range of {
		h.budgets[key] = b.clone()
	}
	return h
}

// Snapshot returns a copy of all that is known.
func (h *History) Snapshot() map[string]Budget {
	h.mu.Lock()
	defer h.mu.Unlock()
	all := make(map[string]Budget, len(h.budgets))
	for key, b := range h.budgets {
		all[key] = *b.clone()
	}
	return all
}

// Known returns what Redis is told of a budget with every booking for the group, in case
// it lost it. The server may have just told its time; else serverTime is 0.
func (h *History) Known(key, group string, now time.Time, serverTime int64) wire.Known {
	h.mu.Lock()
	defer h.mu.Unlock()
	b := h.budgets[key]
	if b == nil {
		return wire.Known{}
	}
	k := b.Last.clockSample(now, serverTime)
	k.Record = b.Last.record(group, now)
	if !b.Expired(now) {
		k.Generations = b.reported()
		for _, s := range slices.Backward(b.Starts) {
			k.Starts.Add(wire.Sample{Ago: now.Sub(s.By), Count: s.Count})
		}
	}
	return k
}

// An Observation is what a reply says of a budget.
type Observation struct {
	Reply       Reply
	Generations [Generations]Generation
	Starts      Sample        // those that count now
	Keep        time.Duration // for how long starts matter
}

// Observe remembers what a reply said of a budget. It reports whether Redis had
// lost the budget.
func (h *History) Observe(key string, o Observation, now time.Time) (lost bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	b := h.budget(key)
	lost = !b.Expired(now) && !slices.ContainsFunc(b.Generations[:], func(g Generation) bool { return g.ID == o.Generations[0].ID })
	if o.Reply.By.IsZero() {
		o.Reply = o.Reply.repeated(b.Last, now)
	}
	// A row names few generations, so the sum of what it has counts, too.
	added := min(o.Starts.Count, max(b.unknown(o.Generations), o.Starts.Count-b.since(now.Add(-o.Keep))))
	b.Generations, b.Keep, b.Last = o.Generations, max(o.Keep, b.Keep), o.Reply
	if added > 0 {
		b.Add(Sample{o.Starts.By, added})
	}
	return lost
}

// LastStart returns when the last start of a budget is, as far as is known; the zero
// time if there is none.
func (h *History) LastStart(key string) (last time.Time) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if b := h.budgets[key]; b != nil && len(b.Starts) > 0 {
		last = b.Starts[len(b.Starts)-1].By
	}
	return last
}

// AddUnreported remembers starts of which Redis does not know, none of them later than
// those of the sample, as a generation of their own until MarkReported: see
// docs/outages.md.
func (h *History) AddUnreported(key string, starts Sample, keep time.Duration) {
	h.mu.Lock()
	defer h.mu.Unlock()
	b := h.budget(key)
	if b.Unreported.ID == 0 {
		ordinal := int64(wire.LastOrdinal) // nothing is known of others: it must not seem to be older than they are
		if present := b.Generations[0].ID; present != 0 {
			ordinal = present / wire.Names
		}
		b.Unreported.ID = ordinal*wire.Names + 1 + rand.Int64N(wire.Names-1)
	}
	b.Unreported.Count += starts.Count
	b.Keep = max(b.Keep, keep)
	b.Add(starts)
}

// HasUnreported reports whether there are such starts that matter.
func (h *History) HasUnreported(key string, now time.Time) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	b := h.budgets[key]
	return b != nil && b.Unreported.ID != 0 && !b.Expired(now)
}

// MarkReported notes that Redis was told of a budget's unreported starts. A reply to
// an earlier call does not mean that.
func (h *History) MarkReported(key string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if b := h.budgets[key]; b != nil {
		b.Unreported = Generation{}
	}
}

// announceEvery is for how long one announcement of a loss is enough.
const announceEvery = time.Second

// NoteLoss notes that a budget was lost. It reports whether the node remembers the
// budget and has not noted the loss before.
func (h *History) NoteLoss(key string, now time.Time) (news bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	b := h.budgets[key]
	if b == nil || now.Sub(b.lostAt) < announceEvery {
		return false
	}
	b.lostAt = now
	return true
}

// budget returns what is known of a budget. If there are too many it forgets another.
func (h *History) budget(key string) *Budget {
	b := h.budgets[key]
	if b != nil {
		return b
	}
	if len(h.budgets) >= MostBudgets {
		for other := range maps.Keys(h.budgets) { // in random order
			delete(h.budgets, other)
			break
		}
	}
	b = new(Budget)
	h.budgets[key] = b
	return b
}
