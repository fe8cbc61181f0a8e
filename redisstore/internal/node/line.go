package node

import (
	"cmp"
	"encoding/binary"
	"slices"
	"time"

	"github.com/fleetthrottle/throttle/internal/ledger"
	"github.com/fleetthrottle/throttle/redisstore/internal/wire"
	"github.com/fleetthrottle/throttle/store"
)

// A line is the part of a budget's line for starts that stands on this node: the node's callers that wait there.
// Redis knows how much waits in the whole line and up to which ticket it is the waiters' turn, and no single
// caller. So this node summons each caller when its turn should have come, and the caller books again.
type line struct {
	node       *Node
	key, group string
	charge     store.Charge // a charge of the budget, as a caller had it last
	id         int64        // of the line in Redis: each new line has its own
	waiters    []*turn      // by class, share and ticket
	firstTurn  *turn        // what first has found, or nil if first must look anew
	shared     int          // how many waiters have a share
	cost       int64        // the sum of the waiters' costs
	waiting    int64        // the sum of costs in the whole line, as Redis said last
	hasShares  bool         // callers of several shares have stood in the line
	hurry      bool         // Redis said that waiters should ask again soon, or has just published a cut: see Hurry of wire.Line
	heardAt    time.Time    // when Redis said how the line stands, or was asked last
	unasked    bool         // the node has not asked Redis since its first waiter came, or since a connection for messages began
	called     cuts         // the last cuts of messages
	calledLine int64        // the ID of the line in Redis that had these cuts
	firstStart time.Time    // when the first waiter of the whole line may start, or the zero time until Redis has answered about the line
	nearAt     time.Time    // the earliest nearAt of the waiters, or a time before it
	timerAt    time.Time    // when the timer runs
	timer      *time.Timer  // runs due
}

// A turn is what this node knows of a caller that waits in line for a start, or did: its tickets. It is the
// [store.Turn] of its caller. See docs/internals/line.md and lua/queue.lua. The lock of the node guards it.
type turn struct {
	charges []store.Charge // of the last booking of the caller
	class   int64          // of the caller's priority: see classOf
	tickets []wire.Ticket  // one for each line in which the caller waits or waited
	inLine  bool           // Redis believes that the caller waits
	started bool           // the caller had a start: in lines where it has no ticket it goes before all other callers

	// The fields below are about the line in which the caller waits to be summoned.
	lineKey   string // the key of the line's budget, or "" while the caller does not wait
	share     uint64 // of the lane in which it waits there
	number    int64  // of the caller's ticket there; it does not change while an op has the turn
	cost      int64
	ready     chan struct{}
	nearAt    time.Time // when its start is within the horizon, by the last estimate
	comeBy    time.Time // when the caller is summoned at the latest
	notBefore time.Time // when the caller is summoned at the earliest
	waits     int       // how often the caller had to wait in lines
	deadline  time.Time // a start after this is of no use to the caller; the zero time if any start is of use
	horizon   time.Duration
	gathering *gathering // that expects the caller, or nil unless it was summoned and has not come yet
}

// classOf returns the class of a priority, 1 for High to 3 for Low: see lua/queue.lua.
func classOf(p store.Priority) int64 {
	return int64(ledger.Class(p)) + 1
}

// laneID names the lane in which the caller waits.
func (t *turn) laneID() wire.LaneID { return wire.LaneID{Class: t.class, Share: t.share} }

// compareTurns orders the turns of one line: by class, then by share, then by ticket.
func compareTurns(a, b *turn) int {
	return cmp.Or(cmp.Compare(a.class, b.class), cmp.Compare(a.share, b.share), cmp.Compare(a.number, b.number))
}

