package ledger

import (
	"slices"
	"time"

	"github.com/fleetthrottle/throttle/store"
)

// Nodes that share rows serve one line together. Each goes through the line in
// passes: it books for its own waiters, sets room aside for waiters of other
// nodes that are within the horizon, and asks these nodes to come. See
// docs/internals/line.md, "Between nodes".

const (
	// minLapse is a lower bound on the microseconds for which a node that was
	// asked may say nothing. After that others pass its waiters.
	minLapse = 100_000

	// The horizon over lapseParts is a second lower bound on that time. The horizon
	// over lookParts is the shortest time between two passes of a guard.
	lapseParts = 4
	lookParts  = 8

	// A node that comes by itself within a half of the horizon is the guard of the
	// line. A node that comes at least a sixth of the horizon before the start of its
	// waiter is not asked. In that sixth others can ask the node if it has not come.
	guardParts = 2
	comeParts  = 6
)

// A node plans to come by itself for its next waiter: planAt of the horizon
// before the estimated start of that waiter. It says that it comes by planBy of
// the horizon before the start. A step that it makes anyway, because a caller
// confirms a start, is early enough up to confirmBy of the horizon before.
const (
	planAt    = 0.6
	planBy    = 0.35
	confirmBy = 0.25
)

// A Pass goes through the line of one budget, for one node, in the order in
// which its waiters are served. After Next has named the next waiter, one of Due,
// SetAside, Skip and Forget must follow. After a Due that returns true, Serve of the
// request and Served must follow.
type Pass struct {
	key    Key
	row    *Row
	ahead  *Row     // a copy of the row, as it will be when the waiters before the next one have started, left or been passed. It is nil while the row itself will do.
	sample *Request // the request of NewPass. askAs gives it the class and the cost of a waiter whose booking is unknown: the rest of its booking stands for that waiter's.
	lapse  int64    // for how many microseconds a node may be asked without becoming silent
	floor  int64    // later waiters of the pass start no earlier: closer starts might take the room that is set aside
	awaits bool     // a node that was asked by an earlier pass is still to come, and is not silent
	aside  bool     // room is set aside for a waiter before the next one
	again  int64    // when there may be more to do, a time of the store's clock. Zero means that nobody knows.
	plan   int64    // when the node itself comes for its next waiter. Zero means that it has no such plan.

	// The place that Next has named.
	place place
	class int
	lane  uint64
	start int64 // the start that Due found for its waiter
}

// NewPass begins a pass of the node of a request. The request is open, and has
// one charge, for the budget whose line the pass goes through. Its booking has
// the Horizon and the Spread of a waiter of the node. The pass changes the booking's
// Priority.
func NewPass(q *Request) *Pass {
	r := q.Searches[0].row
	r.lease(q.Node) // the node lives
	p := &Pass{key: q.key(0), row: r, sample: q, lapse: lapse(q.Booking.Horizon)}
	p.awaits = r.awaits(p.lapse)

	// Others pass the waiters of silent nodes, so the pass goes through a copy of the line without them.
	if l := r.lively(p.lapse); l != r.queue {
		p.lookAhead()
		p.ahead.queue = l
	}
	return p
}

// lapse returns for how many microseconds a node may say nothing after it was
// asked to come.
func lapse(horizon time.Duration) int64 { return max(minLapse, Micros(horizon)/lapseParts) }

// ask records in the lease of a node that the node was asked to come, and reports
// whether the node must be sent a message. A node that was asked before, and has
// not come since, has the message already. The node's own promise to come is void.
func (r *Row) ask(node, now int64) bool {
	// Without a lease there is no record of an earlier message, so send it each time.
	l := r.leaseOf(node)
	if l == nil {
		return true
	}

	if l.asked != 0 {
		return false
	}
	l.asked, l.comes = now, 0
	return true
}

// spoke notes that a node has come, and reports whether it was asked to.
func (r *Row) spoke(node int64) (asked bool) {
	l := r.leaseOf(node)
	if l == nil || l.asked == 0 {
		return false
	}
	l.asked = 0
	return true
}

// isSilent reports whether a node was asked to come, and has let more than lapse
// microseconds pass.
func (r *Row) isSilent(node, lapse int64) bool {
	l := r.leaseOf(node)
	return l != nil && l.asked != 0 && r.seen-l.asked > lapse
}

