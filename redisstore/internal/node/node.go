// Package node books starts in Redis for the callers of one program. It knows the callers that wait, and
// makes the calls of lua/book.lua for them. Redis knows rows: how much waits in each line for starts, and the
// first waiters for slots of each program, but no single caller. See docs/internals/line.md,
// docs/internals/in-flight.md and docs/internals/once.md.
//
// # The states of a waiting caller
//
// A caller is in one state at a time. All of it is guarded by the lock of the [Node].
//
//	state     what the node has                         next      when
//	asked     an op in the queue of its group, or in    booked    the answer has a start, or the slots
//	          a batch that is on its way to Redis       in line   the answer has a place in a line
//	                                                    refused   the answer has neither: the caller is done
//	                                                    asked     Redis lost starts: it asks again, a little later
//	                                                    left      its context or its MaxWait ends
//	in line   a turn in a line for starts, or a         summoned  Redis says so, or its start must be within
//	          waiter in a lease; Ready is open                    the horizon by the last estimate
//	                                                    left      Cancel
//	summoned  Ready is closed, and the turn is in no    asked     the caller books again
//	          line; a gathering expects the caller      left      Cancel
//	booked    nothing of a start, and in the lease      left      Cancel, or Release for slots
//	          how many slots the node holds
//	left      an op that gives back what Redis may      asked     the caller books again with its Turn
//	          still have, until that op is answered
//
// # Batches
//
// Callers of one group of budgets share calls. While a call is on its way, the ops of other callers wait in a
// queue, and the next call serves them all as one batch: group commit. A caller that finds no call on its way
// makes a call itself, as the leader of the batch.
package node

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/fleetthrottle/throttle/internal/linger"
	"github.com/fleetthrottle/throttle/internal/outage"
	"github.com/fleetthrottle/throttle/redisstore/internal/conn"
	"github.com/fleetthrottle/throttle/redisstore/internal/history"
	"github.com/fleetthrottle/throttle/redisstore/internal/notify"
	"github.com/fleetthrottle/throttle/redisstore/internal/wire"
	"github.com/fleetthrottle/throttle/store"
)

// A Node is the waiting callers of one program, and the program's calls. It is safe for concurrent use.
type Node struct {
	Options
	unused sync.Pool // of ops

	// mu guards all fields below, and the ops, queues, lines, turns and leases that they lead to. No call of
	// Redis is made while it is held.
	mu sync.Mutex

	calls      int64                 // the number of the last call
	queues     map[string]*queue     // by group
	gatherings map[string]*gathering // of callers that were summoned, by group

	lines map[string]*line // for starts, by the key of the budget
	full  linger.Budgets

	leases        map[string]*lease // of slots, by key
	sequence      int64             // the number of the last report
	latestArrival int64             // when the last waiter for slots came
}

// Options are the parts of the program that a Node works with. All except NoNews are required.
type Options struct {
	Conn    *conn.Conn
	Names   *wire.Space
	History *history.History
	Offsets *history.ClockOffsets
	Pauses  *history.PauseEnds // of budgets
	Shut    *history.PauseEnds // of unlimited budgets that Redis said to be shut: see chooseRows
	Subs    *notify.Subscriptions
	Lost    func(key string) // is told that Redis lost a budget

	RenewEvery time.Duration // how often a lease is renewed at least: see [RenewEvery]

	// NoNews keeps callers for starts from listening to messages and from lingering. Tests with a clock of
	// their own need that.
	NoNews bool
}

// New returns a node whose callers have not come yet.
func New(o Options) *Node {
	return &Node{
		Options: o, queues: make(map[string]*queue), gatherings: make(map[string]*gathering),
		lines: make(map[string]*line), leases: make(map[string]*lease),
	}
}

// Book implements [store.Store]. If Redis lost a budget, Book gives the fleet time to report the starts in that
// budget to Redis, and then asks again: see docs/internals/state-loss.md.
func (n *Node) Book(ctx context.Context, b *store.Booking) (store.Grant, error) {
	g, again, err := n.bookOnce(ctx, b, false)
	if err != nil || again.after == 0 {
		return g, err
	}

	// The caller has waited for the first answer already, and MaxWait is for both waits together.
	if b.MaxWait > 0 {
		again.after = min(again.after, conn.Remaining(b.MaxWait, again.since))
	}
	if err := sleep(ctx, again.after); err != nil {
		// The caller still has its places in lines, and after an error nobody else gives them up.
		if leave := n.leaveLines(b.Turn); leave != nil {
			n.post(leave)
		}
		return store.Grant{HeldBy: store.NotHeld}, err
	}

	// The first call has given back what the booking replaces.
	own := *b
	own.Instead, own.MaxWait = store.Handle{}, conn.Remaining(b.MaxWait, again.since)
	own.NotBefore = max(0, b.NotBefore-time.Since(again.since))

	// Wait only once: otherwise a Redis that keeps losing the budget would block the caller forever.
	g, _, err = n.bookOnce(ctx, &own, true)
	return g, err
}