// join takes the caller of an op out of the line in which it waits, gives its tickets to the op, and sets the op's
// patience. It gives up places that are of no use to the booking. It summons the waiters for the same budgets whose
// start is near: they share the op's call. A Cancel summons nobody. The caller of an op without a horizon gives up all
// its places, and the op gets no tickets and summons nobody.
func (n *Node) join(o *op, b *store.Booking) {
	n.mu.Lock()
	defer n.mu.Unlock()

	// A newcomer may wait for other callers, which then share its call.
	if !n.NoNews {
		o.patience = n.patience(o, b, time.Now())
	}

	if t, ok := b.Turn.(*turn); ok {
		// The caller must not be summoned while its op is on its way.
		n.takeOut(t)
		if b.Horizon == 0 {
			n.endExpectation(t) // enqueue does not, because the op gets no turn
			if leave := t.depart(); leave != nil {
				n.postLocked(leave)
			}
			return
		}

		// The tickets are for the budgets and costs of the last booking. If these have changed, the caller gives up its places.
		if !slices.EqualFunc(t.charges, b.Charges, sameBudget) {
			if leave := t.leave(); leave != nil {
				n.postLocked(leave)
			}
		}

		// In lines where the caller has no ticket it goes first only if it had a start.
		o.turn, o.Tickets, o.Returns = t, slices.Clone(t.tickets), b.Returns && t.started
	}

	// Waiters whose turn is near share this call: the room that it finds is theirs first.
	if b.Horizon > 0 && o.Kind != wire.Cancel {
		n.summonNear(o.Charges, o.patience > 0)
	}
}

// sameBudget reports whether a place in line for a is also a place for b.
func sameBudget(a, b store.Charge) bool { return a.Budget == b.Budget && a.Cost == b.Cost }

// summonNear summons the waiters for the budgets of charges whose start is within their horizon. If the call of the
// charges waits for other callers, summonNear summons none in a line with shares: summoned waiters would end that wait,
// and with many lanes some waiter is near at most moments.
func (n *Node) summonNear(charges []store.Charge, waits bool) {
	// Most nodes have no lines, and need no key.
	if len(n.lines) == 0 {
		return
	}

	now := time.Now()
	for i := range charges {
		l := n.lines[n.Names.Row(&charges[i].Budget)]
		if l == nil || waits && l.shared > 0 {
			continue
		}
		if !l.nearAt.After(now) {
			l.summonNear(now)
		}
	}
}

// startAnswered records what the answer to an op says of its caller's places in lines, and of how full the budget is.
// If the caller waits in line from now on, startAnswered sets the op's turn and, unless the caller has left, its ready.
// It does nothing for an op that does not book.
func (n *Node) startAnswered(o *op) {
	// An unsettled caller keeps its places, and asks again.
	if o.Kind != wire.Reserve || o.outcome.State == wire.Unsettled {
		return
	}

	// Later newcomers linger as long as the budget is full.
	if o.outcome.Wait > 0 {
		n.noteWait(o, time.Now())
	}

	// A caller that was in no line, and is in none now, has no turn.
	t, inLine := o.turn, o.outcome.State == wire.InLine
	if t == nil && !inLine {
		return
	}

	// The caller has its start, waits for slots, or was refused. It keeps its tickets, and with them its rank in case it comes back.
	if !inLine {
		t.inLine, t.started = false, t.started || o.outcome.Booked()
		t.markHadStart()
		return
	}

	if t == nil {
		t = new(turn)
		o.turn = t
	}

	// The answer names the places that the caller has from now on.
	t.charges, t.class, t.tickets, t.inLine = slices.Clone(o.Charges), o.Class, o.outcome.Tickets, true
	if !o.left {
		o.ready = n.standInLine(t, o)
	}
}

// When a caller that waits is summoned. It books again, and may have to wait once more.
const (
	// The estimate of when a start comes within the horizon may be too early, so nearAt is later by this delay. The delay of a
	// caller with a share is shorter, because such callers book less far ahead.
	summonDelay      = 60 * time.Millisecond
	summonDelayShare = 20 * time.Millisecond

	// maxSpare is how long after nearAt a caller may wait for a call that is made anyway.
	maxSpare = 200 * time.Millisecond

	// A caller with a share is summoned without a delay if its start is at most maxNear beyond its horizon.
	maxNear = 100 * time.Millisecond

	// A caller that had to wait books again no sooner than after minReturn. A caller with a share that has had to wait k times
	// books again no sooner than after k times minReturn, but at most after maxReturns times minReturn.
	minReturn  = 10 * time.Millisecond
	maxReturns = 5

	// minReturnOffered takes the place of minReturn for the only caller of its share on this node, if Redis keeps room for it.
	minReturnOffered = time.Millisecond
)