// awaits reports whether any node was asked, is still to come, and is not silent.
func (r *Row) awaits(lapse int64) bool {
	return slices.ContainsFunc(r.leases, func(l lease) bool { return l.asked != 0 && !r.isSilent(l.node, lapse) })
}

// lively returns the row's line without the waiters of silent nodes: others pass
// these waiters until their node speaks, but the row keeps their places. If no node
// is silent it returns the line itself, and otherwise a copy.
func (r *Row) lively(lapse int64) *queue {
	l := r.queue
	for i := range r.leases {
		if l == nil || !r.isSilent(r.leases[i].node, lapse) {
			continue
		}

		// The row itself keeps the places of silent nodes, so they leave a copy.
		if l == r.queue {
			l = r.queue.clone()
		}
		l.forget(r.leases[i].node)
	}
	return l
}

// lookAhead has the pass go on with a copy of the row.
func (p *Pass) lookAhead() {
	if p.ahead == nil {
		p.ahead = p.row.Clone()
	}
}

// view returns the row in which the next waiter looks for its start.
func (p *Pass) view() *Row {
	if p.ahead != nil {
		return p.ahead
	}
	return p.row
}

// Next moves the pass to the next waiter, and returns its place. ok is false if no
// waiter has a place. It is false, too, as long as a called waiter of a node that is
// not silent has not come: that waiter serves the line when it comes.
func (p *Pass) Next() (at Place, ok bool) {
	l := p.view().queue
	if l == nil || p.standsStill() {
		return Place{}, false
	}

	class, own := l.first()
	if own == nil {
		return Place{}, false
	}
	p.class, p.lane, p.place, p.start = class, own.share, own.places[0], 0
	return Place{p.key, p.place.arrival, p.place.node}, true
}

// standsStill reports whether the line waits for a called waiter of a node that is
// not silent. It notes when such nodes will be silent, for the next pass.
func (p *Pass) standsStill() (still bool) {
	if p.row.queue == nil {
		return false
	}

	// Look at all called waiters: the node of each becomes silent at a time of its own.
	for _, c := range p.row.queue.called {
		if p.row.isSilent(c.node, p.lapse) {
			continue
		}
		still = true

		// From then on the node is silent, and its waiters hold up nobody.
		if l := p.row.leaseOf(c.node); l != nil && l.asked != 0 {
			p.lookAt(l.asked + p.lapse + 1)
		}
	}
	return still
}

// lookAt notes that there may be more to do at a time. The earliest such time counts.
func (p *Pass) lookAt(at int64) {
	if p.again == 0 || at < p.again {
		p.again = at
	}
}

// find returns the earliest start that the i-th charge of a request has in the row
// ahead. From the time floor on, later starts keep their distance from that start. A
// floor of 0 says that they need no distance. mayPass says that the waiter need not
// keep behind the starts of others.
func (p *Pass) find(q *Request, i int, mayPass bool) (start, floor int64) {
	// The search is a copy: it looks at the row ahead, and the request's own search at the row itself.
	s := q.Searches[i]
	s.row = p.view()
	q.begin(&s, q.Now)
	if !mayPass {
		s.behind(q.Booking)
	}
	s.tail = max(s.tail, p.floor)

	start = s.earliest(q.Now)

	// Starts in one part share an entry, so there is no distance to keep.
	if s.part > 0 {
		return start, 0
	}
	return start, start + s.rule.cost*s.pace
}

// isNear reports whether a start is within a horizon. If not, the pass notes when
// it will be.
func (p *Pass) isNear(start int64, horizon time.Duration) bool {
	at := start - Micros(horizon)
	if at <= p.sample.Now {
		return true
	}
	p.lookAt(at)
	return false
}

// Due reports whether the start of the next waiter, w of the node itself, is within
// its horizon, and otherwise notes when it will be. The request is open, with the
// waiter's booking. If the pass looks at a copy of the row, Due sets early of the
// request for Serve.
//
// A waiter that needs slots as well is due only if the pass has set no room aside
// before it: one at a time is called. In a slow start the same is true of all
// waiters, because the room that one leaves to the next depends on who asks first.
func (p *Pass) Due(q *Request, w *Waiter) bool {
	i := q.indexOf(p.key)
	slowStart := p.row.paused != 0 && q.Now < q.Searches[i].rule.rampEnd(p.row)
	if p.aside && (q.needsSlots || slowStart) {
		return false
	}

	p.start, _ = p.find(q, i, w.hadStart)
	if !p.isNear(p.start, q.Booking.Horizon) {
		return false
	}

	// Serve looks at the row itself, and not at the row ahead: early keeps the room before the start for the waiters that have not booked yet.
	if p.ahead != nil {
		q.early, q.earlyKey = p.start, p.key
	}
	return true
}

