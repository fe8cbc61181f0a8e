package ledger

import (
	"cmp"
	"slices"
)

// taken is what no other request can have.
func (s *slots) taken() int64 { return s.held + s.aside }

// busy reports whether there is anything to remember.
func (s *slots) busy() bool { return s.held > 0 || len(s.line) > 0 || s.beyond > 0 }

// admits reports whether there is room for the rule's cost, and no waiter that came
// before that arrival waits for it. The arrival is 0 of a caller that does not wait yet.
func (s *slots) admits(u *rule, arrival int64) bool {
	return s.taken() <= u.room && !s.blockedBehind(arrival)
}

// blockedBehind reports whether a waiter that came before has no room: all did of a caller that
// does not wait yet. A waiter does not block others if it only waits for more to be free than its cost.
func (s *slots) blockedBehind(arrival int64) bool {
	for i := range s.line {
		w := &s.line[i]
		if arrival != 0 && w.arrival >= arrival {
			return false
		}
		if !w.called && !w.silent && s.taken() > w.whole {
			return true
		}
	}
	return s.beyond > 0 && arrival == 0
}

// newest is the latest arrival of all.
func (s *slots) newest() int64 {
	if len(s.line) == 0 {
		return 0
	}
	return s.line[len(s.line)-1].arrival
}

// lineUp puts a request in line.
func (s *slots) lineUp(u *rule, arrival, node int64) {
	i, _ := s.find(arrival, node)
	s.line = slices.Insert(s.line, i, slotWait{place: place{arrival: arrival, cost: u.cost, node: node}, room: u.room, whole: u.n - u.cost})
}

// leave takes a request out of the line, if it is in it, and reports whether it
// was called. What was set aside for it is free again. A waiter without a place is taken
// off the count.
func (s *slots) leave(arrival, node, cost int64) (called bool) {
	i, ok := s.find(arrival, node)
	if !ok {
		s.beyond -= min(cost, s.beyond)
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
	return slices.BinarySearchFunc(s.line, place{arrival: arrival, node: node}, func(w slotWait, p place) int {
		return comparePlaces(w.place, p)
	})
}

// comparePlaces orders places by arrival.
func comparePlaces(a, b place) int {
	return cmp.Or(cmp.Compare(a.arrival, b.arrival), cmp.Compare(a.node, b.node))
}

// shorten leaves so many places in the line, and counts the other waiters. What was set
// aside for one of them is free again: it finds it when it comes.
func (s *slots) shorten(places int) {
	for _, w := range s.line[min(len(s.line), places):] {
		s.beyond += w.cost
	}
	s.line = s.line[:min(len(s.line), places)]
}

// setAside sets room aside for the first in line, as far as it goes, and tells which.
func (s *slots) setAside(tell func(p place)) {
	for i := range s.line {
		w := &s.line[i]
		switch {
		case w.called || w.silent:
		case s.taken() <= w.room:
			w.called = true
			s.aside += w.cost
			tell(w.place)
		case s.taken() > w.whole:
			return
		}
	}
}