// standInLine has the caller of an op wait in the line that the answer to the op names, and returns its Ready.
func (n *Node) standInLine(t *turn, o *op) <-chan struct{} {
	out, now := &o.outcome, time.Now()
	c := &o.Charges[out.Charge]
	ticket := &t.tickets[slices.IndexFunc(t.tickets, func(k wire.Ticket) bool { return k.Budget == c.Budget.Key })]

	key := n.Names.Row(&c.Budget)
	l := n.lines[key]
	if l == nil {
		l = &line{node: n, key: key, group: c.Budget.Group, unasked: true, heardAt: now}
		n.lines[key] = l
	}

	// A new line has a new ID, and the waiters of the old line are summoned: see takeCuts.
	l.id, l.charge = ticket.Line, *c

	// Note in the turn what decides when its caller is summoned: the ticket, the cost, and the latest start that is of use.
	t.number, t.share, t.cost, t.ready = ticket.Number, ticket.Share, wire.Cost(c), make(chan struct{})
	t.deadline = time.Time{}
	if o.MaxWait < wire.AnyWait {
		t.deadline = now.Add(time.Duration(o.MaxWait) * time.Microsecond)
	}

	t.horizon = o.Horizon
	t.waits++

	offered := ticket.State == wire.Offered && !l.hasLane(t.laneID()) // no other caller of the lane waits on this node
	t.schedule(now, wire.Wait(out.Wait), offered)

	// If a message that came before the answer with a new ticket has said that it is the caller's turn, the caller books again at once.
	isOld := slices.ContainsFunc(o.Tickets, func(k wire.Ticket) bool { return k.Line == ticket.Line && k.Number == ticket.Number })
	if !isOld && l.hasCalled(t) {
		t.nearAt, t.comeBy = now, now
	}

	l.add(t)
	return t.ready
}

// hasCalled reports whether a message has said that it is the turn of a caller with a new ticket. When Redis gave the ticket, it
// was not below the cut, so such a message is from later. Tickets in front are below every cut, and no message is about them.
func (l *line) hasCalled(t *turn) bool {
	return l.calledLine == l.id && t.number != wire.Front && t.number < l.called.of(t.laneID())
}

// maxCalled is how many lanes' cuts are remembered for callers that still wait for the answer with their ticket.
const maxCalled = 512

// noteCalled notes the cuts of a message about the line with an ID, for callers that still wait for the answer with their
// ticket.
func (l *line) noteCalled(id int64, c cuts) {
	// The cuts of an earlier line are void. The map has a bound: a caller whose cut is forgotten comes by its own estimate.
	if id != l.calledLine || len(l.called.shares) >= maxCalled {
		l.called, l.calledLine = c, id
		return
	}

	// A message about a line with shares names only the cuts that have moved: the cut of a class that it does not name is 0.
	for i, cut := range c.classes {
		l.called.classes[i] = max(l.called.classes[i], cut)
	}
	for lane, cut := range c.shares {
		l.called.set(lane, cut)
	}
}

// schedule sets notBefore, nearAt and comeBy of a caller that has to wait. By an answer that came at now, its start is wait away.
// offered says that Redis keeps room for the caller, which is the only one of its share on this node.
func (t *turn) schedule(now time.Time, wait time.Duration, offered bool) {
	switch {
	// The room that Redis keeps is at the end of the horizon. Starts lie at the begins of a window's parts, so a caller that comes
	// after a fixed delay may find its start behind the horizon many times in a row: it comes as soon as the start is near.
	case t.share != 0 && offered:
		t.notBefore = now.Add(minReturnOffered)

	// The callers before it may be late, so each further wait is longer.
	case t.share != 0 && t.waits > 1:
		t.notBefore = now.Add(min(time.Duration(t.waits), maxReturns) * minReturn)

	default:
		t.notBefore = now.Add(minReturn)
	}

	// Callers with other shares do not wait for a caller that comes late: their starts are booked before its own. So
	// a caller with a share whose start is near already comes as soon as it can.
	near := now.Add(wait - t.horizon)
	isNear := t.share != 0 && wait <= t.horizon+maxNear
	switch {
	case t.waits > 1 || isNear:
		t.nearAt = latest(near, t.notBefore)
		t.comeBy = t.nearAt // if it came later, other callers might book the room before it, again and again
	case t.share != 0:
		t.setComeBy(near.Add(summonDelayShare))
	default:
		t.setComeBy(near.Add(summonDelay))
	}
}