// Served notes what Serve of a request has done for the next waiter. called is what
// Serve returned.
func (p *Pass) Served(q *Request, called bool) {
	// A called waiter is asked to come like the waiters of other nodes: if its node dies now, the line stands still only until the node is silent.
	if called {
		p.row.ask(p.sample.Node.ID, q.Now)
	}

	// Serve has changed the row itself. If the pass looks at a copy, the waiters that follow must find the same there.
	if p.ahead == nil {
		return
	}
	if !called && q.Grant.OK {
		p.put(&q.Searches[q.indexOf(p.key)], q.Grant.Handle.Start)
	}
	p.take()
}

// SetAside sets aside the room that the next waiter, of a different node, will take.
// It notes when to look again, if that is known. If the waiter's start is not within
// the horizon yet, near is false and no room is set aside. ask says that the waiter's
// node has to be told: then the lease of that node, if it has one, records that the
// node was asked.
func (p *Pass) SetAside() (near, ask bool) {
	// The row does not have the waiter's booking, only its class and its cost. The rest is as in the booking of the pass.
	q, s := p.sample, &p.sample.Searches[0]
	p.askAs(p.class, p.place.cost)
	start, floor := p.find(q, 0, p.place.front)
	if !p.isNear(start, q.Booking.Horizon) {
		return false, false
	}

	// Book the start in the copy of the row, so that the waiters behind look for theirs behind it.
	node := p.place.node
	p.lookAhead()
	p.put(s, start)
	p.take()
	p.aside, p.floor = true, floor

	// Do not ask a node that is left alone for now, see leaves, or that was asked before. If an asked node says nothing, later passes leave
	// out its waiters.
	if !p.leaves(node, start) {
		ask = p.row.ask(node, q.Now)
	}

	switch l := p.row.leaseOf(node); {
	// Nobody knows when a node without a lease comes.
	case l == nil:

	// The node was left alone: it comes by itself or, if it is late, other nodes are awaited first. A later pass may ask it: once its time is over or, if
	// the start is still too far for the node, once the start is near.
	case l.asked == 0:
		p.lookAt(l.comes + 1)
		if p.isFar(start) {
			p.lookAt(start - p.nearest())
		}

	// The node was asked. If it has not come by this time, it is silent.
	default:
		p.lookAt(l.asked + p.lapse + 1)
	}

	return true, ask
}

// leaves reports whether the pass leaves it to a node to come by itself for a
// start.
//
// Where steps are slow, nodes come later than they said. Messages that ask them
// make the steps slower still: in PostgreSQL each message wakes all nodes that
// listen. So one message asks all nodes that are late, and the next such message
// waits until each of these nodes has come or is silent.
func (p *Pass) leaves(node, start int64) bool {
	l := p.row.leaseOf(node)
	if l == nil || l.comes == 0 {
		return false
	}

	// A node that has not missed its time is left alone if it comes early enough, or could not book yet.
	inTime := l.comes <= start-Micros(p.sample.Booking.Horizon)/comeParts
	if p.sample.Now <= l.comes && (inTime || p.isFar(start)) {
		return true
	}

	// A node that is late, or comes too late, is not asked while other nodes are awaited.
	return p.awaits
}

// nearest returns the shortest horizon that a node may have, in microseconds. Where steps are slow, some nodes have longer ones.
func (p *Pass) nearest() int64 {
	b := p.sample.Booking
	return Micros(min(b.Horizon, b.Charges[0].Limit.Horizon()))
}

// isFar reports whether a start is beyond the shortest horizon, so that some node could not book it yet. To ask such a node would cost a message and a step for
// nothing: until the start is near, the node may come by itself, or say better when it comes.
func (p *Pass) isFar(start int64) bool { return start-p.sample.Now > p.nearest() }

// askAs gives the request of the pass the class and the cost of a waiter. All else
// that the waiter may have asked for stays as in the booking of the pass.
func (p *Pass) askAs(class int, cost int64) {
	s := &p.sample.Searches[0]
	p.sample.Booking.Priority = store.PriorityHigh - store.Priority(class)

	// The waiter may leave less of the limit free than this booking, so its cost may not fit.
	usable := s.rule.usable()
	s.rule.cost = min(cost, usable)
	s.rule.room = usable - s.rule.cost
}