// A retry says when a caller asked first, and after what time it asks again. The zero retry means that a start
// was booked or refused, and the caller does not ask again.
type retry struct {
	since time.Time
	after time.Duration
}

// bookOnce asks Redis for a start and waits for the answer: see do. informed says that the fleet has had time to report
// starts that Redis lost. If the fleet has not, and Redis did lose starts, nothing is booked, and bookOnce returns a
// retry. After an error the caller has lost its place in a line for slots.
func (n *Node) bookOnce(ctx context.Context, b *store.Booking, informed bool) (store.Grant, retry, error) {
	o := n.newBooking(wire.Reserve, b)
	o.Informed = informed
	if err := n.do(ctx, o, b.MaxWait); err != nil {
		n.loseWait(b)
		return store.Grant{HeldBy: store.NotHeld}, retry{}, err
	}
	defer n.free(o)

	// Redis lost data, and waits for the nodes to report the starts that they know.
	if o.outcome.State == wire.Unsettled {
		return store.Grant{}, retry{o.joined, wire.Wait(max(1, o.outcome.Wait))}, nil // not 0, which means no retry
	}
	return n.grant(o), retry{}, nil
}

// newBooking returns an op for a booking. The caller leaves the line in which it waits for a start, and may give up its
// places: see join.
func (n *Node) newBooking(k wire.Kind, b *store.Booking) *op {
	// The charges are copied, because the op may outlive the caller's call.
	o := n.newOp(k, b.Charges)
	o.MaxWait, o.NotBefore, o.Spread = wire.MaxWait(b.MaxWait), b.NotBefore, b.Spread
	o.Horizon, o.Class = b.Horizon, classOf(b.Priority)
	o.Returns = b.Returns && b.Horizon > 0 // without a horizon the caller stands in no line, and goes first in none
	o.setHandle(b.Instead)
	n.join(o, b)
	return o
}

// do queues an op and waits until it is done, as long as ctx and maxWait allow, and returns the op's error. maxWait means
// what [store.Booking.MaxWait] does. If ctx or maxWait ends before the op is done, do returns an error at once, and a
// start that is booked all the same is given back. After an error the caller must not use the op any more.
func (n *Node) do(ctx context.Context, o *op, maxWait time.Duration) error {
	o.observer = outage.From(ctx)
	if o.observer != nil {
		o.failed = make(chan struct{}, 1)
	}

	// What follows is the caller's time in the queue: patience and MaxWait count from here.
	o.joined, o.asked = time.Now(), true

	// A queue that stood still is led by this caller, who needs no other goroutine for its answer.
	if q := n.enqueue(o); q != nil && n.lead(ctx, o, q, maxWait) {
		return o.err
	}

	timeUp, stop := conn.Timeout(ctx, maxWait, o.joined)
	defer stop()
	if n.await(ctx, o, timeUp) {
		return o.err
	}

	n.mu.Lock()
	defer n.mu.Unlock()

	// The answer may have come while the lock was awaited.
	select {
	case <-o.done:
		return o.err
	default:
	}

	// A start that is booked all the same is given back by the next call: see deliver.
	o.left = true
	n.queues[o.group()].noteLeft()
	return n.Conn.Unavailable(o.unavailability(), context.Cause(ctx))
}

// await waits until the op is done, and returns true. It returns false if timeUp is ready or ctx ends before. It
// reports an outage to the op's observer.
func (n *Node) await(ctx context.Context, o *op, timeUp <-chan time.Time) bool {
	if o.observer == nil {
		return conn.Await(ctx, o.joined, o.done, timeUp, nil, nil)
	}

	return conn.Await(ctx, o.joined, o.done, timeUp, o.failed, func() {
		n.mu.Lock()
		why := o.unavailability()
		n.mu.Unlock()
		o.observer.StoreAway(n.Conn.Cause(why))
	})
}

