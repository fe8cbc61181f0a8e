package node

import (
	"slices"

	"github.com/fleetthrottle/throttle/internal/ledger"
	"github.com/fleetthrottle/throttle/store"
)

// relistMost is how many waiters without a place ask again in one step.
const relistMost = 32

// settle does what news of the step ask of this node, and notes what others must know.
func (st *step) settle() {
	for !IsEmpty(&st.news) {
		n := st.news
		st.news = ledger.News{}
		for _, p := range n.Called {
			if p.Node != st.node.ID {
				st.told.News.Called = append(st.told.News.Called, p)
				st.tell(p.Node)
			}
		}
		if len(n.Useless)+len(n.Closed) > 0 {
			st.told.News.Useless = append(st.told.News.Useless, n.Useless...)
			st.told.News.Closed = append(st.told.News.Closed, n.Closed...)
			st.told.All = true
		}
		st.hear(n)
	}
}

// tell has a node hear of the step at once.
func (st *step) tell(node int64) {
	if !slices.Contains(st.told.Nodes, node) {
		st.told.Nodes = append(st.told.Nodes, node)
	}
}

// hear does what news ask of this node.
func (st *step) hear(n ledger.News) {
	for _, p := range n.Called {
		if w := st.slots[p.Key][p.Arrival]; w != nil && p.Node == st.node.ID {
			st.setSlot(p.Key, p.Arrival, nil)
			st.wake = append(st.wake, w.ready)
		}
	}
	st.useless = append(st.useless, n.Useless...)
	for _, c := range n.Closed {
		st.dismiss(c)
	}
	for i, key := range n.Moved {
		if !slices.Contains(n.Moved[:i], key) {
			st.serve(key)
		}
	}
}

// dismiss has the waiters book again that cannot wait until their budget opens, so that they
// are told.
func (st *step) dismiss(c ledger.Closed) {
	for _, at := range arrivalsOf(st.line[c.Key]) {
		if w := st.line[c.Key][at]; w.ends < c.Until {
			st.touch(w)
			st.change(&w.booking, func(q *ledger.Request) { q.Dismiss(&w.Waiter) })
			st.wake = append(st.wake, w.ready)
		}
	}
}

// serve goes through a line: it books for the waiters of this node whose starts are within their horizon, sets aside what waiters of other nodes will
// take before them, and has these nodes told, each once. It looks again when more can be done, if no other node does.
func (st *step) serve(key ledger.Key) {
	r := st.rows.Row(key, false)
	if r == nil {
		st.lookAgain(key, -1)
		return
	}
	if r.Wants() {
		st.relist(key, r)
	}

	b, waits := st.sample(key)
	if !waits || !r.HasLine() {
		st.lookAgain(key, -1)
		st.passOn(key, r.PassOn(st.node.ID))
		return
	}

	pass := ledger.NewPass(st.request(b, new(store.Grant)))
	for st.serveNext(key, pass) {
	}
	later, next := pass.End(st.line[key] != nil)
	st.lookAgain(key, later)
	st.passOn(key, next)
}

// sample returns a booking of the budget alone, as the first of this node's waiters in its line has it; false if none waits here.
func (st *step) sample(key ledger.Key) (b *store.Booking, waits bool) {
	first, w := int64(0), (*waiter)(nil)
	for at, o := range st.line[key] {
		if w == nil || at < first {
			first, w = at, o
		}
	}
	if w == nil {
		return nil, false
	}
	return &store.Booking{
		Charges: []store.Charge{chargeOf(&w.booking, key)},
		MaxWait: store.AnyWait, Horizon: w.booking.Horizon, Spread: w.booking.Spread,
	}, true
}

// passOn has a node hear of a line; 0: none.
func (st *step) passOn(key ledger.Key, node int64) {
	if node == 0 {
		return
	}
	if !slices.Contains(st.told.News.Moved, key) {
		st.told.News.Moved = append(st.told.News.Moved, key)
	}
	st.tell(node)
}

