package node

import (
	"slices"
	"time"

	"github.com/fleetthrottle/throttle/internal/ledger"
	"github.com/fleetthrottle/throttle/store"
)

// maxRelisted is how many waiters without a place ask again in one step.
const maxRelisted = 32

// settle does what the step's own news ask of this node, and notes in told what other nodes must know. It ends when there are no more news.
func (st *step) settle() {
	// To serve a line makes news of other lines.
	for !IsEmpty(&st.news) {
		n := st.news
		st.news = ledger.News{}

		// Called waiters of other nodes: their nodes are told.
		for _, p := range n.Called {
			if p.Node != st.memory.node.ID {
				st.told.News.Called = append(st.told.News.Called, p)
				st.tell(p.Node)
			}
		}

		// Any node may have watches over these starts, or waiters that cannot wait for so long.
		if len(n.Useless)+len(n.Closed) > 0 {
			st.told.News.Useless = append(st.told.News.Useless, n.Useless...)
			st.told.News.Closed = append(st.told.News.Closed, n.Closed...)
			st.told.All = true
		}

		st.hear(n)
	}
}

// tell notes that a node is to be told of the step at once.
func (st *step) tell(node int64) {
	if !slices.Contains(st.told.Nodes, node) {
		st.told.Nodes = append(st.told.Nodes, node)
	}
}

// hear does what the news n ask of this node: it calls waiters for slots, notes useless starts, dismisses the waiters of closed budgets, and serves the lines that have
// moved.
func (st *step) hear(n ledger.News) {
	for _, p := range n.Called {
		if p.Node == st.memory.node.ID {
			st.call(p.Key, p.Arrival)
		}
	}

	st.useless = append(st.useless, n.Useless...)

	// Dismiss before the lines are served, so that no start is booked for a waiter that is about to leave.
	for _, c := range n.Closed {
		st.dismiss(c)
	}

	// One pass serves a line, however often it has moved.
	for i, key := range n.Moved {
		if !slices.Contains(n.Moved[:i], key) {
			st.serve(key)
		}
	}
}

// call wakes a waiter for slots, if it still waits.
func (st *step) call(key ledger.Key, arrival int64) {
	if w := st.slots.at(key, arrival); w != nil {
		st.slots.put(key, arrival, nil)
		st.wake = append(st.wake, w.ready)
	}
}

// dismiss summons each waiter of this node whose MaxWait ends before its closed budget opens. The waiter books
// again and is refused at once.
func (st *step) dismiss(closed ledger.Closed) {
	for _, at := range st.line.arrivals(closed.Key) {
		if w := st.line.at(closed.Key, at); w.caller().EndsBefore(closed.Until) {
			st.changeCaller(w, func(c *Caller, q *ledger.Request) { st.wake = append(st.wake, c.Dismiss(q)) })
		}
	}
}

// serve goes through a line: it gives places to waiters of this node that need one, books for those whose starts are within their horizon, sets aside what
// waiters of other nodes will take before them, and has these nodes told, each once. It looks again when more can be done, unless a different node does.
func (st *step) serve(key ledger.Key) {
	// Without a row there is no line to come back to.
	r := st.rows.Row(key, false)
	if r == nil {
		st.lookAgain(key, -1)
		return
	}

	// Waiters of this node without a place may need one, in the line for starts or in the line for slots.
	wants, listsAll := r.Wants(), r.ListsAll()
	if wants || !listsAll {
		st.relist(key, r)
	}

	// If few waiters for starts have places, and others have none, waiters of other nodes need places, too, but these nodes may have no reason to come. They are
	// told once, and not by each pass that finds the same.
	wanted := wants && !listsAll
	if wanted && !st.memory.passes[key].wanted {
		st.told.News.Moved = append(st.told.News.Moved, key)
		st.told.All = true
	}

	// Without waiters of its own in the row's line, the node leaves the line to a node that has some.
	b, waits := st.sample(key)
	if !waits || !r.HasLine() {
		st.lookAgain(key, -1)
		st.passOn(key, r.PassOn(st.memory.node.ID))
		return
	}

	// Go along the line until the next start is too far away.
	pass := ledger.NewPass(st.request(b, new(store.Grant)))
	for more := true; more; {
		more = st.serveNext(key, b, pass)
	}

	// Say in the row when this node comes again, so that other nodes need not ask it to come before.
	st.plan(key, pass, wanted)
	later, next := pass.End(st.line.hasAny(key))
	st.lookAgain(key, later)
	st.passOn(key, next)
}

// plan says in the row by when this node comes by itself to a line, or that it knows of no such time, and notes the pass that ends in passes. wanted says that few
// waiters had places, and that other nodes were told.
func (st *step) plan(key ledger.Key, pass *ledger.Pass, wanted bool) {
	comes, enough := int64(0), false
	if st.memory.plans {
		comes, enough = pass.Plan(st.confirms(key))
	}

	// If the plan is not enough for the next waiter, other nodes may ask this node at any time, for which passed has a time of 0.
	pass.Comes(comes)
	if !enough {
		comes = 0
	}
	st.passes[key] = passed{comes, st.reply.received, st.rows.Row(key, false).ListsAll(), wanted}
}