// An op is one caller's operation, on its way through a queue and a batch. The lock of the node guards it until
// done is sent to. From then on it belongs to its caller.
type op struct {
	wire.Op
	turn   *turn     // the caller's arrival in lines for starts, or nil if it was in no line
	joined time.Time // when the caller began to wait or, if no caller waits in do, when the op was made. It is zero for a report whose answer nobody awaits

	patience time.Duration // for how long the op's call may wait for the ops of other callers

	forSlots bool  // some charges are for slots
	noMerge  bool  // the op must not be merged
	isolated bool  // the op must have a call for itself
	asksFor  *line // the line whose state the op asks for, or nil

	observer outage.Observer // to which an outage is reported; may be nil
	failed   chan struct{}   // is sent to when a call has failed; nil without an observer
	fails    int             // how many calls failed while the op waited
	asked    bool            // the caller waits in do
	left     bool            // nobody waits for the answer
	done     chan struct{}   // is sent to once, when the fields below are set

	outcome outcome
	ready   <-chan struct{} // of the place in line: see store.Grant
	first   time.Time       // when the op's call was sent for the first time
	sent    time.Time       // when the copy of the call that Redis answered was sent
	err     error           // why there is no outcome; while the op waits, why there is none yet
}

// newOp returns an op with a copy of the charges: their owner may change them when do returns, even if a call is
// still on its way. The caller may free the op when it is done.
func (n *Node) newOp(k wire.Kind, charges []store.Charge) *op {
	o, _ := n.unused.Get().(*op)
	if o == nil {
		o = &op{done: make(chan struct{}, 1)}
	}

	// An op that was used before keeps the memory of its charges and its channel. All other fields begin anew.
	*o = op{Op: wire.Op{Kind: k, Charges: append(o.Charges[:0], charges...)}, done: o.done, forSlots: needSlots(charges)}
	return o
}

// free lets newOp reuse an op that is done.
func (n *Node) free(o *op) { n.unused.Put(o) }

// keepOp returns an op that keeps the charges without a copy: their owner must not change them any more.
func keepOp(k wire.Kind, charges ...store.Charge) *op {
	return &op{Op: wire.Op{Kind: k, Charges: charges}, forSlots: needSlots(charges), joined: time.Now(), done: make(chan struct{}, 1)}
}

// newReport returns an op that asks for nothing, so that a call is made that carries the reports of the charges'
// leases. The op keeps the charges. After a failure its call is made again only for do or tell: see isAwaited.
func newReport(charges ...store.Charge) *op {
	o := keepOp(wire.Cancel, charges...)
	o.joined = time.Time{}
	return o
}

// needSlots reports whether some charges are for slots.
func needSlots(charges []store.Charge) bool {
	for i := range charges {
		if wire.ForSlots(&charges[i]) {
			return true
		}
	}
	return false
}

// setHandle sets the start, or the place in a line for slots, that the caller holds and a handle names.
func (o *op) setHandle(h store.Handle) { o.Start, o.Arrival = h.Start, h.Place }

// group is the group of budgets whose calls serve the op.
func (o *op) group() string { return o.Charges[0].Budget.Group }

// due returns when the op's call must be made at the latest.
func (o *op) due() time.Time { return o.joined.Add(o.patience) }

// subtractPatience takes the time for which the op has waited for other callers off its MaxWait, and ends its patience.
func (o *op) subtractPatience() {
	// Only an op with patience has waited. MaxWait does not become 0, which is the MaxWait of a caller that never waits.
	if o.patience > 0 && o.MaxWait < wire.AnyWait {
		o.MaxWait = max(1, o.MaxWait-wire.Micros(time.Since(o.joined)))
	}
	o.patience = 0
}

// fail notes why a call failed while the op waited, and wakes await if the caller has an observer.
func (o *op) fail(err error) {
	o.err = err
	o.fails++
	select {
	case o.failed <- struct{}{}:
	default:
	}
}

// unavailability is why the caller has no answer yet.
func (o *op) unavailability() conn.Unavailability {
	return conn.Unavailability{Since: o.joined, Fails: o.fails, Last: o.err}
}

// isAwaited reports whether anybody waits for the answer: the caller, unless it has left, or the waiters of a line whose
// state the op asks for. An op that gives something back, and for which no caller waits in do, counts as awaited until
// conn.ReplyTime after its joined.
func (o *op) isAwaited() bool {
	switch {
	case o.asksFor != nil:
		return len(o.asksFor.waiters) > 0
	case o.Kind == wire.Cancel && !o.asked:
		return time.Since(o.joined) < conn.ReplyTime
	}

	return !o.left
}