// serveNext serves the next waiter of a line. It returns false if there is none that can be served now.
func (st *step) serveNext(key ledger.Key, pass *ledger.Pass) (more bool) {
	next, ok := pass.Next()
	if !ok {
		return false
	}
	if next.Node == st.node.ID {
		w := st.line[key][next.Arrival]
		if w == nil {
			pass.Skip() // its caller leaves
			return true
		}
		return st.serveOwn(key, w, pass)
	}

	if !pass.IsAsked() && st.isDead(next.Node) {
		st.rows.Row(key, false).Bury(next.Node)
		pass.Forget(next.Node)
		b, _ := st.sample(key)
		st.change(b, (*ledger.Request).Renew)
		return true
	}
	near, ask := pass.SetAside()
	if ask {
		st.passOn(key, next.Node)
	}
	return near
}

// serveOwn books for the next waiter of a line, which waits here, if its start is within its horizon.
func (st *step) serveOwn(key ledger.Key, w *waiter, pass *ledger.Pass) (served bool) {
	st.touch(w)
	defer st.noteLine(w)
	q := st.request(&w.booking, new(store.Grant))

	// In one step: a penalty between the two would have it booked far behind its end.
	if !pass.Due(q, &w.Waiter) {
		return false
	}
	called := q.Serve(&w.Waiter, key)
	pass.Served(q, called)
	st.note(q)
	st.served(w, q, called)
	return true
}

// served tells the caller of a waiter what was booked for it, if it does not wait elsewhere.
func (st *step) served(w *waiter, q *ledger.Request, called bool) {
	ready := w.ready
	st.answer(w, q)
	if next, _, waits := w.Line(); waits {
		w.ready = ready // its caller does not know that it waits elsewhere
		st.news.Moved = append(st.news.Moved, next)
		return
	}
	if w.grant = *q.Grant; !w.grant.OK || called {
		w.grant = store.Grant{}
	}
	w.reply = reply{now: st.now, asked: st.rows.Asked(), received: st.rows.Received()}
	st.wake, st.booked = append(st.wake, ready), append(st.booked, w)
}

// relist has waiters of a line stand in it again that have no place, the first ones first.
func (st *step) relist(key ledger.Key, r *ledger.Row) {
	left := relistMost
	for _, at := range arrivalsOf(st.line[key]) {
		if left > 0 && !r.Lists(ledger.Place{Key: key, Arrival: at, Node: st.node.ID}) {
			w := st.line[key][at]
			st.touch(w)
			q := st.request(&w.booking, new(store.Grant))
			q.Again(&w.Waiter)
			st.note(q)
			st.served(w, q, false)
			st.noteLine(w)
			left--
		}
	}
	for _, at := range arrivalsOf(st.slots[key]) {
		if left > 0 && !r.Lists(ledger.Place{Key: key, Arrival: at, Node: st.node.ID}) {
			w := st.slots[key][at]
			st.change(&w.booking, func(q *ledger.Request) { q.Relist(w.charge, at) })
			left--
		}
	}
}

// recover does what news may have asked that were lost. Rows do not say which waiters for slots were
// called, so all of them ask again.
func (st *step) recover() {
	for key := range st.slots {
		for at, w := range st.slots[key] {
			st.setSlot(key, at, nil)
			st.wake = append(st.wake, w.ready)
		}
	}
	for key := range st.line {
		st.news.Moved = append(st.news.Moved, key)
	}
	st.useless = append(st.useless, everything)
}

// bury ends the leases of nodes that are dead.
func (st *step) bury(key ledger.Key) {
	r := st.rows.Row(key, false)
	if r == nil {
		return
	}
	for _, node := range r.Nodes() {
		if node != st.node.ID && st.isDead(node) {
			r.Bury(node)
		}
	}
}

// renew makes other nodes believe that this one lives, and serves the lines in which its callers
// wait: it may have missed news.
func (st *step) renew(keys []ledger.Key) {
	for _, key := range keys {
		c, ok := st.charge(key)
		if !ok {
			continue // its callers have left since
		}
		st.bury(key)
		st.change(&store.Booking{Charges: []store.Charge{c}}, (*ledger.Request).Renew)
		if st.line[key] == nil && st.slots[key] == nil {
			continue
		}
		if r := st.rows.Row(key, false); r != nil {
			st.relist(key, r)
		}
		st.news.Moved = append(st.news.Moved, key)
	}
}