// IsAsked reports whether the node of the next waiter was asked, and is still to
// come.
func (p *Pass) IsAsked() bool {
	l := p.row.leaseOf(p.place.node)
	return l != nil && l.asked != 0
}

// Forget leaves out all waiters of a node that is dead.
func (p *Pass) Forget(node int64) {
	p.lookAhead()
	p.ahead.queue.forget(node)
}

// Skip leaves out the next waiter: its caller is about to leave.
func (p *Pass) Skip() {
	p.lookAhead()
	p.take()
}

// put books a start in the row ahead, which must be set, so that later waiters of the pass find the row as it will be. It is simpler than Request.start:
// it takes no slots, and later waiters keep behind every start that is to come.
func (p *Pass) put(s *Search, start int64) {
	switch {
	// An open unlimited budget, and a budget of slots, count no starts.
	case s.free || s.rule.slots:
	case s.rule.peak == 0:
		p.ahead.bookProbe(start, &s.rule)
	default:
		p.ahead.book(start, &s.rule)
	}

	if start > p.sample.Now {
		p.ahead.keepBehind(p.class, start)
	}
}

// take takes the next waiter out of the line ahead, as a turn of its share.
func (p *Pass) take() {
	c := &p.ahead.queue.lanes[p.class]
	if own := c.of(p.lane); own != nil {
		// Only shares take turns, and a waiter in front had its turn already.
		if turns := len(*c) > 1 || own.share != 0; turns && !p.place.front {
			c.serve(own, p.place.cost)
		}
		own.remove(p.place)
	}
	*c = c.tidy()
}

// Comes notes that the node of the pass will make a step by the time at, a time of
// the store's clock: it is about to ask whether a start still holds, or it has a
// Plan. Zero says that the node knows of no such time. Before at nobody has to ask
// the node to come. The promise does not bind the node: if it does not come, it is
// asked. Comes does nothing for a node that is asked already.
func (p *Pass) Comes(at int64) {
	if l := p.row.leaseOf(p.sample.Node.ID); l != nil && l.asked == 0 {
		l.comes = at
	}
}

// Plan returns by when the node of the pass comes by itself, or 0 if it does not:
// Comes tells other nodes. At the time confirms the node comes anyway, because one of
// its callers asks whether its start still holds; 0 says that none does. If that
// time is not early enough for the next waiter of the node, Plan plans an earlier pass,
// and End says when. enough is false if such a pass would be due at once, or if no
// waiter of the node has a place: then other nodes may have to ask the node to come.
func (p *Pass) Plan(confirms int64) (comes int64, enough bool) {
	start, ok := p.ownTurn()
	if !ok {
		return confirms, false
	}

	// before returns the time that is a part of the horizon before the waiter's start.
	now, horizon := p.sample.Now, float64(Micros(p.sample.Booking.Horizon))
	before := func(part float64) int64 { return start - int64(part*horizon) }
	if confirms != 0 && confirms <= before(confirmBy) {
		return confirms, true
	}

	// By this estimate the waiter should be within the horizon. The pass has not booked for it, so it waits for something that nobody can foresee.
	at := before(planAt)
	if at < now+max(1, int64(horizon)/lookParts) {
		return confirms, false
	}

	// End makes the pass at the time plan. Other nodes are told a later time, so that a pass that is a little late is not taken for missed.
	p.plan = at

	return before(planBy), true
}

// ownTurn returns when the next waiter of the pass's node will start, if nothing
// changes. ok is false if none has a place. The request of the pass asks for that
// waiter afterwards: see askAs.
func (p *Pass) ownTurn() (start int64, ok bool) {
	l := p.view().queue
	if l == nil {
		return 0, false
	}

	// Of the node's waiters, find the one with the smallest rank: the costs up to it, its own included.
	rank, class, cost := int64(0), 0, int64(0)
	for k, c := range l.lanes {
		for i := range c {
			j := slices.IndexFunc(c[i].places, func(o place) bool { return o.node == p.sample.Node.ID })
			if j < 0 {
				continue
			}
			o := c[i].places[j]
			if sum := l.before(k, c[i].share, o.arrival, o.front) + o.cost; !ok || sum < rank {
				rank, class, cost, ok = sum, k, o.cost, true
			}
		}
	}
	if !ok {
		return 0, false
	}

	// The waiter at the head of the line has the first start that is possible, and any other waiter an estimate by its rank.
	p.askAs(class, cost)
	s := p.sample.Searches[0]
	s.row = p.view()
	p.sample.begin(&s, p.sample.Now)
	s.behind(p.sample.Booking)
	s.tail = max(s.tail, p.floor)
	if rank == cost {
		return s.earliest(s.from), true
	}
	return s.turnAt(rank), true
}

