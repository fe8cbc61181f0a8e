// Package history keeps what a node knows of the budgets that it used: how many
// starts there were and when, what Redis said of them last, when their pauses
// end, and how far the servers' clocks are ahead of the node's. A Redis that
// lost budgets is told of it; see docs/internals/state-loss.md. It does no I/O, and callers
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
func Restore(snapshot map[string]Budget) *History {
	h := New()
	for key, b := range snapshot {
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
		k.Generations, k.Older = b.toReport(), b.Older
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
	Older       wire.Older
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
		o.Reply = o.Reply.withTime(b.Last, now)
	}
	// Starts that are over count no more, so the sum of what the row has counts, too.
	added := min(o.Starts.Count, max(b.newStarts(o.Generations, o.Older), o.Starts.Count-b.startsSince(now.Add(-o.Keep))))
	b.Generations, b.Older, b.Keep, b.Last = o.Generations, o.Older, max(o.Keep, b.Keep), o.Reply
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
// docs/internals/shares.md.
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

// Generations is how many generations of a row have a name, at most.
const Generations = wire.Lives

// A Generation of a row, whose ID is 0 if there was none.
type Generation = wire.Generation

// A Sample says that Count starts came to be known, and that none of them is later
// than By.
type Sample struct {
	By    time.Time
	Count int64
}

// A QuotaReply is what the store replied when it was told what is left of a budget.
type QuotaReply struct {
	Left       int64      // as the store has it
	Generation Generation // of the row: its present one, and how many starts it had
}

// A quotaReply is the last one.
type quotaReply struct {
	QuotaReply
	asked time.Time // when the store was told last
	at    time.Time // when it replied
	end   time.Time // of the window that it was about
}

// A Budget is what a node knows of one budget. Its zero value knows nothing.
type Budget struct {
	Generations [Generations]Generation // the present one first
	Older       wire.Older
	Unreported  Generation    // of starts that no row knows of; zero: there are none
	Starts      []Sample      // the oldest first
	Keep        time.Duration // for how long they matter
	Last        Reply
	quota       quotaReply
	lostAt      time.Time // when a loss was noted last
}

func (b *Budget) clone() *Budget {
	c := *b
	c.Starts = slices.Clone(b.Starts)
	return &c
}

// Expired reports whether all starts are so long ago that none matters.
func (b *Budget) Expired(now time.Time) bool {
	last := len(b.Starts) - 1
	return last < 0 || now.Sub(b.Starts[last].By) > b.Keep
}

// Add remembers some starts, together with the last ones if those are of the same part
// of the window.
func (b *Budget) Add(s Sample) {
	last := len(b.Starts) - 1
	if last >= 0 && s.By.Before(b.Starts[last].By) {
		s.By = b.Starts[last].By
	}
	if last > 0 && s.By.Sub(b.Starts[last-1].By) < b.Keep/wire.Parts {
		b.Starts[last] = Sample{s.By, b.Starts[last].Count + s.Count}
		return
	}
	if len(b.Starts) > wire.Parts {
		b.Starts = append(b.Starts[:0], b.Starts[1:]...)
	}
	b.Starts = append(b.Starts, s)
}

// startsSince counts the starts that may have been since a time: not fewer than were known.
func (b *Budget) startsSince(t time.Time) (n int64) {
	for _, s := range b.Starts {
		if !s.By.Before(t) {
			n += s.Count
		}
	}
	return n
}

// toReport returns the generations that Redis is told of: starts that no row knows of
// come first.
func (b *Budget) toReport() (all [Generations + 1]Generation) {
	if b.Unreported.ID == 0 {
		copy(all[:], b.Generations[:])
		return all
	}
	all[0] = b.Unreported
	copy(all[1:], b.Generations[:])
	return all
}

// newStarts counts the starts of generations that are news. Generations that only one of the two has
// a name for, because the other has younger ones, are compared with the starts without a name.
func (b *Budget) newStarts(told [Generations]Generation, without wire.Older) (sum int64) {
	oldest := max(oldestOf(told), oldestOf(b.Generations))
	older := without.Count - b.Older.Count
	for _, g := range told {
		if g.ID < oldest {
			older += g.Count
		} else {
			sum += max(0, g.Count-b.count(g.ID))
		}
	}
	for _, g := range b.Generations {
		if g.ID < oldest {
			older -= g.Count
		}
	}
	return sum + max(0, older)
}

// oldestOf returns the oldest of as many generations as can have a name; 0 if there are fewer.
func oldestOf(all [Generations]Generation) int64 {
	oldest := all[0].ID
	for _, g := range all {
		oldest = min(oldest, g.ID)
	}
	return oldest
}

// count is how many starts of a generation are known.
func (b *Budget) count(id int64) int64 {
	if b.Unreported.ID == id {
		return b.Unreported.Count
	}
	for _, g := range slices.Backward(b.Generations[:]) {
		if g.ID == id {
			return g.Count
		}
	}
	return 0
}