// hasLane reports whether a caller waits in a lane.
func (l *line) hasLane(id wire.LaneID) bool {
	at, _ := slices.BinarySearchFunc(l.waiters, &turn{class: id.Class, share: id.Share}, compareTurns)
	return at < len(l.waiters) && l.waiters[at].laneID() == id
}

// setComeBy sets nearAt to near, but not before notBefore. It sets comeBy a little later: within the horizon there is time
// for several answers of Redis.
func (t *turn) setComeBy(near time.Time) {
	// near includes summonDelay, so the caller comes half of its horizon before its start at the latest.
	spare := t.horizon/2 - summonDelay

	// A caller with a share may come later: Redis would summon it a third of the horizon before its start.
	if t.share != 0 {
		spare = t.horizon*3/5 - summonDelay
	}
	t.nearAt = latest(near, t.notBefore)
	t.comeBy = t.nearAt.Add(max(0, min(maxSpare, spare)))
}

// latest returns the later of two times.
func latest(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}

	return b
}

// earliest returns the earlier of two times.
func earliest(a, b time.Time) time.Time {
	if b.Before(a) {
		return b
	}

	return a
}

// add puts a turn into the line, sets the line's timer for it, and has the node listen to messages.
func (l *line) add(t *turn) {
	t.lineKey = l.key
	at, _ := slices.BinarySearchFunc(l.waiters, t, compareTurns)
	l.waiters = slices.Insert(l.waiters, at, t)
	l.cost += t.cost
	if t.share != 0 {
		l.shared++
	}

	// The new waiter may come to its turn before the first so far.
	if l.firstTurn != nil && comesBefore(t, l.firstTurn) {
		l.firstTurn = t
	}

	// While anybody waits, the node listens to messages.
	if !l.node.NoNews {
		l.node.Subs.Retain()
	}

	if len(l.waiters) == 1 {
		l.setTimer()
		return
	}

	// Thousands may come at once, so do not look at all waiters.
	l.nearAt = earliest(l.nearAt, t.nearAt)
	l.setTimerTo(earliest(l.timerAt, earliest(t.comeBy, l.asksAt())))
}

// remove takes the waiter with index i out of the line. The timer stays as it is.
func (l *line) remove(i int) {
	t := l.waiters[i]
	l.waiters = slices.Delete(l.waiters, i, i+1)
	l.cost -= t.cost
	if t.share != 0 {
		l.shared--
	}
	if l.firstTurn == t {
		l.firstTurn = nil
	}

	t.lineKey = ""

	// The node listens to messages as long as anybody waits.
	if !l.node.NoNews {
		l.node.Subs.Release()
	}
}

// takeOut takes a turn out of the line in which it waits. A turn whose caller was summoned is in no line.
func (n *Node) takeOut(t *turn) {
	l := n.lines[t.lineKey]
	if l == nil {
		return
	}

	// Several waiters may have equal places in the order: find this one behind the first of them.
	at, _ := slices.BinarySearchFunc(l.waiters, t, compareTurns)
	l.remove(at + slices.Index(l.waiters[at:], t))

	// With waiters left the timer stays: at worst it runs too early, and is then set anew.
	if len(l.waiters) == 0 {
		l.setTimer()
	}
}