// End ends the pass. waits says whether callers of the node wait in the line. later is
// the time until the node must make a new pass, or below 0 if it need not make one.
// next is the node that must be told to go through the line, or 0 if none must. A line
// without waiters is forgotten.
func (p *Pass) End(waits bool) (later time.Duration, next int64) {
	later, next = p.guard(waits)
	if p.plan == 0 || !waits || p.row.queue == nil {
		return later, next
	}

	// The node also makes a pass when the turn of its own next waiter comes: at the time plan.
	own := time.Duration(p.plan-p.sample.Now) * time.Microsecond
	if later < 0 || own < later {
		later = own
	}
	return later, next
}

// guard decides which node is the line's guard, and forgets a line without waiters. A guard goes through the line when its time comes,
// although nobody tells it to. later is in how long this node must do so, or below 0, and next is as in End.
func (p *Pass) guard(waits bool) (later time.Duration, next int64) {
	r := p.row
	if r.queue == nil || r.queue.empty() {
		r.queue = nil
		return -1, 0
	}

	// A node without waiters has no booking to go through the line with, so it cannot be the guard.
	if !waits {
		return -1, r.PassOn(p.sample.Node.ID)
	}

	// Time alone brings nothing new: the next caller that comes or leaves makes its node go through the line.
	if p.again == 0 {
		return -1, 0
	}

	// The next pass is due when there may be more to do, but not at once.
	l, now, horizon := r.queue, p.sample.Now, Micros(p.sample.Booking.Horizon)
	wait := max(1, horizon/lookParts)
	due := max(p.again, now+wait)

	// The node that comes next by itself is the guard, whether it knows or not, because its step goes through the line. If that is this node, it plans
	// a pass in case its step is late.
	if first := r.nextToCome(now, now+horizon/guardParts); first != nil {
		l.guard, l.until = first.node, max(due, first.comes)
		if l.guard != p.sample.Node.ID {
			return -1, 0
		}
		return time.Duration(l.until+wait-now) * time.Microsecond, 0
	}

	// A different node is the guard already, and goes through the line early enough.
	if l.guard != p.sample.Node.ID && r.isGuarded() && l.until <= due {
		return -1, 0
	}

	// This node becomes the guard.
	l.guard, l.until = p.sample.Node.ID, due
	return time.Duration(l.until-now) * time.Microsecond, 0
}

// nextToCome returns the lease of the node that comes next by itself, from now on
// and until the time latest, or nil if none does.
func (r *Row) nextToCome(now, latest int64) (next *lease) {
	for i := range r.leases {
		l := &r.leases[i]
		if now <= l.comes && l.comes <= latest && (next == nil || l.comes < next.comes) {
			next = l
		}
	}
	return next
}

// isGuarded reports whether a living node is the guard of the line, and is at most
// minLapse late.
func (r *Row) isGuarded() bool {
	return r.queue.guard != 0 && r.leaseOf(r.queue.guard) != nil && r.seen-r.queue.until <= minLapse
}

// PassOn returns the node that has to go through the line because the node from, which
// has no waiters there, has changed something. It returns 0 if none has to. The node
// from is not the guard any more. A line without waiters is forgotten.
func (r *Row) PassOn(from int64) (node int64) {
	l := r.queue
	if l == nil || l.empty() {
		r.queue = nil
		return 0
	}

	// Without waiters in the line, the node from cannot be its guard.
	if l.guard == from {
		l.guard, l.until = 0, 0
	}
	if r.isGuarded() {
		return l.guard
	}

	// Any node with a waiter can go on, unless it is silent. A pass knows that by its horizon. Here no horizon is known, so minLapse must do.
	for _, c := range l.lanes {
		for i := range c {
			for _, p := range c[i].places {
				if p.node != from && !r.isSilent(p.node, minLapse) {
					return p.node
				}
			}
		}
	}
	return 0
}
