package node

import (
	"cmp"
	"maps"
	"slices"
	"time"

	"github.com/fleetthrottle/throttle/internal/ledger"
	"github.com/fleetthrottle/throttle/store"
)

// A memory is what a node remembers of its callers. If the node dies, the callers die, too.
type memory struct {
	node     ledger.Node
	arrivals *ledger.Arrivals
	line     map[ledger.Key]map[int64]*waiter     // by arrival, of the waiters for a start
	slots    map[ledger.Key]map[int64]*slotWaiter // by arrival, of the waiters for slots
	held     map[ledger.Key]*holding
	doubts   int // ops of which it is not known whether rows have them, and the memory does not have yet
	watches  map[*watch]struct{}
	recent   recent
	isDead   func(node int64) bool
	timers   map[ledger.Key]*time.Timer // of lines whose head is a waiter of this node
}

func newMemory(o Options, isDead func(node int64) bool) memory {
	return memory{
		node: o.Node, arrivals: o.Arrivals, isDead: isDead,
		line: make(map[ledger.Key]map[int64]*waiter), slots: make(map[ledger.Key]map[int64]*slotWaiter),
		held: make(map[ledger.Key]*holding), watches: make(map[*watch]struct{}), timers: make(map[ledger.Key]*time.Timer),
	}
}

// A waiter is a caller that waits, or waited, for a start. It is the Turn of its caller.
type waiter struct {
	ledger.Waiter
	booking store.Booking
	ends    int64         // when the caller's MaxWait is over, in microseconds of the store's clock
	ready   chan struct{} // the Ready of the caller's grant
	grant   store.Grant   // the start that was booked for the caller while it waited, if OK
	reply   reply         // by which the node knows of the grant
}

// A reply is of a step that has booked for a waiter.
type reply struct {
	now             int64     // the time of the step, by the store's clock
	asked, received time.Time // the store's clock was read between the two
	at              time.Time // when the step was saved; zero: it is not
}

// A slotWaiter is a caller that waits for the slots of a charge.
type slotWaiter struct {
	booking store.Booking
	charge  int
	ready   chan struct{}
}

// A holding is what callers of this node hold of a Concurrency budget.
type holding struct {
	charge store.Charge
	n      int
}

// isIdle reports whether nothing is to be renewed and nobody is to hear news. Nodes that are not idle
// listen: that shows that they live.
func (m *memory) isIdle() bool {
	return len(m.line) == 0 && len(m.slots) == 0 && len(m.held) == 0 && len(m.watches) == 0
}

// waits reports whether anybody is to hear news.
func (m *memory) waits() bool { return len(m.line)+len(m.slots)+len(m.watches) > 0 }

// put sets, or with nil deletes, what belongs to an arrival in the line of a budget.
func put[W any](all map[ledger.Key]map[int64]*W, key ledger.Key, arrival int64, w *W) {
	switch line := all[key]; {
	case w != nil && line == nil:
		all[key] = map[int64]*W{arrival: w}
	case w != nil:
		line[arrival] = w
	default:
		if delete(line, arrival); len(line) == 0 {
			delete(all, key)
		}
	}
}

// noteLine notes in which line a waiter stands, and dropLine that the waiter may not stand there any more.
func (m *memory) noteLine(w *waiter) {
	if key, at, waits := w.Line(); waits {
		put(m.line, key, at, w)
	}
}

func (m *memory) dropLine(w *waiter) {
	if key, at, waits := w.Line(); waits {
		put(m.line, key, at, nil)
	}
}

// hold counts slots that a caller holds from now on, or with a negative sign not any more.
func (m *memory) hold(b *store.Booking, sign int) {
	for i := range b.Charges {
		c := &b.Charges[i]
		if c.Limit.Kind() != store.KindConcurrency {
			continue
		}
		h := m.held[c.Budget.Key]
		if h == nil {
			h = new(holding)
			m.held[c.Budget.Key] = h
		}
		h.charge = *c
		if h.n += sign * c.Cost; h.n <= 0 {
			delete(m.held, c.Budget.Key)
		}
	}
}

// charge returns a charge of a budget in which the node needs its lease; false if there is none.
func (m *memory) charge(key ledger.Key) (c store.Charge, ok bool) {
	if h := m.held[key]; h != nil {
		return h.charge, true
	}
	for _, w := range m.line[key] {
		return chargeOf(&w.booking, key), true
	}
	for _, w := range m.slots[key] {
		return chargeOf(&w.booking, key), true
	}
	return c, false
}

// leased returns the budgets in whose lines the node has waiters and, if held says so, those of which it holds something: there
// the node needs its lease.
func (m *memory) leased(held bool) []ledger.Key {
	all := make(map[ledger.Key]struct{})
	if held {
		for key := range m.held {
			all[key] = struct{}{}
		}
	}
	for key := range m.line {
		all[key] = struct{}{}
	}
	for key := range m.slots {
		all[key] = struct{}{}
	}
	return slices.Collect(maps.Keys(all))
}

func chargeOf(b *store.Booking, key ledger.Key) store.Charge {
	i := slices.IndexFunc(b.Charges, func(c store.Charge) bool { return c.Budget.Key == key })
	return b.Charges[i]
}

// concerning returns the part of what other nodes have done that concerns this node.
func (m *memory) concerning(h Heard) Heard {
	n, mine := h.News, ledger.News{}
	for _, p := range n.Called {
		if p.Node == m.node.ID {
			mine.Called = append(mine.Called, p)
		}
	}
	if len(m.watches) > 0 {
		mine.Useless = n.Useless
	} else {
		for _, u := range n.Useless {
			m.recent.note(u)
		}
	}
	if h.Lost {
		m.recent.note(everything)
	}
	for _, c := range n.Closed {
		if m.line[c.Key] != nil {
			mine.Closed = append(mine.Closed, c)
		}
	}
	for _, key := range n.Moved {
		if m.line[key] != nil || m.slots[key] != nil {
			mine.Moved = append(mine.Moved, key)
		}
	}
	return Heard{mine, h.Lost && !m.isIdle()}
}

// warn tells the watches over starts that became useless, the earliest start first, so that their
// callers book anew in that order.
func (m *memory) warn(u ledger.Useless) {
	m.recent.note(u)
	var all []*watch
	for w := range m.watches {
		if w.isAbout(&u) {
			all = append(all, w)
		}
	}
	slices.SortFunc(all, func(a, b *watch) int { return cmp.Compare(a.grant.Handle.Start, b.grant.Handle.Start) })
	for _, w := range all {
		if u.Lifted {
			w.lifted.Store(true)
		}
		w.tell()
	}
}

// arrivalsOf returns the arrivals of waiters, the first ones first.
func arrivalsOf[W any](line map[int64]*W) []int64 { return slices.Sorted(maps.Keys(line)) }
