package node

import (
	"maps"
	"math"
	"slices"
	"time"

	"github.com/fleetthrottle/throttle/internal/ledger"
	"github.com/fleetthrottle/throttle/store"
)

// A memory holds the callers of a node. If the node dies, the callers die, too. Steps do not change it: see [step].
type memory struct {
	node     ledger.Node
	arrivals *ledger.Arrivals
	line     places[waiter]     // waiters for a start
	slots    places[slotWaiter] // waiters for slots
	held     map[ledger.Key]holding
	doubts   int // how many owed ops there are that the rows may have or not, and that the memory does not have yet
	watches  map[ledger.Key]Watches
	recent   recent
	clock    reply // says how the store's clock stands, as exactly as one of the last steps has found out
	isDead   func(node, heard int64) bool
	timers   map[ledger.Key]*time.Timer // of lines through which this node must make its next pass: see ledger.Pass.End
	passes   map[ledger.Key]passed      // the last pass through each line in which callers of this node wait

	plans  bool          // the node plans its passes: see gather.go
	saving time.Duration // about the shortest time from when a step has its rows until they are saved: see noteSaving
}

// newMemory returns a memory without callers.
func newMemory(o Options, isDead func(node, heard int64) bool) memory {
	return memory{
		node: o.Node, arrivals: o.Arrivals, isDead: isDead,
		line: make(places[waiter]), slots: make(places[slotWaiter]), held: make(map[ledger.Key]holding),
		watches: make(map[ledger.Key]Watches), timers: make(map[ledger.Key]*time.Timer), passes: make(map[ledger.Key]passed),
	}
}

// A passed is the last pass of the node through a line.
type passed struct {
	comes int64     // until when no other node asks this one to come, a time of the store's clock. Zero means that it may be asked at any time.
	at    time.Time // when it was
	lists bool      // the row lists all waiters

	wanted bool // few waiters had places, and other nodes were told
}

// freshFor returns for how long a budget needs no step of the node's own, which would go through the budget's line and renew the node's lease. It returns 0 if the budget
// needs such a step now. The last pass through the line, whatever its step was made for, is enough until interval has passed since then. It is not enough if waiters have
// no places, or if callers of this node hold slots or wait for slots.
func (m *memory) freshFor(key ledger.Key, interval time.Duration) time.Duration {
	p := m.passes[key]
	if !p.lists || len(m.slots[key]) > 0 || m.held[key].n > 0 {
		return 0
	}
	return max(0, interval-time.Since(p.at))
}

// noteSaving notes how long it took from when a step had its rows until they were saved. The first step sets the estimate saving, and a step that is faster than the
// estimate lowers it to its own time. A slower step raises it by little, so that it stays near the shortest time: no start is to be later than its caller needs.
func (m *memory) noteSaving(took time.Duration) {
	if m.saving == 0 {
		m.saving = took
		return
	}
	m.saving = min(took, m.saving*5/4+time.Millisecond)
}

// isFar reports whether steps take so long to be saved that even a caller that finds room at once must not start before the rows are saved: see
// [ledger.Request].
func (m *memory) isFar() bool { return m.saving >= fastStep }

// A holding is what callers of this node hold of a Concurrency budget.
type holding struct {
	charge store.Charge
	n      int
}

// isIdle reports whether nothing is to be renewed and nobody is to hear news. Nodes that are not idle listen, which shows that they live.
func (m *memory) isIdle() bool {
	return len(m.line) == 0 && len(m.slots) == 0 && len(m.held) == 0 && len(m.watches) == 0
}

// waits reports whether anybody is to hear news.
func (m *memory) waits() bool { return len(m.line)+len(m.slots)+len(m.watches) > 0 }

// leased returns the budgets for which the node needs its lease: the budgets in whose lines the node has waiters and, with held,
// the budgets of which the node holds slots.
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

// recall has the callers who wait in lines for which isRecalled is true book again. They keep their places until they do, so a step that comes before that
// serves them as usual. Call recall only between steps.
func (m *memory) recall(isRecalled func(ledger.Key) bool) {
	// A step may still close the Ready of a waiter, so each gets a new one, to which nobody listens.
	for key, line := range m.line {
		for _, w := range line {
			if isRecalled(key) && w.now != nil && w.now.state == InLine {
				close(w.now.ready)
				w.now.ready = make(chan struct{})
			}
		}
	}

	for key, line := range m.slots {
		for _, w := range line {
			if isRecalled(key) {
				close(w.ready)
				w.ready = make(chan struct{})
			}
		}
	}
}

