package node

import (
	"context"
	"runtime"
	"slices"
	"time"

	"github.com/fleetthrottle/throttle/internal/linger"
	"github.com/fleetthrottle/throttle/redisstore/internal/conn"
	"github.com/fleetthrottle/throttle/redisstore/internal/history"
	"github.com/fleetthrottle/throttle/redisstore/internal/wire"
	"github.com/fleetthrottle/throttle/store"
)

// A queue has the ops of one group that wait for the next call. Calls are made in sequence. A call
// belongs to no caller, so a caller that leaves does not disturb the rest of the batch. A queue runs only while
// callers wait: then a leader, or a goroutine, makes its calls. It exists while it runs, or has a lost call.
type queue struct {
	ops     []*op
	running bool
	lost    *batch        // a call without an answer, for which nobody waited any more: see next
	leavers int           // upper bound on the queued ops whose caller has left
	left    chan struct{} // is sent to when a caller leaves: it wakes a call that waits before it is made again
	due     time.Time     // when the next call must be made, if there are ops
	sooner  chan struct{} // is sent to when due becomes earlier, or a call is full
}

const (
	maxBatch = 80 // ops in one call: so Redis is busy for a short time, and the record of the answers takes a few KB
	maxTurns = 32 // ops of callers that were in a line, among the ops of one call: each has an answer of its own, which Redis keeps
)

// enqueue puts an op into the queue of its group, and ends the expectation of a caller that was summoned. It returns the
// queue if the queue stood still: then the queue runs now, and whoever called enqueue must lead or drain it. Otherwise
// enqueue returns nil.
func (n *Node) enqueue(o *op) *queue {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.enqueueLocked(o)
}

// enqueueLocked is enqueue where the node is locked.
func (n *Node) enqueueLocked(o *op) *queue {
	q := n.queues[o.group()]
	if q == nil {
		q = &queue{left: make(chan struct{}, 1), sooner: make(chan struct{}, 1)}
		n.queues[o.group()] = q
	}

	q.ops = append(q.ops, o)
	q.noteDue(o)

	// A summoned caller that comes back is no longer expected, whether its queue runs or not.
	n.endExpectation(o.turn)

	if q.running {
		return nil
	}

	q.running = true
	return q
}

// noteDue sets q.due by o, the op that has come last. It sends to q.sooner, for gather, if the next call must be made
// earlier, or is full.
func (q *queue) noteDue(o *op) {
	due := o.due()
	isEarlier := len(q.ops) == 1 || due.Before(q.due) // the first op has the only due time
	if isEarlier {
		q.due = due
	}

	if isEarlier || len(q.ops) == maxBatch {
		select {
		case q.sooner <- struct{}{}:
		default:
		}
	}
}

// lead makes the next call of a queue that stood still, on the goroutine of the caller of an op, its leader. So
// a lone caller needs no other goroutine. It reports whether the op is done: then it has received from o.done.
//
// lead starts a goroutine that drains the queue if ops have come during the call, or if ctx ends while the leader gathers.
// That goroutine also goes on with a call that failed, that has no answer by conn.Silence after o joined or before the
// leader leaves, or that has reports, which may have to wait for locks.
func (n *Node) lead(ctx context.Context, o *op, q *queue, maxWait time.Duration) bool {
	// Other callers may come while the leader gathers, and share its call.
	group := o.group()
	n.gather(ctx, group, q)

	// The leader leaves: a goroutine serves those who came, or stops the queue.
	if ctx.Err() != nil {
		go n.drain(group, q, nil)
		return false
	}

	// There is a next call: the leader's own op is in the queue.
	b := n.next(group, q)

	// A call with reports may have to wait for their locks, and the leader may leave meanwhile.
	if b.forSlots() {
		go n.drain(group, q, b)
		return false
	}

	// The time in which the leader gathered counts.
	answerTime := conn.Silence // for how long, from o.joined on, the leader itself waits for the answer
	if d, ends := conn.Patience(ctx, maxWait, o.joined); ends {
		answerTime = min(answerTime, d)
	}
	timeUp := time.NewTimer(answerTime - time.Since(o.joined))
	defer timeUp.Stop()

	// The call may have reached Redis: if it has no answer or has failed, a goroutine goes on with it.
	err := n.try(b, func(x *conn.Exchange) (wire.Frame, error) { return x.AwaitUntil(ctx, timeUp.C) })
	if err != nil {
		if err != conn.ErrUnanswered {
			b.failed = err
		}
		go n.drain(group, q, b)
		return false
	}

	n.deliver(q, b, nil)

	// The queue may have got ops while the leader's call was on its way: a goroutine serves them.
	if !n.stopIfEmpty(group, q) {
		go n.drain(group, q, nil)
	}

	// The op is done, unless a later call has it: this call was a lost one, was full, or refused the op for the MaxWait of other callers.
	select {
	case <-o.done:
		return true
	default:
		return false
	}
}