// An outcome is the answer of a call to one op.
type outcome struct {
	wire.Outcome
	Wait   int64     // until At, in microseconds
	paused int64     // for how long the budget that held the caller is still closed, in microseconds
	since  time.Time // the earliest time from which Wait may count; the zero time means: from when the answered copy was sent
}

// repeated reports whether Redis had done the call before it got the copy that it answered.
func (o *outcome) repeated() bool { return !o.since.IsZero() }

// nearServer is how long an answer may be on its way before the offset of the server's clock is more exact.
const nearServer = time.Millisecond

// grant returns what became of an op, for its caller. If the answer was on its way for more than nearServer, the
// age of the grant and the wait for the start follow from the offset of the server's clock, where that is known
// more exactly. The wait does not become 0, which would say that the caller holds its slots.
func (n *Node) grant(o *op) store.Grant {
	out := &o.outcome
	g := o.grant()
	g.Ready, g.Handle.Stamp = o.ready, Stamp(o.first)
	if o.turn != nil {
		g.Turn = o.turn
	}
	if out.State == wire.InLine {
		g.Handle = store.Handle{} // the turn names its place
	}

	// The answer of a near server is exact enough. A repeated answer may name the start by a clock that was set since.
	if !g.OK || g.Age <= nearServer || out.repeated() {
		return g
	}

	wait, doubt, known := n.Offsets.Until(o.group(), out.At, time.Now())
	if age := max(0, -wait) + doubt; known && age < g.Age {
		g.Age = age
		if g.Wait > 0 {
			g.Wait = max(time.Microsecond, wait)
		}
	}

	return g
}

// grant returns the outcome as a grant to the op's caller, as of now, without Ready and Turn.
func (o *op) grant() store.Grant {
	out := &o.outcome
	age, wait := time.Since(o.sent), wire.Wait(out.Wait)

	// A booked start holds no slots yet, and a grant without a wait would say that it does.
	if out.State == wire.Booked && o.forSlots {
		wait = max(wait, time.Microsecond)
	}

	var over []time.Duration // by charge; stays nil while all are 0
	for i, delay := range out.Delays {
		if over == nil && delay > 0 {
			over = make([]time.Duration, len(o.Charges))
		}
		if delay > 0 {
			over[i] = wire.Wait(delay)
		}
	}

	// Nobody knows when an earlier copy was answered, so the grant is as old as it can be.
	if out.repeated() {
		age = max(age, time.Since(out.since))
	}

	// The start of a repeated answer may be past: then the grant is older by that much.
	if out.Booked() && out.Wait < 0 {
		age += time.Duration(-out.Wait) * time.Microsecond
	}

	return store.Grant{OK: out.Booked(), Wait: wait, Age: age, Handle: out.Handle(), Over: over, HeldBy: out.Charge, Paused: out.paused > 0}
}

