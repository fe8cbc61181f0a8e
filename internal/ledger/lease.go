package ledger

import "slices"

// A Node is one of several stores that share rows: what it holds and waits for is kept as
// long as it renews its lease. The zero Node has no lease: its slots and places stay until
// it gives them back, so it must live as long as the rows.
type Node struct {
	ID    int64
	Lease int64 // for how many microseconds it is believed to live
}

// lease returns the lease of a node, renewed; nil if the node has none.
func (r *Row) lease(n Node) *lease {
	if n.ID == 0 {
		return nil
	}
	i := slices.IndexFunc(r.leases, func(l lease) bool { return l.node == n.ID })
	if i < 0 {
		i = len(r.leases)
		r.leases = append(r.leases, lease{node: n.ID})
	}
	l := &r.leases[i]
	l.until = max(l.until, r.seen+n.Lease)
	return l
}

// expireLeases forgets what the nodes held and waited for whose leases have ended, and
// nodes that have neither.
func (r *Row) expireLeases(now int64) {
	r.leases = slices.DeleteFunc(r.leases, func(l lease) bool {
		if l.until > now {
			return false
		}
		if r.slots != nil {
			r.slots.held -= l.held
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

// hold counts slots as held by a node.
func (r *Row) hold(cost int64, by Node) {
	r.slots.held += cost
	if l := r.lease(by); l != nil {
		l.held += cost
	}
}

// Holds has a node hold so many slots, and no more: it knows that itself. What it held counts again when its lease had ended
// while it could not renew it.
func (r *Row) Holds(n int64, by Node) {
	if l := r.lease(by); l != nil {
		r.slots.held += n - l.held
		l.held = n
	}
}

// release ends what a node holds, and no more: of a node whose lease has ended nothing is
// left.
func (r *Row) release(cost int64, by Node) {
	mine := r.slots.held
	if l := r.lease(by); l != nil {
		mine = l.held
		l.held -= min(cost, mine)
	} else {
		for _, l := range r.leases {
			mine -= l.held
		}
	}
	r.slots.held -= min(cost, mine)
}

// slotsLapse is for how many microseconds room is set aside for a waiter for slots whose node says nothing.
const slotsLapse = 250_000

// lapseSlots has the waiters for slots stand aside whose nodes were told that it is their turn, and say nothing. It reports whether room that was
// set aside is free again.
func (r *Row) lapseSlots() (lapsed bool) {
	if r.slots == nil {
		return false
	}
	for i := range r.slots.line {
		w := &r.slots.line[i]
		if w.silent = r.isSilent(w.node, slotsLapse); w.silent && w.called {
			w.called, lapsed = false, true
			r.slots.aside -= w.cost
		}
	}
	return lapsed
}
