package ledger

import (
	"cmp"
	"slices"
)

// Requests in flight: the slots of a Concurrency budget, the line for them, and
// the leases of the nodes that hold slots or wait.

// A Node is one of several stores that share rows: its slots and its places are
// kept as long as it renews its lease. The zero Node has no lease: its slots and
// places stay until it gives them back, so it must live as long as the rows.
type Node struct {
	ID    int64
	Lease int64 // for how many microseconds it is believed to live
}

// A lease says for how long a node is believed to live.
type lease struct {
	node  int64
	until int64
	held  int64 // the costs of its slots
	asked int64 // since when the node was asked to come because of a waiter. Zero means that it was not, or has come. See Pass.
	comes int64 // by when the node makes a step by itself, as it has said. Zero means that it has not said so, or was asked since.
}

// slots is what a Concurrency budget has in flight, and the line for it. Nobody
// knows when a request in flight ends, so waiters are told no time: they are
// called when there is room.
type slots struct {
	held   int64      // the costs of requests in flight
	aside  int64      // the costs of waiters that were called and have not come yet
	line   []slotWait // by arrival
	beyond int64      // the costs of waiters without a place, which are only counted
	asked  int64      // when a waiter came, left or took its lost place last
}

// A slotWait is a place in the line for slots.
type slotWait struct {
	place
	room   int64 // how much may be taken besides the cost and the reserve
	whole  int64 // how much may be taken besides the cost
	called bool
	silent bool // its node says nothing, so others pass the waiter; see lapseSlots
}

// slotsLapse is for how many microseconds room is set aside for a waiter for
// slots whose node says nothing.
const slotsLapse = 250_000

// taken returns how much no other request can have.
func (s *slots) taken() int64 { return s.held + s.aside }

// busy reports whether there is anything to remember.
func (s *slots) busy() bool { return s.held > 0 || len(s.line) > 0 || s.beyond > 0 }

// admits reports whether there is room for the rule's cost and reserve, and no
// waiter with an earlier arrival blocks the caller. An arrival of 0 stands for a
// caller that does not wait yet.
func (s *slots) admits(u *rule, arrival int64) bool {
	return s.taken() <= u.room && !s.blockedBehind(arrival)
}

// blockedBehind reports whether a waiter with an earlier arrival has no room. All
// waiters are earlier than a caller that does not wait yet, whose arrival is 0. A
// waiter blocks nobody if only its reserve is not free, if it was called, or while
// its node is silent.
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

	// Waiters that are only counted came after all waiters with a place, and before a caller that does not wait yet.
	return s.beyond > 0 && arrival == 0
}

// newest returns the latest arrival of the waiters with a place, 0 without any.
func (s *slots) newest() int64 {
	if len(s.line) == 0 {
		return 0
	}
	return s.line[len(s.line)-1].arrival
}

// lineUp puts a waiter in line, by its arrival.
func (s *slots) lineUp(u *rule, arrival, node int64) {
	i, _ := s.find(arrival, node)
	s.line = slices.Insert(s.line, i, slotWait{place: place{arrival: arrival, cost: u.cost, node: node}, room: u.room, whole: u.n - u.cost})
}

// leave takes a waiter out of the line, and reports whether it was called. The room
// that was set aside for it is free again. If the waiter has no place, its cost is
// taken off the count.
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

// find returns the index at which a node's arrival stands, or would stand, and
// whether it stands there.
func (s *slots) find(arrival, node int64) (int, bool) {
	return slices.BinarySearchFunc(s.line, place{arrival: arrival, node: node}, func(w slotWait, p place) int {
		return comparePlaces(w.place, p)
	})
}

// comparePlaces orders places by arrival, and equal arrivals by node.
func comparePlaces(a, b place) int {
	return cmp.Or(cmp.Compare(a.arrival, b.arrival), cmp.Compare(a.node, b.node))
}

// shorten leaves at most that number of places in the line, and counts the
// waiters that have no place any more. A stored row has no sum of the room set aside:
// room that was set aside for a waiter without a place is free there, and the waiter
// finds the room when it comes.
func (s *slots) shorten(places int) {
	for _, w := range s.line[min(len(s.line), places):] {
		s.beyond += w.cost
	}
	s.line = s.line[:min(len(s.line), places)]
}

// setAside sets room aside for the first waiters in line, as far as the room goes,
// and marks them as called. It calls tell with the place of each of them.
func (s *slots) setAside(tell func(p place)) {
	for i := range s.line {
		w := &s.line[i]
		switch {
		// A called waiter has its room already. The waiter of a silent node gets none, and others pass it.
		case w.called || w.silent:

		case s.taken() <= w.room:
			w.called = true
			s.aside += w.cost
			tell(w.place)

		// Nobody passes a waiter that has no room for its cost. Others pass a waiter that has no room for its reserve alone.
		case s.taken() > w.whole:
			return
		}
	}
}

