package commit

import (
	"slices"
	"time"

	"github.com/fleetthrottle/throttle"
	"github.com/fleetthrottle/throttle/internal/outage"
	"github.com/fleetthrottle/throttle/redisstore/internal/conn"
	"github.com/fleetthrottle/throttle/redisstore/internal/wire"
)

// An Op is one caller's operation, on its way through a queue.
type Op struct {
	wire.Op
	Turn   Turn      // the caller's arrival in lines for starts; nil: it was in none
	Joined time.Time // when the caller began to wait; zero: it does not

	Patience time.Duration // for how long its call may wait for the ops of other callers

	holds    bool // some charges are for slots
	noMerge  bool // it must not be merged with others
	isolated bool // nor share a call

	observer outage.Observer // of an outage
	failed   chan struct{}   // told when a call has failed, if there is an observer
	fails    int             // how many calls failed while it waited
	left     bool            // nobody waits for the answer; guarded by the queues' lock
	done     chan struct{}   // told once, when the fields below are set

	Outcome Outcome
	Ready   <-chan struct{} // the place in line; see throttle.Grant
	First   time.Time       // when the call was sent for the first time
	Sent    time.Time       // and when it was sent that answered
	Err     error           // why there is no outcome; while it waits, why there is none yet
}

// A Turn is a caller's arrival in lines for starts.
type Turn interface {
	// Ticket orders the turns of one class in the line where they stood last.
	Ticket() int64
	// Leave returns the op that leaves all lines; nil if the turn stands in none.
	Leave() *Op
}

// NewOp returns an op that keeps the charges.
func NewOp(k wire.Kind, charges ...throttle.Charge) *Op {
	return &Op{Op: wire.Op{Kind: k, Charges: charges}, holds: hold(charges), Joined: time.Now(), done: make(chan struct{}, 1)}
}

// NewReport returns an op that asks for nothing, so that the reports of its charges go
// along. It keeps the charges. Unless Do or Tell waits for it, it is not made again if
// it fails.
func NewReport(charges ...throttle.Charge) *Op {
	return &Op{Op: wire.Op{Kind: wire.Cancel, Charges: charges}, holds: hold(charges), done: make(chan struct{}, 1)}
}

func hold(charges []throttle.Charge) bool {
	for i := range charges {
		if wire.Holds(&charges[i]) {
			return true
		}
	}
	return false
}

// Holds reports whether some of its charges are for slots.
func (op *Op) Holds() bool { return op.holds }

// Has says what the caller has: the start, or the place in line for concurrency, that
// a handle names.
func (op *Op) Has(h throttle.Handle) { op.Start, op.Arrival = h.Start, h.Place }

// Left reports whether nobody waits for the answer. The queues are locked.
func (op *Op) Left() bool { return op.left }

// due is when its call must be made.
func (op *Op) due() time.Time { return op.Joined.Add(op.Patience) }

// age takes off its MaxWait what the op waited for others.
func (op *Op) age() {
	if op.Patience > 0 && op.MaxWait < wire.AnyWait {
		op.MaxWait = max(1, op.MaxWait-wire.Micros(time.Since(op.Joined)))
	}
	op.Patience = 0
}

func (op *Op) group() string { return op.Charges[0].Budget.Group }

// fail notes why a call failed for which the caller waits. The queues are locked.
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

// waits reports whether anybody waits for the answer. For a start that is given back that
// is so for a moment only.
func (op *Op) waits() bool {
	if op.Kind == wire.Cancel {
		return time.Since(op.Joined) < conn.ReplyTime
	}
	return !op.left
}

// undoing returns the op that gives back a start, or a place in line, of a caller that has
// left.
func (op *Op) undoing(h throttle.Handle) *Op {
	back := NewOp(wire.Cancel, slices.Clone(op.Charges)...)
	back.Spread = op.Spread
	back.Has(h)
	return back
}

// leaving returns the op that leaves the lines of a caller that does not come again, if it
// stands in any.
func (op *Op) leaving() []*Op {
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
	paused int64     // for how long the charge that kept it is closed, in microseconds
	since  time.Time // Wait counts from then at the earliest; zero: since the call was sent
}

// Repeated reports whether the call was done by an earlier copy than the one that was
// answered, so that its reply says little of the server's clock.
func (o *Outcome) Repeated() bool { return !o.since.IsZero() }

// Grant is the outcome as the caller of the op knows it, now, but for Ready and Turn. Of shadow
// charges it says how much later they would have started.
func (op *Op) Grant() throttle.Grant {
	o := &op.Outcome
	age, wait := time.Since(op.Sent), wire.Wait(o.Wait)
	if o.State == wire.Booked && op.holds {
		wait = max(wait, time.Microsecond) // only callers that need not wait hold
	}
	var over []time.Duration
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
	return throttle.Grant{OK: o.Booked(), Wait: wait, Age: age, Handle: o.Handle(), Over: over, Held: o.Charge, Paused: o.paused > 0}
}