// watch notes a watch for each of its budgets, or with lasts false forgets it, and budgets without watches.
func (m *memory) watch(w *Watch, lasts bool) {
	w.budgets(func(key ledger.Key) {
		all := m.watches[key]
		switch {
		case lasts && all == nil:
			m.watches[key] = Watches{w: {}}
		case lasts:
			all[w] = struct{}{}
		default:
			delete(all, w)
			if len(all) == 0 {
				delete(m.watches, key)
			}
		}
	})
}

// concerning returns the part of h, the news of other nodes, that concerns this node. It notes in recent the useless starts that are not in that part, and that news were
// lost.
func (m *memory) concerning(h Heard) Heard {
	n, mine := h.News, ledger.News{}

	// Called names waiters by their node.
	for _, p := range n.Called {
		if p.Node == m.node.ID {
			mine.Called = append(mine.Called, p)
		}
	}

	// Without watches the news are remembered, for watches that begin soon.
	if len(m.watches) > 0 {
		mine.Useless = n.Useless
	} else {
		for _, u := range n.Useless {
			m.recent.note(u)
		}
	}

	// News that were lost may have been about any start.
	if h.Lost {
		m.recent.note(everything)
	}

	// A closed budget concerns waiters for a start, who may not want to wait for so long.
	for _, c := range n.Closed {
		if m.line[c.Key] != nil {
			mine.Closed = append(mine.Closed, c)
		}
	}

	// A line that has moved concerns the nodes that have waiters in the line.
	for _, key := range n.Moved {
		if m.line[key] != nil || m.slots[key] != nil {
			mine.Moved = append(mine.Moved, key)
		}
	}

	// An idle node has nothing to make up for.
	return Heard{mine, h.Lost && !m.isIdle()}
}

// warn notes in recent that starts became useless, and tells the watches over these starts.
func (m *memory) warn(u ledger.Useless) {
	m.recent.note(u)
	if u != everything {
		m.watches[u.Key].Warn(u)
		return
	}

	// A watch of several budgets is told once.
	all := make(Watches)
	for _, ofBudget := range m.watches {
		maps.Copy(all, ofBudget)
	}

	all.Warn(ledger.Useless{From: math.MinInt64, Before: math.MaxInt64})
}

// everything are news that may be about any start: each watch is told, and its caller asks about its start.
var everything = ledger.Useless{}

// recent are the last news of starts that became useless, for watches that begin after the
// news came: a start can become useless between its booking and its watch. News beyond the last 64 are forgotten. Then the watch is not told, and its caller
// learns of the news when it asks about its start before using it.
type recent struct {
	all  [64]recentNews
	next int // how many news were noted: the next takes the place of the oldest
}

// A recentNews is one of the recent news.
type recentNews struct {
	ledger.Useless
	at time.Time
}

// recentFor is for how long news are recent: longer than any caller takes from the booking to the watch.
const recentFor = 10 * time.Second

// note adds news that came now.
func (r *recent) note(u ledger.Useless) {
	r.all[r.next%len(r.all)] = recentNews{u, time.Now()}
	r.next++
}

// isAbout reports whether news of the last recentFor were about the start of a grant with these charges.
func (r *recent) isAbout(charges []store.Charge, g *store.Grant) bool {
	for i := range r.all[:min(r.next, len(r.all))] {
		if n := &r.all[i]; isAbout(&n.Useless, charges, g) && time.Since(n.at) < recentFor {
			return true
		}
	}
	return false
}

// isAbout reports whether news of a budget are about the start of a grant with these charges.
func isAbout(u *ledger.Useless, charges []store.Charge, g *store.Grant) bool {
	if *u == everything {
		return true
	}
	return u.From <= g.Handle.Start && g.Handle.Start < u.Before &&
		slices.ContainsFunc(charges, func(c store.Charge) bool { return c.Budget.Key == u.Key && !c.Shadow })
}
