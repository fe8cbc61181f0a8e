package storetest

import (
	"cmp"
	"slices"

	"github.com/fleetthrottle/throttle/store"
)

// A line is what one budget has in flight, and its waiters for room.
type line struct {
	held  int
	waits []*waiter // by arrival
}

// A waiter has a place in a line.
type waiter struct {
	arrival int64
	charge  store.Charge
	called  bool          // room is set aside for it
	ready   chan struct{} // closed when it is called
}

// lines are the lines of all budgets: the definition of Concurrency charges.
type lines struct {
	of      map[[16]byte]*line // by the key of the budget
	arrived int64              // the last arrival
}

// newLines returns lines in which nobody waits, and nothing is held.
func newLines() *lines { return &lines{of: make(map[[16]byte]*line)} }

// inFlight reports whether the charge is for requests in flight.
func inFlight(c store.Charge) bool { return c.Limit.Kind() == store.KindConcurrency }

// at returns the line of the charge's budget, a new one if there is none.
func (l *lines) at(c store.Charge) *line {
	if l.of[c.Budget.Key] == nil {
		l.of[c.Budget.Key] = new(line)
	}
	return l.of[c.Budget.Key]
}

// taken is the number of slots held or set aside.
func (l *line) taken() int {
	slots := l.held
	for _, w := range l.waits {
		if w.called {
			slots += w.charge.Cost
		}
	}
	return slots
}

// lets reports whether a caller with an arrival has room for its charge, and no earlier waiter keeps the room. A waiter
// keeps room if its cost does not fit. One that waits only because of its KeepFree keeps none.
func (l *line) lets(c store.Charge, arrival int64) bool {
	for _, w := range l.waits {
		if w.arrival < arrival && !w.called && l.taken()+w.charge.Cost > w.charge.Limit.N() {
			return false
		}
	}
	return l.fits(c)
}

// fits reports whether there is room for the charge.
func (l *line) fits(c store.Charge) bool { return l.taken()+c.Cost <= c.Limit.N()-c.KeepFree }

// lacking returns the indices of the charges that do not let a booking start now. before is the
// caller's place in line, or nil for a caller that comes for the first time.
func (l *lines) lacking(k store.Booking, before *waiter) (list []int) {
	arrival := l.arrived + 1
	if before != nil {
		arrival = before.arrival
	}

	for i, c := range k.Charges {
		if !inFlight(c) || c.Shadow {
			continue
		}

		// A caller that was called has its turn, whoever came before it.
		at := l.at(c)
		itsTurn := before != nil && before.called && before.charge.Budget == c.Budget
		if canStart := at.lets(c, arrival) || itsTurn && at.fits(c); !canStart {
			list = append(list, i)
		}
	}

	return list
}

// hold begins a booking's requests in flight.
func (l *lines) hold(k store.Booking) { l.change(k, 1) }

// release ends a booking's requests in flight.
func (l *lines) release(k store.Booking) { l.change(k, -1) }

// change adds the costs of a booking's Concurrency charges to what is held, or subtracts them if sign is -1.
func (l *lines) change(k store.Booking, sign int) {
	for _, c := range k.Charges {
		if inFlight(c) {
			l.at(c).held += sign * c.Cost
		}
	}
}

// join gives the charge a place in its budget's line: at the end or, for a caller that had the place
// before, by its earlier arrival.
func (l *lines) join(c store.Charge, before *waiter) *waiter {
	w := &waiter{charge: c, ready: make(chan struct{})}
	if before != nil {
		w.arrival = before.arrival
	} else {
		l.arrived++
		w.arrival = l.arrived
	}
	at := l.at(c)
	at.waits = append(at.waits, w)
	slices.SortFunc(at.waits, func(a, b *waiter) int { return cmp.Compare(a.arrival, b.arrival) })
	return w
}

// leave ends a place in line. What was set aside for it is free again.
func (l *lines) leave(w *waiter) {
	at := l.at(w.charge)
	at.waits = slices.DeleteFunc(at.waits, func(o *waiter) bool { return o == w })
}

// call sets room aside for each waiter whose turn has come, and calls it.
func (l *lines) call() {
	for _, at := range l.of {
		for _, w := range at.waits {
			if !w.called && at.lets(w.charge, w.arrival) {
				w.called = true
				close(w.ready)
			}
		}
	}
}

// callers returns the least and the largest number of callers that a store may report. If all in line cost the same,
// both are their number. Otherwise a store may know only the first, so both are the bounds that the costs allow.
func (l *line) callers() (least, most int) {
	_, waiting, callers := l.status()
	cheapest, dearest := waiting, 1
	for _, w := range l.waits {
		cheapest, dearest = min(cheapest, w.charge.Cost), max(dearest, w.charge.Cost)
	}
	if callers == 0 || cheapest == dearest {
		return callers, callers
	}
	return (waiting + dearest - 1) / dearest, waiting / cheapest
}

// status returns the slots in flight, the slots that callers wait for, and the number of these callers.
func (l *line) status() (used, waiting, callers int) {
	for _, w := range l.waits {
		waiting += w.charge.Cost
	}
	return l.held, waiting, len(l.waits)
}
