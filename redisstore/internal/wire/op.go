package wire

import (
	"time"

	"github.com/fleetthrottle/throttle/store"
)

// A Kind is what an operation of a booking call does.
type Kind uint8

const (
	Reserve Kind = iota // books a start, or gets into line
	Cancel              // gives back a start, or leaves lines; or does nothing, so that reports go along
	Settle              // changes what a start cost
	Renew               // says that a waiter is still there
)

// An Op is one operation, for one caller or for several that want the same.
type Op struct {
	Kind    Kind
	Callers int
	Charges []store.Charge
	Costs   []int // Settle: the true costs

	// What the callers have: a start, which Reserve replaces, or the arrival in a line
	// for concurrency, which it continues. 0: nothing.
	Start, Arrival int64

	MaxWait   int64 // the longest wait that is of use, in microseconds; see AnyWait
	NotBefore time.Duration
	Spread    time.Duration
	Horizon   time.Duration // 0: the callers stand in no line
	Class     int64
	Tickets   []Ticket      // in lines for starts
	Returns   bool          // they go first in lines where they have no ticket
	Informed  bool          // they have given the others time to tell what was lost
	Again     time.Duration // Renew: in how long the waiter will say so again
}

// AnyWait is the MaxWait of callers that wait as long as they have to: no wait is longer.
const AnyWait = 1 << 53

// MaxWait is the MaxWait of a booking as one of an Op.
func MaxWait(d time.Duration) int64 {
	if d < 0 {
		return AnyWait
	}
	return int64(d / time.Microsecond)
}

// maxWait is the longest wait that is of use or, to renew, until when that counts.
func (o *Op) maxWait() int64 {
	if o.Kind == Renew {
		return Micros(o.Again)
	}
	return o.MaxWait
}

// lastField is the last thing that the script is told of a charge.
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

// Unlimited reports whether the charge is for an unlimited budget. Those are gates:
// keys that Redis looks at and leaves alone, as long as they are open. One that is shut
// is a row like any other. See docs/internals/unlimited.md and the part answer of lua/book.lua.
func Unlimited(c *store.Charge) bool { return c.Limit.Kind() == store.KindUnlimited }

// Cost is what a charge costs its budget. What an unlimited one costs means nothing.
func Cost(c *store.Charge) int64 {
	if Unlimited(c) {
		return 1
	}
	return int64(c.Cost)
}

// Share is the share of a charge's caller and its weight.
func Share(c *store.Charge) (id uint64, weight int64) {
	return c.Share.ID, int64(min(max(1, c.Share.Weight), maxWeight))
}

// maxWeight is the largest weight of a share.
const maxWeight = 1000

// A Ticket is a place in the line of one budget: see lua/queue.lua.
type Ticket struct {
	Budget [16]byte
	Line   int64
	Number int64
	State  TicketState
	Round  int64
	Share  uint64 // of the lane; 0: that of callers without a share
}

// Front is the number of tickets whose owners go before all others of their class; those have
// numbers from 1 on.
const Front = 0

// A TicketState says what became of a ticket. Only the scripts know all states.
type TicketState int64

// HadStart is the state of a ticket whose owner had its start.
const HadStart TicketState = 3

// A State says what became of an operation.
type State int64

const (
	Refused   State = iota // nothing was booked; also of operations that book nothing
	Booked                 // a start was booked
	Held                   // the same, and it holds what is in flight
	Unsettled              // nothing can be booked before At, when it is known what was lost
	InLine                 // the callers stand in lines for starts: At is when they may have their turn
	Waiting                // the callers stand in line for concurrency, since Arrival
)

// AllNow stands in the place of how many callers an answer is for: all of them have a start at
// the time that follows.
const AllNow = 0
