package wire

import (
	"time"

	"github.com/fleetthrottle/throttle/store"
)

// A Kind is the kind of an operation of a booking call.
type Kind uint8

const (
	Reserve Kind = iota // books a start, or gets into line
	Cancel              // gives back a start, or leaves lines; or does nothing, so that reports go along
	Settle              // changes the cost of a start
	Renew               // says that a waiter is still there
)

// An Op is one operation, for one caller or for several callers that want the
// same.
type Op struct {
	Kind    Kind
	Callers int
	Charges []store.Charge
	Costs   []int // Settle: the true costs

	// The start that the callers have, which Reserve replaces, or their arrival in a
	// line for slots, which it continues. Zero: they have none.
	Start, Arrival int64

	MaxWait   int64 // upper bound on a wait that is of use, in microseconds; see AnyWait
	NotBefore time.Duration
	Spread    time.Duration
	Horizon   time.Duration // Zero: the callers stand in no line.
	Class     int64
	Tickets   []Ticket      // in lines for starts
	Returns   bool          // they go first in lines where they have no ticket
	Informed  bool          // they have given other programs time to tell which starts were lost
	Again     time.Duration // Renew: in how long the waiter will say so again
}

// AnyWait is the MaxWait of callers that wait without a bound: no wait is longer.
const AnyWait = 1 << 53

// MaxWait returns the MaxWait of an Op for the MaxWait of a booking, where a
// negative duration means no bound.
func MaxWait(d time.Duration) int64 {
	if d < 0 {
		return AnyWait
	}
	return int64(d / time.Microsecond)
}

// maxWait returns the longest wait that is of use or, to renew, in how long the
// waiter will say so again.
func (o *Op) maxWait() int64 {
	if o.Kind == Renew {
		return Micros(o.Again)
	}
	return o.MaxWait
}

// lastField returns the last number of a charge: its true cost, or whether it is a
// shadow.
func (o *Op) lastField(i int) int64 {
	switch {
	case o.Kind == Settle:
		return int64(o.Costs[i])
	case o.Charges[i].Shadow:
		return 1
	}
	return 0
}

// ForSlots reports whether the charge is for requests in flight.
func ForSlots(c *store.Charge) bool { return c.Limit.Kind() == store.KindConcurrency }

// Unlimited reports whether the charge is for an unlimited budget. Such budgets
// are gates: keys that Redis looks at and leaves alone as long as they are open. A
// gate that is shut is a row like any other. See docs/internals/unlimited.md and
// the part answer of lua/book.lua.
func Unlimited(c *store.Charge) bool { return c.Limit.Kind() == store.KindUnlimited }

// Cost returns the cost of a charge. The cost of an unlimited charge means
// nothing, so it is 1.
func Cost(c *store.Charge) int64 {
	if Unlimited(c) {
		return 1
	}
	return int64(c.Cost)
}

// Share returns the share of a charge's caller, 0 if it has none, and its weight,
// at least 1.
func Share(c *store.Charge) (id uint64, weight int64) {
	return c.Share.ID, int64(min(max(1, c.Share.Weight), maxWeight))
}

// maxWeight is an upper bound on the weight of a share.
const maxWeight = 1000

// A Ticket is a place in the line of one budget: see lua/queue.lua.
type Ticket struct {
	Budget [16]byte
	Line   int64
	Number int64
	State  TicketState
	Round  int64
	Share  uint64 // the share of its lane. Zero: the lane of callers without a share.
}

// Front is the number of tickets whose owners go before all waiters of their
// class. All other tickets have numbers from 1 on.
const Front = 0

// A TicketState is the state of a ticket. Only the scripts know all states.
type TicketState int64

// HadStart is the state of a ticket whose owner had its start.
const HadStart TicketState = 3

// A State is the result of an operation.
type State int64

const (
	Refused   State = iota // nothing was booked; also of operations that book nothing
	Booked                 // a start was booked
	Held                   // a start was booked, and slots are held with it
	Unsettled              // nothing can be booked before At, when it is known which starts were lost
	InLine                 // the callers stand in lines for starts: At is when they may have their turn
	Waiting                // the callers stand in line for slots, since Arrival
)

// AllNow stands in the place of the number of callers of an answer: all callers
// have a start at the time that follows.
const AllNow = 0