// leaveLines gives up a caller's places in lines for starts. The caller's Turn keeps its arrival, for the case
// that it books again. leaveLines returns the op that tells Redis, or nil if there is nothing to tell.
func (n *Node) leaveLines(arrival store.Turn) *op {
	t, ok := arrival.(*turn)
	if !ok {
		return nil
	}

	n.mu.Lock()
	defer n.mu.Unlock()

	n.takeOut(t)
	n.endExpectation(t)
	return t.depart()
}

// depart is leave for a caller that may come back to where it stood: the turn keeps its tickets, marked as those of a
// caller that had a start.
func (t *turn) depart() *op {
	tickets := t.tickets
	leave := t.leave()
	if leave != nil {
		t.tickets = tickets
		t.markHadStart()
	}
	return leave
}

// leave takes the tickets of a turn whose caller waits, and returns the op that gives up its places in lines. It returns
// nil, and changes nothing, if the caller does not wait.
func (t *turn) leave() *op {
	if !t.inLine {
		return nil
	}

	o := keepOp(wire.Cancel, slices.Clone(t.charges)...)
	o.Class, o.Tickets = t.class, slices.Clone(t.tickets)
	t.inLine, t.tickets = false, nil
	return o
}

// markHadStart marks the tickets of a turn that has left its lines: the caller had a start. A caller that comes
// back with them goes before all callers that came later.
func (t *turn) markHadStart() {
	for i := range t.tickets {
		t.tickets[i].State = wire.HadStart
	}
}

// keptSize is how many bytes a kept ticket takes.
const keptSize = 16 + 3*8

// KeepTurn appends the tickets of a caller that has left its lines to b, keptSize bytes for each ticket, and nothing for a
// caller without a turn. [Node.RestoreTurn] reads them. In Redis such tickets are holes, and cost nothing.
func (n *Node) KeepTurn(b []byte, arrival store.Turn) []byte {
	t, ok := arrival.(*turn)
	if !ok {
		return b
	}

	n.mu.Lock()
	defer n.mu.Unlock()

	for _, k := range t.tickets {
		b = append(b, k.Budget[:]...)
		b = binary.BigEndian.AppendUint64(b, uint64(k.Line))
		b = binary.BigEndian.AppendUint64(b, uint64(k.Number))
		b = binary.BigEndian.AppendUint64(b, k.Share)
	}

	return b
}

// RestoreTurn returns the turn of a caller that kept its tickets, in this process or a later one. In the line that
// gave a ticket the caller goes where it stood. A line that has ended since was older than the line that is there,
// so the caller goes before all of its class. Without bytes there are no tickets, and RestoreTurn returns nil and true. It
// returns false if the bytes do not hold tickets for the charges of b.
func (n *Node) RestoreTurn(b *store.Booking, kept []byte) (store.Turn, bool) {
	if len(kept)%keptSize != 0 {
		return nil, false
	}

	// In lines that gave it no ticket the caller goes before all of its class: it counts as having started.
	t := &turn{charges: slices.Clone(b.Charges), class: classOf(b.Priority), started: true}
	for ; len(kept) > 0; kept = kept[keptSize:] {
		k := wire.Ticket{Budget: [16]byte(kept), State: wire.HadStart}

		// Kept bytes come from outside, so no number is larger than Redis can give.
		line, number, share := binary.BigEndian.Uint64(kept[16:]), binary.BigEndian.Uint64(kept[24:]), binary.BigEndian.Uint64(kept[32:])
		if max(line, number, share) > wire.MaxTicket {
			return nil, false
		}

		k.Line, k.Number, k.Share = int64(line), int64(number), share

		// Each ticket is for one charge of this booking, and each charge has one ticket at the most.
		isSame := func(known wire.Ticket) bool { return known.Budget == k.Budget }
		isCharged := func(c store.Charge) bool { return c.Budget.Key == k.Budget && !wire.ForSlots(&c) }
		if !slices.ContainsFunc(b.Charges, isCharged) || slices.ContainsFunc(t.tickets, isSame) {
			return nil, false
		}

		t.tickets = append(t.tickets, k)
	}

	if len(t.tickets) == 0 {
		return nil, true
	}

	return t, true
}