// drain makes calls until the queue has no ops, or until a call has failed and nobody waits any more. It begins with b,
// the call that a leader left to it, or with the next call if b is nil.
func (n *Node) drain(group string, q *queue, b *batch) {
	// This goroutine decodes replies and runs deep: let its stack grow once.
	conn.GrowStack()
	if b != nil && !n.execute(q, b) {
		return
	}

	for {
		n.gather(context.Background(), group, q)
		b = n.next(group, q)
		if b == nil || !n.execute(q, b) {
			return
		}

		// Callers that were served may come again at once: they get the processor, so that they
		// share the next call.
		runtime.Gosched()
	}
}

// next returns the next call of the queue, or nil if there are no ops: then the queue stops. A lost call is made again
// first: its answer says which starts it booked, and they are given back. A lost call whose record Redis may have
// forgotten is dropped, because Redis might do it a second time.
func (n *Node) next(group string, q *queue) *batch {
	n.mu.Lock()
	defer n.mu.Unlock()

	if n.stopIfEmptyLocked(group, q) {
		return nil
	}

	if b := q.lost; b != nil {
		q.lost = nil
		if time.Since(b.sent) < history.RecordTime {
			return b
		}
	}

	// Ops that give something back go first, so that callers behind them find the room.
	slices.SortStableFunc(q.ops, compareOps)

	// Take as many ops as a call has room for. An isolated op has a call for itself.
	size, turns := 1, q.ops[0].turnCount()
	for size < min(len(q.ops), maxBatch) && !q.ops[0].isolated && !q.ops[size].isolated {
		turns += q.ops[size].turnCount()
		if turns > maxTurns {
			break
		}
		size++
	}

	// The rest goes to a slice of its own: the batch keeps its ops while callers queue behind it.
	ops := q.ops[:size:size]
	q.ops = append(make([]*op, 0, len(q.ops)), q.ops[size:]...) // with room for as many new ops as this call takes away
	q.due = time.Time{}                                         // the call of the ops that are left is due at once

	// The time for which an op waited for the ops of other callers counts against the MaxWait of its own caller.
	for _, o := range ops {
		o.subtractPatience()
	}

	n.calls++
	return newBatch(ops, n.calls)
}

// nextNumber returns the number of a new call.
func (n *Node) nextNumber() int64 {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.calls++
	return n.calls
}

// stopIfEmpty sweeps the queue, stops it if it then has no ops, and reports whether it stopped the queue.
func (n *Node) stopIfEmpty(group string, q *queue) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.stopIfEmptyLocked(group, q)
}

// stopIfEmptyLocked is stopIfEmpty where the node is locked.
func (n *Node) stopIfEmptyLocked(group string, q *queue) bool {
	q.sweep()
	if len(q.ops) > 0 {
		return false
	}

	// A queue that stands still is forgotten, except where a lost call must be made again.
	q.ops, q.running = nil, false
	if q.lost == nil {
		delete(n.queues, group)
	}
	return true
}

// execute makes a call, again and again, until Redis has answered or refused it, and delivers the result. If Redis
// refused a call of several ops, and did nothing, execute queues the ops again, each for a call of its own. It returns
// false if a call failed and nobody waits for the answer any more: then the queue has stopped. A call that is made again
// has the same number, by which Redis knows whether the call was done already: see send.
func (n *Node) execute(q *queue, b *batch) bool {
	// The leases stay locked while the call is made, however often, so that one call at a time reports them.
	if b.forSlots() {
		b.leases = n.lockRecords(b.ops)
		defer func() { n.learnReports(b.leases, b.replies, b.sent) }()
	}

	// Try until the call is done, or until nobody waits for it.
	abandoned := false
	err := conn.Retry(context.Background(), q.left, func(err error) bool {
		abandoned = !n.noteFailure(q, b, err)
		return !abandoned
	}, func() error {
		return n.try(b, func(x *conn.Exchange) (wire.Frame, error) { return x.Await(context.Background()) })
	})

	switch {
	case abandoned:
		return false

	// Redis did nothing, and one of the ops may be why: try each alone.
	case err != nil && len(b.ops) > 1 && conn.Unexecuted(err):
		n.isolate(q, b)

	default:
		n.deliver(q, b, err)
	}

	return true
}