// lease renews the lease of a node, or begins one, and returns it. It returns nil
// for the zero Node, which has none.
func (r *Row) lease(n Node) *lease {
	if n.ID == 0 {
		return nil
	}

	l := r.leaseOf(n.ID)
	if l == nil {
		r.leases = append(r.leases, lease{node: n.ID})
		l = &r.leases[len(r.leases)-1]
	}
	l.until = max(l.until, r.seen+n.Lease)
	return l
}

// leaseOf returns the lease of a node, nil if it has none.
func (r *Row) leaseOf(node int64) *lease {
	for i := range r.leases {
		if r.leases[i].node == node {
			return &r.leases[i]
		}
	}
	return nil
}

// expireLeases forgets the nodes whose leases have ended, with their slots and
// places.
func (r *Row) expireLeases(now int64) {
	r.leases = slices.DeleteFunc(r.leases, func(l lease) bool {
		if l.until > now {
			return false
		}

		if r.slots != nil {
			r.slots.held -= l.held

			// leave changes the line, so go through a copy. A waiter in the line has a place, so leave needs no cost.
			for _, w := range slices.Clone(r.slots.line) {
				if w.node == l.node {
					r.slots.leave(w.arrival, w.node, 0)
				}
			}
		}
		if r.queue != nil {
			r.queue.forget(l.node)
		}
		return true
	})
}

// Nodes returns the nodes that have a lease in the row.
func (r *Row) Nodes() (all []int64) {
	for i := range r.leases {
		all = append(all, r.leases[i].node)
	}
	return all
}

// LeaseEnd returns when the lease of a node ends, 0 if it has none.
func (r *Row) LeaseEnd(node int64) int64 {
	if l := r.leaseOf(node); l != nil {
		return l.until
	}
	return 0
}

// Bury ends the lease of a node that is known to be dead. The next request
// forgets the slots and places of the node.
func (r *Row) Bury(node int64) {
	if l := r.leaseOf(node); l != nil {
		l.until = 0
	}
}

// hold counts slots as held by a node, and renews the node's lease.
func (r *Row) hold(cost int64, by Node) {
	r.slots.held += cost
	if l := r.lease(by); l != nil {
		l.held += cost
	}
}

// Holds sets the number of slots that a node holds to n, as the node itself
// knows it, and renews the node's lease. If the lease had ended, because the node
// could not renew it, the slots count again. For the zero Node it does nothing.
func (r *Row) Holds(n int64, by Node) {
	if l := r.lease(by); l != nil {
		r.slots.held += n - l.held
		l.held = n
	}
}

// release frees slots that a node holds, at most as many as the node holds, and
// renews the node's lease. A node whose lease has ended holds none.
func (r *Row) release(cost int64, by Node) {
	mine := r.slots.held
	if l := r.lease(by); l != nil {
		mine = l.held
		l.held -= min(cost, mine)
	} else {
		// A node without a lease holds the slots that are in no lease.
		for _, l := range r.leases {
			mine -= l.held
		}
	}
	r.slots.held -= min(cost, mine)
}

// lapseSlots notes which waiters for slots have silent nodes: see isSilent. It frees
// the room that was set aside for these waiters, and reports whether there was any.
func (r *Row) lapseSlots() (lapsed bool) {
	if r.slots == nil {
		return false
	}
	for i := range r.slots.line {
		w := &r.slots.line[i]
		w.silent = r.isSilent(w.node, slotsLapse)
		if w.silent && w.called {
			w.called, lapsed = false, true
			r.slots.aside -= w.cost
		}
	}
	return lapsed
}

// Renew renews the lease of the node in all rows. Open may have forgotten dead nodes
// there: Renew calls waiters for the slots that those nodes held, and notes the lines
// that may move because those nodes' waiters are gone. A node renews in time while it
// holds slots or has waiters.
func (q *Request) Renew() {
	for i := range q.Searches {
		// The row untouched is shared, and never written to.
		if r := q.Searches[i].row; r != &untouched {
			r.lease(q.Node)
		}
		q.setAside(i)
	}
	q.noteMoved()
}

// Relist gives a waiter for the slots of the i-th charge its lost place back, and
// calls waiters as far as there is room.
func (q *Request) Relist(i int, arrival int64) {
	s := &q.Searches[i]
	s.row.lease(q.Node) // the row had none, if it listed no place of the node
	s.row.slots.asked = q.Now

	// The waiter may be among those that are only counted: take it off the count first.
	s.row.slots.leave(arrival, q.Node.ID, s.rule.cost)
	s.row.slots.lineUp(&s.rule, arrival, q.Node.ID)
	q.setAside(i)
}