// summon summons the waiters for which isSummoned is true: it takes them out of the line and closes their
// ready, so that they book again together. It sets the timer, which forgets a line without waiters.
func (l *line) summon(isSummoned func(*turn) bool) {
	// Count all of them in the gathering before the first is woken: the next call waits for the last of them.
	var summoned []*turn
	for i := 0; i < len(l.waiters); {
		if t := l.waiters[i]; isSummoned(t) {
			t.gathering = l.node.expect(l.group)
			summoned = append(summoned, t)
			l.remove(i)
		} else {
			i++
		}
	}

	for _, t := range summoned {
		close(t.ready)
	}

	l.setTimer()
}

// summonAll summons all waiters.
func (l *line) summonAll() { l.summon(func(*turn) bool { return true }) }

// summonNear summons the waiters whose start is within their horizon by the estimates of this node, and with
// each of them the waiters of its lane that came before it. In a line with shares it puts off some waiters first.
func (l *line) summonNear(now time.Time) {
	if l.hasShares {
		l.putOff(now)
	}

	// Whoever is near takes along the waiters before it in its lane, or it would pass them.
	var below cuts // waiters with lower tickets are summoned
	for _, t := range l.waiters {
		if !t.nearAt.After(now) {
			below.set(t.laneID(), t.number+1)
		}
	}
	l.summon(func(t *turn) bool { return t.number < below.of(t.laneID()) })
}

// putOff puts off each waiter of a line with shares whose start seems near, though the start of the waiter before it in its
// lane does not. The waiter before has asked later, and so has the better estimate: in the meantime callers with other
// shares have made all starts of the lane later.
func (l *line) putOff(now time.Time) {
	for i, t := range l.waiters {
		if i == 0 || t.laneID() != l.waiters[i-1].laneID() {
			continue
		}
		if before := l.waiters[i-1]; !t.nearAt.After(now) && before.nearAt.After(now) {
			t.nearAt, t.comeBy = before.nearAt, latest(t.comeBy, before.comeBy)
		}
	}
}

// setTimer sets the timer to when the next waiter is to be summoned, or Redis is to be asked, and finds l.nearAt
// anew. A line without waiters has no timer, and is forgotten.
func (l *line) setTimer() {
	if len(l.waiters) == 0 {
		if l.timer != nil {
			l.timer.Stop()
		}
		if l.node.lines[l.key] == l {
			delete(l.node.lines, l.key)
		}

		return
	}

	// Estimates may have changed, so look for the first waiter anew.
	l.firstTurn = nil
	next := l.asksAt()

	l.nearAt = l.waiters[0].nearAt
	for _, t := range l.waiters {
		next, l.nearAt = earliest(next, t.comeBy), earliest(l.nearAt, t.nearAt)
	}

	l.setTimerTo(next)
}

// setTimerTo sets the timer to a moment, or to now if the moment is past.
func (l *line) setTimerTo(next time.Time) {
	l.timerAt = next
	d := max(1, time.Until(next))
	if l.timer == nil {
		l.timer = time.AfterFunc(d, l.due)
	} else {
		l.timer.Reset(d)
	}
}

// due runs when the timer fires. It summons the waiters whose start is near or, if there are none, asks how the line
// stands when that is due. It sets the timer anew.
func (l *line) due() {
	l.node.mu.Lock()
	defer l.node.mu.Unlock()
	if len(l.waiters) == 0 {
		return
	}

	now := time.Now()

	// If a waiter is near, its booking says how the line stands.
	if !l.asksAt().After(now) && l.nearAt.After(now) {
		l.ask()
	}
	l.summonNear(now) // sets the timer, too
}

// ask makes a call that books nothing. Redis answers with the state of each line in which the first waiter
// has a ticket, and learns within what time the node will ask again.
func (l *line) ask() {
	// The time until the next question counts from this one, even if it gets no answer.
	l.heardAt, l.unasked = time.Now(), false
	t := l.first()
	o := keepOp(wire.Renew, t.charges...)
	o.asksFor = l
	o.Class, o.Tickets, o.Again = t.class, slices.Clone(t.tickets), time.Until(l.asksAt())
	l.node.postLocked(o)
}