// sleep waits for d, or returns why ctx has ended.
func sleep(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// loseWait gives up the place in a line for slots that a booking names, because its caller got no answer.
func (n *Node) loseWait(b *store.Booking) {
	if place := b.Instead.Place; place != 0 {
		if lost := n.giveUp(b.Charges, place, false); lost != nil {
			n.Report(lost)
		}
	}
}

// Cancel implements [store.Store].
func (n *Node) Cancel(b *store.Booking, g store.Grant) {
	// A caller without a start may stand in lines for starts, which no handle names.
	if !g.OK {
		if leave := n.leaveLines(g.Turn); leave != nil {
			n.tell(leave)
		}
	}

	// Without a place in a line for slots, and without a booked start, there is nothing more to give back.
	if g.Handle.Place == 0 && (g.Handle.Start == 0 || !g.OK) {
		return
	}

	// A start without a wait holds its slots. The node's own count of slots goes down first, so that the call's reports are without them.
	n.giveUp(b.Charges, g.Handle.Place, g.OK && g.Wait == 0)
	o := n.newBooking(wire.Cancel, b)
	o.setHandle(g.Handle)
	n.tell(o)
}

// Release implements [store.Store].
func (n *Node) Release(b *store.Booking, g store.Grant) {
	// Only a start without a wait holds slots.
	if !g.OK || g.Wait > 0 {
		return
	}
	if ended := n.giveUp(b.Charges, 0, true); ended != nil {
		n.tell(newReport(ended...))
	}
}

// Settle implements [store.Store].
func (n *Node) Settle(ctx context.Context, b *store.Booking, g store.Grant, costs []int) error {
	// Nothing was counted without a start, or for unlimited budgets.
	if !g.OK || !slices.ContainsFunc(b.Charges, func(c store.Charge) bool { return !wire.Unlimited(&c) }) {
		return nil
	}

	o := n.newBooking(wire.Settle, b)
	o.Costs = slices.Clone(costs)
	o.setHandle(g.Handle)
	err := n.do(ctx, o, store.AnyWait)
	if err == nil {
		n.free(o)
	}
	return err
}

// Report makes a call that asks for nothing, in the background. The call carries what the node remembers of the
// charges' budgets, and the reports of their leases.
func (n *Node) Report(charges []store.Charge) { n.post(newReport(charges...)) }

// ReportNow is Report for a caller that waits until Redis has answered.
func (n *Node) ReportNow(ctx context.Context, charges []store.Charge) error {
	return n.do(ctx, newReport(charges...), store.AnyWait)
}

// undoSoon is how long a caller that gives something back waits for the answer, so that its next booking finds
// the room. It does not wait for a Redis that has not answered anything for undoSoon.
const undoSoon = 50 * time.Millisecond

// tell queues an op that gives something back, and waits until the op is done: for undoSoon at most, less the time for
// which Redis has not answered earlier calls. The caller must not use the op and its charges any more.
func (n *Node) tell(o *op) {
	o.joined = time.Now()

	// Ask before the op's own call is made, which has no answer yet.
	unheard := n.Conn.Unheard()
	n.post(o)
	if unheard >= undoSoon {
		return
	}

	soon := time.NewTimer(undoSoon - max(0, unheard)) // unheard is below 0 if the wall clock was set back
	defer soon.Stop()

	select {
	case <-o.done:
		n.free(o)
	case <-soon.C:
	}
}

// post queues an op that nobody waits for.
func (n *Node) post(o *op) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.postLocked(o)
}

// postLocked is post where the node is locked.
func (n *Node) postLocked(o *op) {
	if q := n.enqueueLocked(o); q != nil {
		go n.drain(o.group(), q, nil)
	}
}

// cancelOp returns the op that gives back the start or place of a handle, for the caller of o, which has left.
func (o *op) cancelOp(h store.Handle) *op {
	back := keepOp(wire.Cancel, slices.Clone(o.Charges)...)
	back.Spread = o.Spread
	back.setHandle(h)
	return back
}

// leaveOps returns the op that gives up the places in lines for starts of the caller of o, which does not come again, and
// takes the tickets from the caller's turn. It returns nil if o books nothing or the caller stands in no line.
func (o *op) leaveOps() []*op {
	if o.Kind == wire.Reserve && o.turn != nil {
		if back := o.turn.leave(); back != nil {
			return []*op{back}
		}
	}
	return nil
}

// origin is the time from which the stamps of grants count.
var origin = time.Now()

// Stamp returns the Stamp of the handle of a grant whose booking was sent at a time; [SentAt] returns that time.
func Stamp(sent time.Time) int64 { return int64(sent.Sub(origin)) }

// SentAt returns when the booking of a grant was sent, by the Stamp of the grant's handle.
func SentAt(stamp int64) time.Time { return origin.Add(time.Duration(stamp)) }

// A Load is how much a node has to do.
type Load struct {
	Queued   int // ops that wait for the next call
	Running  int // queues that have a leader, or a goroutine that makes calls
	Waiting  int // callers in line for starts
	Lines    int // lines for starts with waiters of this node
	Summoned int // callers that were summoned and have not asked yet
	Leases   int // budgets of which the node holds slots, waits for slots, or did so lately
}

// Load returns how much the node has to do.
func (n *Node) Load() Load {
	n.mu.Lock()
	defer n.mu.Unlock()

	load := Load{Lines: len(n.lines), Leases: len(n.leases)}
	for _, q := range n.queues {
		load.Queued += len(q.ops)
		if q.running {
			load.Running++
		}
	}

	for _, l := range n.lines {
		load.Waiting += len(l.waiters)
	}

	// Summoned callers that are still on their way.
	for _, g := range n.gatherings {
		load.Summoned += g.missing
	}

	return load
}
