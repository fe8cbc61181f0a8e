package ledger

import (
	"cmp"
	"slices"

	"github.com/fleetthrottle/throttle"
)

// taken is what nobody else can have.
func (s *slots) taken() int64 { return s.held + s.aside }

// busy reports whether there is anything to remember.
func (s *slots) busy() bool { return s.held > 0 || len(s.line) > 0 }

// admits reports whether there is room for the rule's cost, and no waiter who came
// before that arrival waits for it.
func (s *slots) admits(u *rule, arrival int64) bool {
	return s.taken() <= u.room && !s.blockedBehind(arrival)
}

// blockedBehind reports whether a waiter who came before has no room. A waiter does not
// block others if it only waits for more to be free than its cost.
func (s *slots) blockedBehind(arrival int64) bool {
	for i := range s.line {
		w := &s.line[i]
		if w.arrival >= arrival {
			return false
		}
		if !w.called && s.taken() > w.whole {
			return true
		}
	}
	return false
}

// lineUp puts a request in line.
func (s *slots) lineUp(u *rule, arrival, node int64) {
	i, _ := s.find(arrival, node)
	s.line = slices.Insert(s.line, i, slotWait{place: place{arrival, u.cost, node}, room: u.room, whole: u.n - u.cost})
}

// leave takes a request out of the line, if it is in it, and reports whether it
// was called. What was set aside for it is free again.
func (s *slots) leave(arrival, node int64) (called bool) {
	i, ok := s.find(arrival, node)
	if !ok {
		return false
	}
	w := s.line[i]
	s.line = slices.Delete(s.line, i, i+1)
	if w.called {
		s.aside -= w.cost
	}
	return w.called
}

// find returns the place in line of a node's arrival.
func (s *slots) find(arrival, node int64) (int, bool) {
	return slices.BinarySearchFunc(s.line, arrival, func(w slotWait, a int64) int {
		return cmp.Or(cmp.Compare(w.arrival, a), cmp.Compare(w.node, node))
	})
}

// setAside sets room aside for the first in line, as far as it goes, and tells which.
func (s *slots) setAside(tell func(p place)) {
	for i := range s.line {
		w := &s.line[i]
		switch {
		case w.called:
		case s.taken() <= w.room:
			w.called = true
			s.aside += w.cost
			tell(w.place)
		case s.taken() > w.whole:
			return
		}
	}
}

// hold counts slots as held by a node.
func (r *Row) hold(cost int64, by Node) {
	r.slots.held += cost
	if l := r.lease(by); l != nil {
		l.held += cost
	}
}

// release ends what a node holds. Of a node whose lease has ended nothing is left to end.
func (r *Row) release(cost int64, by Node) {
	if l := r.lease(by); l != nil {
		cost = min(cost, l.held)
		l.held -= cost
	}
	r.slots.held -= cost
}

func isConcurrency(c throttle.Charge) bool { return c.Limit.Kind() == throttle.KindConcurrency }