// deliver ends the ops of a batch, with the error err or with their outcomes, and wakes their callers. An op that was
// refused for the MaxWait of other callers does not end: it asks again. What was booked for a caller that has left,
// and the places of callers that get an error, are given back by the next call.
func (n *Node) deliver(q *queue, b *batch, err error) {
	n.mu.Lock()
	defer n.mu.Unlock()

	// undo are new ops that give something back, and again are ops of this call that must ask again.
	var undo, again []*op
	for _, m := range b.merged {
		for i := m.from; i < m.to; i++ {
			// The node's own state comes first: a caller that wakes finds its place.
			o := b.ops[i]
			o.first, o.sent, o.err = b.sent, b.copied, err
			if o.forSlots {
				n.slotsAnswered(o)
			}
			if err == nil {
				n.startAnswered(o)
			}

			switch state := o.outcome.State; {
			case err != nil:
				undo = append(undo, o.leaveOps()...)
				o.done <- struct{}{}

			// A caller that has left gives back its places in lines for starts: an unsettled caller still has its own.
			case o.left && (state == wire.InLine || state == wire.Unsettled):
				undo = append(undo, o.leaveOps()...)

			// A caller that has left gives back its start, or its place in a line for slots.
			case o.left && (o.outcome.Booked() || state == wire.Waiting):
				undo = append(undo, o.cancelOp(o.outcome.Handle()))
			case !o.left && o.refusedForOthers(m):
				o.noMerge = true
				again = append(again, o)
			default:
				o.done <- struct{}{}
			}
		}
	}

	// What is given back goes first, and an op that asks again comes before the ops that came later.
	if len(undo)+len(again) > 0 {
		q.ops = slices.Concat(undo, again, q.ops)
	}
}

// noteFailure notes why a call failed, and reports whether anybody waits for the call or in the queue. If nobody does, it
// stops the queue and keeps the call as lost: the next caller of the group will make the call once more.
func (n *Node) noteFailure(q *queue, b *batch, err error) bool {
	n.mu.Lock()
	defer n.mu.Unlock()

	for _, o := range b.ops {
		o.fail(err)
	}

	for _, o := range q.ops {
		o.fail(err)
	}

	// As long as anybody waits, the call is made again.
	if slices.ContainsFunc(b.ops, (*op).isAwaited) || slices.ContainsFunc(q.ops, (*op).isAwaited) {
		return true
	}

	// All callers of the call have left, so the time until it is made again counts against no MaxWait.
	q.lost, q.running, b.copied = b, false, time.Time{}
	return false
}

// isolate puts the ops of a batch back to the front of the queue, each for a call of its own, because Redis
// cannot do the call, and one op may be the reason.
func (n *Node) isolate(q *queue, b *batch) {
	n.mu.Lock()
	defer n.mu.Unlock()

	// leavers counts the queued ops whose caller has left: otherwise sweep would not look for them.
	for _, o := range b.ops {
		o.isolated = true
		if o.left {
			q.leavers++
		}
	}
	q.ops = append(slices.Clone(b.ops), q.ops...)
}

// noteLeft notes that a caller has left. It sweeps a queue in which most callers have left. It wakes a queue that waits
// before it makes a call again: perhaps nobody wants the call any more.
func (q *queue) noteLeft() {
	q.leavers++
	if q.leavers > 100 && q.leavers > len(q.ops)/2 { // otherwise it is enough that next sweeps
		q.sweep()
	}

	select {
	case q.left <- struct{}{}:
	default:
	}
}

// sweep removes the ops whose callers have left from the queue. In place of a booking whose caller holds a start, or
// places in lines for starts, it puts an op that gives these back.
func (q *queue) sweep() {
	if q.leavers == 0 {
		return
	}

	q.leavers = 0
	var back []*op // that give something back
	q.ops = slices.DeleteFunc(q.ops, func(o *op) bool {
		if o.left && o.Kind == wire.Reserve {
			if o.Start > 0 {
				back = append(back, o.cancelOp(store.Handle{Start: o.Start}))
			}
			back = append(back, o.leaveOps()...)
		}
		return o.left
	})

	// What is given back goes first, so that the ops behind find the room.
	q.ops = append(back, q.ops...)
}

