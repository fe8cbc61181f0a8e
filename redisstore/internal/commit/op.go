package commit

import (
	"slices"
	"time"

	"github.com/fleetthrottle/throttle/internal/outage"
	"github.com/fleetthrottle/throttle/redisstore/internal/conn"
	"github.com/fleetthrottle/throttle/redisstore/internal/wire"
	"github.com/fleetthrottle/throttle/store"
)

// An Op is one caller's operation, on its way through a commit queue.
type Op struct {
	wire.Op
	Turn   Turn      // the caller's arrival in lines for starts; nil: it was in none
	Joined time.Time // when the caller began to wait for the answer; zero: nobody waits

	Patience time.Duration // for how long the op's call may wait for the ops of other callers

	forSlots bool // some charges are for slots
	noMerge  bool // the op must not be merged with others
	isolated bool // the op must have a call for itself

	observer outage.Observer // is told of an outage; nil: nobody is
	failed   chan struct{}   // told when a call has failed, if there is an observer
	fails    int             // how many calls failed while the op waited
	asked    bool            // the caller waits in Do
	left     bool            // nobody waits for the answer; guarded by the queues' lock
	done     chan struct{}   // told once, when the fields below are set

	Outcome Outcome
	Ready   <-chan struct{} // of the place in line; see store.Grant
	First   time.Time       // when the op's call was sent for the first time
	Sent    time.Time       // when the copy of the call was sent that Redis answered
	Err     error           // why there is no outcome; while the op waits, why there is none yet
}

// A Turn is a caller's arrival in lines for starts.
type Turn interface {
	// Ticket returns the number of the turn's ticket, by which the turns of one class are ordered.
	Ticket() int64
	// Leave returns the op that gives up the turn's places in lines; nil if it has none.
	Leave() *Op
}

// NewOp returns an op that keeps the charges.
func NewOp(k wire.Kind, charges ...store.Charge) *Op {
	return &Op{Op: wire.Op{Kind: k, Charges: charges}, forSlots: needSlots(charges), Joined: time.Now(), done: make(chan struct{}, 1)}
}

// NewReport returns an op that asks for nothing. It is there so that a call is made, with which
// the reports of the charges' leases go along. It keeps the charges. Its call is made again after a failure
// as long as Do or Tell waits for the op, and otherwise not.
func NewReport(charges ...store.Charge) *Op {
	return &Op{Op: wire.Op{Kind: wire.Cancel, Charges: charges}, forSlots: needSlots(charges), done: make(chan struct{}, 1)}
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

// ForSlots reports whether some of the op's charges are for slots.
func (op *Op) ForSlots() bool { return op.forSlots }

// SetHandle sets what the caller holds: the start, or the place in a line for slots, that a handle
// names.
func (op *Op) SetHandle(h store.Handle) { op.Start, op.Arrival = h.Start, h.Place }

// Left reports whether nobody waits for the answer. The queues are locked.
func (op *Op) Left() bool { return op.left }

// due returns when the op's call must be made at the latest.
func (op *Op) due() time.Time { return op.Joined.Add(op.Patience) }

// subtractPatience takes the time for which the op has waited for other callers off its MaxWait.
func (op *Op) subtractPatience() {
	if op.Patience > 0 && op.MaxWait < wire.AnyWait {
		op.MaxWait = max(1, op.MaxWait-wire.Micros(time.Since(op.Joined)))
	}
	op.Patience = 0
}

func (op *Op) group() string { return op.Charges[0].Budget.Group }

// fail notes why a call failed while the op waited, and tells the caller if it has an observer.
// The queues are locked.
func (op *Op) fail(err error) {
	op.Err = err
	op.fails++
	select {
	case op.failed <- struct{}{}:
	default:
	}
}

// unavailability is why the caller has no answer yet. The queues are locked.
func (op *Op) unavailability() conn.Unavailability {
	return conn.Unavailability{Since: op.Joined, Fails: op.fails, Last: op.Err}
}

// isAwaited reports whether anybody waits for the answer: the caller, unless it has left. An op that
// gives something back, and for which no caller waits in Do, counts as awaited for conn.ReplyTime.
func (op *Op) isAwaited() bool {
	if op.Kind == wire.Cancel && !op.asked {
		return time.Since(op.Joined) < conn.ReplyTime
	}
	return !op.left
}

// cancelOp returns the op that gives back what a handle names, for the caller of op, which has
// left.
func (op *Op) cancelOp(h store.Handle) *Op {
	back := NewOp(wire.Cancel, slices.Clone(op.Charges)...)
	back.Spread = op.Spread
	back.SetHandle(h)
	return back
}

// leaveOps returns the op that gives up the places in lines of a caller that does not come again;
// none if the caller stands in no line.
func (op *Op) leaveOps() []*Op {
	if op.Kind == wire.Reserve && op.Turn != nil {
		if back := op.Turn.Leave(); back != nil {
			return []*Op{back}
		}
	}
	return nil
}

// An Outcome is what a call says of one op.
type Outcome struct {
	wire.Outcome
	Wait   int64     // until At, in microseconds
	paused int64     // for how long the budget that held the caller is still closed, in microseconds
	since  time.Time // the earliest time from which Wait may count; zero: when the answered copy was sent
}

// Repeated reports whether Redis had done the call by an earlier copy than the one that it answered.
// Then the answer says little of when the call was done.
func (o *Outcome) Repeated() bool { return !o.since.IsZero() }

// Grant returns the outcome as a grant to the op's caller, as of now, without Ready and Turn.
func (op *Op) Grant() store.Grant {
	o := &op.Outcome
	age, wait := time.Since(op.Sent), wire.Wait(o.Wait)
	if o.State == wire.Booked && op.forSlots {
		wait = max(wait, time.Microsecond) // a grant without a wait would say that it holds slots
	}
	var over []time.Duration // by charge; nil: all are 0
	for i, delay := range o.Delays {
		if over == nil && delay > 0 {
			over = make([]time.Duration, len(op.Charges))
		}
		if delay > 0 {
			over[i] = wire.Wait(delay)
		}
	}
	if o.Repeated() {
		age = max(age, time.Since(o.since))
	}
	if o.Booked() && o.Wait < 0 {
		age += time.Duration(-o.Wait) * time.Microsecond // decided when the call was made for the first time
	}
	return store.Grant{OK: o.Booked(), Wait: wait, Age: age, Handle: o.Handle(), Over: over, HeldBy: o.Charge, Paused: o.paused > 0}
}