// confirms returns the time by which a caller of this node makes a step that goes through a line, because the caller asks whether its start still holds. It returns 0 if
// no caller will ask.
func (st *step) confirms(key ledger.Key) (at int64) {
	// A start before soon may be confirmed by the step under way.
	soon := st.now + ledger.Micros(Punctual)
	note := func(g *store.Grant) {
		if start := g.Handle.Start; start > soon && (at == 0 || start < at) {
			at = start
		}
	}

	for w := range st.memory.watches[key] {
		note(&w.grant)
	}

	// The callers for whom this step has booked begin their watches when the step is over.
	for _, w := range st.touched {
		c := w.next
		charged := slices.ContainsFunc(c.booking.Charges, func(ch store.Charge) bool { return ch.Budget.Key == key && !ch.Shadow })
		if c.state == Booked && charged {
			note(&c.grant)
		}
	}

	if at == 0 {
		return 0
	}
	return at + ledger.Micros(confirmSlack)
}

// confirmSlack is how long after its start a caller has its confirmation, at most, if nothing is wrong.
const confirmSlack = 25 * time.Millisecond

// sample returns a booking with which a pass goes through a line: the booking of the earliest waiter of this node in the line, with the charge of the line's budget alone.
// It returns false if no caller of this node waits in the line.
func (st *step) sample(key ledger.Key) (b *store.Booking, waits bool) {
	// The waiters of a line are in no order here, so find the earliest.
	first, w := int64(0), (*waiter)(nil)
	for at, other := range st.line.in(key) {
		if w == nil || at < first {
			first, w = at, other
		}
	}

	if w == nil {
		return nil, false
	}

	booking := w.caller().Booking()
	return &store.Booking{
		Charges: []store.Charge{chargeOf(booking, key)},
		MaxWait: store.AnyWait, Horizon: booking.Horizon, Spread: booking.Spread,
	}, true
}

// passOn notes that a node is to be told to go through a line. With the node 0 it does nothing.
func (st *step) passOn(key ledger.Key, node int64) {
	if node == 0 {
		return
	}
	if !slices.Contains(st.told.News.Moved, key) {
		st.told.News.Moved = append(st.told.News.Moved, key)
	}
	st.tell(node)
}

// serveNext goes past the next waiter of a line, in a pass: b is the booking of the pass, see sample. It serves a waiter of this node, sets aside what a waiter of a living node
// will take, and frees what a dead node left. It leaves out a waiter whose caller leaves, or that had its turn too often. It returns false if no further waiter can be
// served now.
func (st *step) serveNext(key ledger.Key, b *store.Booking, pass *ledger.Pass) (more bool) {
	next, ok := pass.Next()
	if !ok {
		return false
	}

	// The next waiter is of this node.
	if next.Node == st.memory.node.ID {
		w := st.line.at(key, next.Arrival)
		if w == nil {
			pass.Skip() // its caller leaves
			return true
		}

		// The waiter had more turns in this step than it has charges, and still waits behind others, who have not come yet. Leave it to a later step:
		// without this bound two lines could send the waiter back and forth without end.
		if w.turns > len(w.caller().Booking().Charges) {
			pass.Skip()
			return true
		}

		return st.serveOwn(key, w, pass)
	}

	// A node that is dead for sure is not waited for, and its slots are free. A node that was asked to come before is not looked at: if it is dead, it soon counts as
	// silent.
	if r := st.rows.Row(key, false); !pass.IsAsked() && st.isDead(r, next.Node) {
		r.Bury(next.Node)
		pass.Forget(next.Node)

		// Bury only ends the lease: the next request that opens the row forgets the dead node's slots and places. Make such a request now, because
		// after the last waiter of this node the step may make no further one.
		st.change(b, (*ledger.Request).Renew)
		return true
	}

	// The next waiter is of a living node: the pass goes on behind it, in the room that it leaves.
	near, ask := pass.SetAside()
	if ask {
		st.passOn(key, next.Node)
	}

	return near
}

// serveOwn serves w, the next waiter of a line and of this node, if w is due (see [ledger.Pass.Due]), and reports whether it was.
func (st *step) serveOwn(key ledger.Key, w *waiter, pass *ledger.Pass) (served bool) {
	st.changeCaller(w, func(c *Caller, q *ledger.Request) {
		// Serve needs the request that Due has asked with: Due leaves in the request what Serve goes by.
		if !pass.Due(q, &c.Waiter) {
			return
		}
		served = true
		w.turns++
		called := q.Serve(&c.Waiter, key)
		pass.Served(q, called)
		st.noteServed(c, q, called)
	})
	return served
}

// noteServed notes that a caller had its turn, and with called that it must come by itself: it is woken or, if it waits in a second line now, that line is served.
func (st *step) noteServed(c *Caller, q *ledger.Request, called bool) {
	if ready := c.Served(q, called); ready != nil {
		st.wake = append(st.wake, ready)
		return
	}
	next, _, _ := c.Line()
	st.news.Moved = append(st.news.Moved, next)
}