const (
	askFirst  = 500 * time.Millisecond // a large part of a line asks for the first time after this: the waiters before it may have died
	askRarely = 15 * time.Second       // a first waiter asks at least that often, unless its turn is far away
	askSmall  = 3 * time.Second        // a small part asks no sooner: other nodes ask, too
	farAway   = 20                     // if its turn is far away, a first waiter asks after a farAway-th of half of its wait
	largePart = 8                      // a node's part of a line is large from a largePart-th of the line on
)

// asksAt returns when the node asks Redis next how the line stands: the earliest of five moments. One of them is when
// the first waiter is summoned, which asks as well when it books again.
func (l *line) asksAt() time.Time {
	at := l.first().comeBy
	for _, moment := range [...]time.Time{l.whenHurried(), l.whenNew(), l.whenFirstStarts(), l.whenHalfIsOver()} {
		at = earliest(at, moment)
	}
	return at
}

// never is the moment of a reason that a line does not have.
var never = time.Unix(1<<40, 0)

// whenHurried is when to ask because Redis said that waiters should ask again soon, or has published a cut.
func (l *line) whenHurried() time.Time {
	if !l.hurry {
		return never
	}

	return l.heardAt.Add(wire.AskSoon)
}

// whenNew is when to ask for the first time in a line of which the node has a large part.
func (l *line) whenNew() time.Time {
	if !l.unasked || !l.isLarge() {
		return never
	}

	return l.heardAt.Add(askFirst)
}

// whenFirstStarts is when to ask because the first waiter of the whole line may start. All waiters before those of
// this node may be dead: the answer says whether they take the room that they are offered.
func (l *line) whenFirstStarts() time.Time {
	if l.firstStart.IsZero() || !l.isLarge() {
		return never
	}

	// Redis offers the room a third of the horizon before that start, and the answer comes a little later: see queue.tell in lua/queue.lua.
	return latest(l.firstStart.Add(-l.first().horizon/4), l.heardAt.Add(askFirst))
}

// whenHalfIsOver returns when the estimate is to be made anew: when half of the wait is over that the first waiter had
// by the last answer, but not too often and not too rarely. It returns never if the first waiter is summoned before that
// or, in a small part of a line, soon.
func (l *line) whenHalfIsOver() time.Time {
	// A small part of a line asks more rarely, because other nodes ask, too. But a waiter with a cost above 1 must show that it lives.
	first, soonest := l.first(), wire.MinAsk
	if !l.isLarge() && first.cost == 1 {
		soonest = askSmall
	}

	half := first.comeBy.Sub(l.heardAt) / 2
	if half < soonest && !l.isLarge() {
		return never
	}

	// A waiter asks at least every askRarely but, if its turn is far away, less often.
	longest := max(askRarely, min(half/farAway, wire.MaxAsk))
	at := l.heardAt.Add(min(max(soonest, half), longest))
	if !at.Before(first.nearAt) {
		return never
	}

	return at
}

// first returns the waiter whose turn comes first, as far as the node knows. The line must have waiters.
func (l *line) first() *turn {
	// Without shares the order of the tickets is the order of the turns.
	if l.shared == 0 {
		return l.waiters[0]
	}

	if l.firstTurn == nil {
		l.firstTurn = slices.MinFunc(l.waiters, func(a, b *turn) int {
			if comesBefore(a, b) {
				return -1
			}
			return 1
		})
	}

	return l.firstTurn
}

// comesBefore reports whether a comes to its turn before b: if a's class goes before b's, or if a's start is
// sooner by the estimates of this node.
func comesBefore(a, b *turn) bool {
	if c := cmp.Compare(a.class, b.class); c != 0 {
		return c < 0
	}

	return a.nearAt.Before(b.nearAt)
}

// isLarge reports whether this node has a large part of all that waits in the line, so that it cannot rely on
// other nodes to ask how the line stands.
func (l *line) isLarge() bool { return l.cost*largePart >= l.waiting }
