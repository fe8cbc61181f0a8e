package node

import (
	"slices"
	"time"

	"github.com/fleetthrottle/throttle/internal/outage"
	"github.com/fleetthrottle/throttle/redisstore/internal/conn"
	"github.com/fleetthrottle/throttle/redisstore/internal/wire"
	"github.com/fleetthrottle/throttle/store"
)

// An op is one caller's operation, on its way through a queue and a batch. The lock of the node guards it until
// done is told; then it is its caller's.
type op struct {
	wire.Op
	turn   *turn     // the caller's arrival in lines for starts, or nil if it was in no line
	joined time.Time // when the caller began to wait for the answer; the zero time if nobody waits

	patience time.Duration // for how long the op's call may wait for the ops of other callers

	forSlots bool // some charges are for slots
	noMerge  bool // the op must not be merged
	isolated bool // the op must have a call for itself

	observer outage.Observer // is told of an outage; may be nil
	failed   chan struct{}   // told when a call has failed, if there is an observer
	fails    int             // how many calls failed while the op waited
	asked    bool            // the caller waits in do
	left     bool            // nobody waits for the answer
	done     chan struct{}   // told once, when the fields below are set

	outcome outcome
	ready   <-chan struct{} // of the place in line: see store.Grant
	first   time.Time       // when the op's call was sent for the first time
	sent    time.Time       // when the copy of the call was sent that Redis answered
	err     error           // why there is no outcome; while the op waits, why there is none yet
}

// newOp returns an op for a copy of the charges, which are their owner's again when do returns, even if a call
// is still on its way. The caller may free the op when it is done.
func (n *Node) newOp(k wire.Kind, charges []store.Charge) *op {
	// All other fields begin anew. The charges' memory and the channel stay.
	o, _ := n.unused.Get().(*op)
	if o == nil {
		o = &op{done: make(chan struct{}, 1)}
	}

	*o = op{Op: wire.Op{Kind: k, Charges: append(o.Charges[:0], charges...)}, done: o.done, forSlots: needSlots(charges)}
	return o
}

// free lets newOp use an op again that is done.
func (n *Node) free(o *op) { n.unused.Put(o) }

// keepOp returns an op that keeps the charges.
func keepOp(k wire.Kind, charges ...store.Charge) *op {
	return &op{Op: wire.Op{Kind: k, Charges: charges}, forSlots: needSlots(charges), joined: time.Now(), done: make(chan struct{}, 1)}
}

// newReport returns an op that asks for nothing. It is there so that a call is made, with which the reports of the
// charges' leases go along. It keeps the charges. Its call is made again after a failure as long as do or tell
// waits for the op, and otherwise not.
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

// subtractPatience takes the time for which the op has waited for other callers off its MaxWait.
func (o *op) subtractPatience() {
	// MaxWait does not become 0, which is the MaxWait of a caller that never waits.
	if o.patience > 0 && o.MaxWait < wire.AnyWait {
		o.MaxWait = max(1, o.MaxWait-wire.Micros(time.Since(o.joined)))
	}
	o.patience = 0
}

// fail notes why a call failed while the op waited, and tells the caller if it has an observer.
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

// isAwaited reports whether anybody waits for the answer: the caller, unless it has left. An op that gives
// something back, and for which no caller waits in do, counts as awaited for conn.ReplyTime.
func (o *op) isAwaited() bool {
	if o.Kind == wire.Cancel && !o.asked {
		return time.Since(o.joined) < conn.ReplyTime
	}

	return !o.left
}

// cancelOp returns the op that gives back the start or place of a handle, for the caller of o, which has left.
func (o *op) cancelOp(h store.Handle) *op {
	back := keepOp(wire.Cancel, slices.Clone(o.Charges)...)
	back.Spread = o.Spread
	back.setHandle(h)
	return back
}

// leaveOps returns the op that gives up the places in lines of a caller that does not come again. It returns
// no op if the caller stands in no line.
func (o *op) leaveOps() []*op {
	if o.Kind == wire.Reserve && o.turn != nil {
		if back := o.turn.leave(); back != nil {
			return []*op{back}
		}
	}
	return nil
}

// An outcome is the answer of a call to one op.
type outcome struct {
	wire.Outcome
	Wait   int64     // until At, in microseconds
	paused int64     // for how long the budget that held the caller is still closed, in microseconds
	since  time.Time // the earliest time from which Wait may count; the zero time means: from when the answered copy was sent
}

// repeated reports whether Redis had done the call before it got the copy that it answered. Then the
// answer says little of when the call was done.
func (o *outcome) repeated() bool { return !o.since.IsZero() }

// nearServer is how long an answer may be on its way before the offset of the server's clock is looked at.
const nearServer = time.Millisecond

// grant returns what became of an op, for its caller. The start of a server that is not near is due as the
// server's clock tells: that is known better than for how long this answer was on its way.
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

	// The answer of a near server is exact enough, and an earlier copy's answer has a time of its own.
	if !g.OK || g.Age <= nearServer || out.repeated() {
		return g
	}

	wait, doubt, known := n.Offsets.Until(o.group(), out.At, time.Now())
	if late := max(0, -wait) + doubt; known && late < g.Age {
		g.Age = late
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
	if out.State == wire.Booked && o.forSlots {
		wait = max(wait, time.Microsecond) // a grant without a wait would say that it holds slots
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
	if out.Booked() && out.Wait < 0 {
		age += time.Duration(-out.Wait) * time.Microsecond // decided when the call was made for the first time
	}

	return store.Grant{OK: out.Booked(), Wait: wait, Age: age, Handle: out.Handle(), Over: over, HeldBy: out.Charge, Paused: out.paused > 0}
}

// origin is the time from which the stamps of grants count.
var origin = time.Now()

// Stamp returns the Stamp of the handle of a grant whose booking was sent at a time; [SentAt] returns that time.
func Stamp(sent time.Time) int64 { return int64(sent.Sub(origin)) }

// SentAt returns when the booking of a grant was sent, by the Stamp of the grant's handle.
func SentAt(stamp int64) time.Time { return origin.Add(time.Duration(stamp)) }