// gather waits for callers that may share the next call of a queue, until one of its ops can wait no longer or the
// call is full. If ctx ends before, gather returns at once. Otherwise it then waits for the callers that were summoned
// and are on their way.
func (n *Node) gather(ctx context.Context, group string, q *queue) {
	for {
		d := n.spareTime(q)
		if d <= 0 {
			// Callers that were summoned together come at nearly the same moment: wait for the last of them.
			n.awaitSummoned(group)
			return
		}

		timer := time.NewTimer(d)
		select {
		case <-timer.C:
		case <-q.sooner:
		case <-ctx.Done():
		}

		timer.Stop()
		if ctx.Err() != nil {
			return
		}
	}
}

// spareTime returns for how long the next call of a queue may still wait: 0 or less means that it is due.
func (n *Node) spareTime(q *queue) time.Duration {
	n.mu.Lock()
	defer n.mu.Unlock()
	if len(q.ops) == 0 || len(q.ops) >= maxBatch {
		return 0
	}

	return time.Until(q.due)
}

// A gathering is the callers of one group that were summoned and are on their way to the group's queue. The
// next call waits for them, so that callers that are summoned together are served by one call, in the order of
// their tickets.
type gathering struct {
	group   string
	missing int
	over    chan struct{} // closed when nobody is missing
}

// maxGather is how long a call waits for summoned callers at the most: a caller may be busy.
const maxGather = 5 * time.Millisecond

// expect adds a caller that is being summoned to the gathering of its group.
func (n *Node) expect(group string) *gathering {
	g := n.gatherings[group]
	if g == nil {
		g = &gathering{group: group, over: make(chan struct{})}
		n.gatherings[group] = g
	}
	g.missing++
	return g
}

// endExpectation notes that the summoned caller of a turn has come to the queue, or does not come. It does nothing
// if the turn is nil, or was not summoned.
func (n *Node) endExpectation(t *turn) {
	if t == nil || t.gathering == nil {
		return
	}

	g := t.gathering
	t.gathering = nil
	g.missing--

	// Somebody is still on the way.
	if g.missing > 0 {
		return
	}
	close(g.over)
	n.endGathering(g)
}

// endGathering forgets a gathering: no call waits for it from now on.
func (n *Node) endGathering(g *gathering) {
	// A gathering that was forgotten before may have a successor, which stays.
	if n.gatherings[g.group] == g {
		delete(n.gatherings, g.group)
	}
}

// awaitSummoned waits for the summoned callers of a group, for maxGather at the most.
func (n *Node) awaitSummoned(group string) {
	n.mu.Lock()
	g := n.gatherings[group]
	n.mu.Unlock()
	if g == nil {
		return
	}

	late := time.NewTimer(maxGather)
	defer late.Stop()

	select {
	case <-g.over:
	case <-late.C:
		// Some caller may be busy, so no other call waits for this gathering either.
		n.mu.Lock()
		defer n.mu.Unlock()
		n.endGathering(g)
	}
}

// maxLinger is for how long a call waits for newcomers at the most: callers of other nodes that come meanwhile get places before them.
const maxLinger = 150 * time.Millisecond

// noteWait notes the answer to an op: which budget has its caller wait, and for how long.
func (n *Node) noteWait(o *op, now time.Time) {
	out := &o.outcome

	// No budget has this caller wait, or its wait says nothing of newcomers: a pause ends for all at once, and a caller without a class or a horizon stands in no line.
	if out.Charge < 0 || out.Wait <= 0 || out.PausedUntil > 0 || o.Class == 0 || o.Horizon <= 0 {
		return
	}

	c := &o.Charges[out.Charge]
	n.full.Note(c.Budget.Key, lingerLane(wire.LaneID{Class: o.Class, Share: c.Share.ID}), now.Add(wire.Wait(out.Wait)), now, o.turn == nil)
}

// lingerLane is the lane with an ID as package linger names it.
func lingerLane(id wire.LaneID) linger.Lane {
	return linger.Lane{Class: int(id.Class - 1), Share: id.Share}
}

// patience returns how long the call of an op may wait for other newcomers: half of the time that its caller has to wait anyway, at most maxLinger and, in a lane
// of a share, only until the caller's start is within its horizon.
func (n *Node) patience(o *op, b *store.Booking, now time.Time) time.Duration {
	if o.Kind != wire.Reserve || o.forSlots {
		return 0
	}

	wait, c := n.full.Wait(b, maxLinger, now)
	if wait == 0 {
		return 0
	}

	spare := wait / 2
	if c.Share.ID != 0 {
		spare = min(spare, max(0, wait-b.Horizon))
	}
	return min(maxLinger, spare)
}