// relist gives places in the row r of a line to waiters of this node that need one and have none: to at most maxRelisted, the earliest first, and to waiters for starts
// before waiters for slots.
func (st *step) relist(key ledger.Key, r *ledger.Row) {
	remaining := maxRelisted

	// A row that wants waiters takes up to this number more than it needs, or it would want waiters again after the next start.
	more := 0
	if r.Wants() {
		more = maxRelisted
	}

	lost := func(at int64) bool {
		return !r.Lists(ledger.Place{Key: key, Arrival: at, Node: st.memory.node.ID})
	}

	for _, at := range st.line.arrivals(key) {
		if !lost(at) {
			continue
		}

		// A waiter from an earlier step shows that waiters without a place are still there. A waiter of this step came after them.
		w := st.line.at(key, at)
		if w.now != nil {
			r.StillWait()
		}

		if remaining > 0 && r.Recalls(&w.caller().Waiter, more) {
			remaining--
			st.changeCaller(w, func(c *Caller, q *ledger.Request) {
				q.Again(&c.Waiter)

				// If the waiter stands in this line again, the next pass serves it.
				if in, _, waits := c.Line(); !waits || in != key {
					st.noteServed(c, q, false)
				}
			})
		}
	}

	// Waiters for slots stand in a line of their own.
	for _, at := range st.slots.arrivals(key) {
		if remaining > 0 && lost(at) {
			remaining--
			w := st.slots.at(key, at)
			st.change(w.booking, func(q *ledger.Request) { q.Relist(w.charge, at) })
		}
	}
}

// recover makes up for news that were lost, whatever they were: it serves all lines, tells all watches, and calls all waiters for slots, because rows do not say which of
// these were called.
func (st *step) recover() {
	for key := range st.memory.slots {
		for _, at := range st.slots.arrivals(key) {
			st.call(key, at)
		}
	}
	for key := range st.memory.line {
		st.news.Moved = append(st.news.Moved, key)
	}
	st.useless = append(st.useless, everything)
}

// isDead reports whether a node with a lease in a row is dead for sure. The node was heard of last when this lease began.
func (st *step) isDead(r *ledger.Row, node int64) bool {
	return st.memory.isDead(node, r.LeaseEnd(node)-st.memory.node.Lease)
}

// meet frees what dead nodes left in the row of a budget, if no caller of this node waited there before this step. b is the booking of a caller that waits there
// now.
func (st *step) meet(b *store.Booking, key ledger.Key) {
	if len(st.memory.line[key])+len(st.memory.slots[key]) > 0 {
		return
	}
	if found := st.bury(key); found {
		st.change(b, (*ledger.Request).Renew)
	}
}

// bury ends the leases of other nodes that are dead, in the row of a budget, and reports whether there were any.
func (st *step) bury(key ledger.Key) (found bool) {
	r := st.rows.Row(key, false)
	if r == nil {
		return false
	}
	for _, node := range r.Nodes() {
		if node != st.memory.node.ID && st.isDead(r, node) {
			r.Bury(node)
			found = true
		}
	}
	return found
}

// renew renews the node's lease of each budget, so that other nodes take this node for alive, and frees what dead nodes left there. It
// has the lines served in which callers of this node wait, because news about them may have been lost.
func (st *step) renew(keys []ledger.Key) {
	for _, key := range keys {
		c, ok := st.charge(key)

		// The callers for whom the lease was needed may have left since.
		if !ok {
			continue
		}

		// The row of a closed unlimited budget may be gone with the database: without a row nobody would serve its line any more.
		if st.line.hasAny(key) {
			st.rows.Row(key, true)
		}

		st.bury(key)
		st.change(&store.Booking{Charges: []store.Charge{c}}, (*ledger.Request).Renew)

		// If callers of this node hold slots and none waits, there is no line to serve.
		if !st.line.hasAny(key) && !st.slots.hasAny(key) {
			continue
		}

		// The node's places are forgotten if its lease had ended meanwhile.
		if r := st.rows.Row(key, false); r != nil {
			st.relist(key, r)
		}

		st.news.Moved = append(st.news.Moved, key)
	}
}

// charge returns the charge of some caller of this node that holds slots of a budget, or waits for it, so that the node needs its lease there. It returns false if there
// is no such caller.
func (st *step) charge(key ledger.Key) (c store.Charge, ok bool) {
	if h := st.holding(key); h.n > 0 {
		return h.charge, true
	}

	for _, w := range st.line.in(key) {
		return chargeOf(w.caller().Booking(), key), true
	}

	for _, w := range st.slots.in(key) {
		return chargeOf(w.booking, key), true
	}

	return c, false
}

// chargeOf returns the charge of a booking that is about a budget. The booking has one.
func chargeOf(b *store.Booking, key ledger.Key) store.Charge {
	i := slices.IndexFunc(b.Charges, func(c store.Charge) bool { return c.Budget.Key == key })
	return b.Charges[i]
}

// lookAgain has a line served after the time later, or with a negative time not again, once this step is saved.
func (st *step) lookAgain(key ledger.Key, later time.Duration) { st.later[key] = later }
