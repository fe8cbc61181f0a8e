package throttle

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/fleetthrottle/throttle/internal/outage"
	"github.com/fleetthrottle/throttle/store"
)

// A Hold says how long a caller was held, and what held it last.
type Hold struct {
	Duration time.Duration // how long Acquire took, and Renew; 0: not worth telling
	Policy   string        // "": no policy held it
	Paused   bool          // that policy's budget was closed, by a penalty or by hand; else it was full
	Note     PauseNote     // what the operator said who closed it; zero: nothing is known
}

// An acquisitionState is what a caller holds. That decides what the caller does next:
//
//	state       the caller holds                   and does next
//	idle        nothing                            books a start
//	inLine      a place in the line for a start    waits for its turn, then books
//	inSlotLine  a place in the line for slots      waits for its turn, then books
//	booked      a start                            waits for the start, then
//	                                                 books another, if the start is too old or closed,
//	                                                 has the store confirm it, if there may be a penalty,
//	                                                 acquires its slots, if it has none yet,
//	                                                 or is granted
//	granted     a start to use now, and its slots  goes on
//
// Every answer of the store sets the state, in receive. A start becomes granted in book, if the
// store allows it at once, or in acquire; recheck makes it booked again. forget, cancelSlots and
// rematch end in idle: the caller has used, lost or given back what it had. The caller gives that
// back when its context ends, when MaxWait is over, and when the store refuses it or fails.
type acquisitionState uint8

const (
	idle acquisitionState = iota
	inLine
	inSlotLine
	booked
	granted
)

// An acquisition is one caller that acquires a start: it books a start, waits for the start,
// and uses the grant in time or gives the grant back. Transport and Limiter are built on
// acquisitions. Fields that are moments are as of now: the time since the process began.
type acquisition struct {
	*engine
	state    acquisitionState
	observed observedContext // the context of the present call of the store

	booking      store.Booking
	maxWait      time.Duration // less than 0: the caller does not wait; 0: the context alone bounds the wait
	byDefault    bool          // nobody set maxWait: the context bounds the wait, or DefaultMaxWait
	rate         askRate       // how often the store was asked lately
	arrivedAt    time.Duration // when the first start was asked for; 0: not yet
	waitDeadline time.Duration // when MaxWait is over
	remaining    time.Duration // how long the caller could still wait when it last asked; negative: forever
	remainingBy  string        // what bounds remaining, for the error

	patience time.Duration // for how long the caller waits in line until it leaves with a place; 0: it takes none. See Limiters.Reserve
	ranked   bool          // the caller came with a place

	priority       Priority      // among the waiters
	returns        bool          // the caller had a start or a place in line before
	lead           time.Duration // how much before its start the caller wants to go on
	grant          store.Grant   // the store's last answer; state says what the caller holds of it
	startAt        time.Duration // the booked start, or a little later: the grant may be used from then on
	jitter         time.Duration // the smallest Jitter among the charges that count; 0: none has any
	concurrent     bool          // some charges are Concurrency: they need slots
	variant        bool          // the caller has other variants of its work: see choose.go
	trying         bool          // a variant asks for a start now, and for nothing else
	line           *line         // the line in which the variant stands, as others are to know; nil: none
	silent         bool          // another variant tells the observer how the caller waits
	shadowed       bool          // all charges are of shadow policies: the caller is only counted, see count.go
	uncounted      bool          // granted: the store was away and holds nothing for the caller
	stopCount      func()        // ends the present call of count; nil: there is none
	slots          *slotHold     // the slots, if they were acquired after the start was booked
	validatedAt    time.Duration // when the store last said that the start may be used
	validateRTT    time.Duration // how long that answer took
	staleStreak    int           // how many answers in a row were too old when they arrived
	watch          store.Watch   // over a start that the caller waits for; nil: none
	invalidated    chan struct{} // the watch sends when the start may be useless; nil: no watch yet
	outageReported bool          // observe has been told that the store is away
	waitsForStore  bool          // a call of the store has told so, and has not returned
	hold           Hold          // what held the caller last
	heldCallers    *atomic.Int64 // how many callers the policy holds that holds this one, which is counted; nil: none holds it
	noticeAt       time.Duration // when the observer is told that the caller still waits; 0: never
}

// A slotHold is the second booking of a caller that had to wait for its start: it has the
// Concurrency charges alone, and is made when the start has come. The first booking stays
// as it is: a new booking of all charges would move the start slightly later, where other
// starts are booked already, and so behind all of them.
type slotHold struct {
	booking store.Booking
	grant   store.Grant
}

// inspectCharges sets jitter, concurrent and shadowed by the charges. The Jitter of a Concurrency charge
// does not count: a slot is held and does not age. Nor does clockJitter, with which a grant may be used however late.
func (a *acquisition) inspectCharges() {
	a.jitter, a.concurrent, a.shadowed = 0, false, len(a.booking.Charges) > 0
	for i := range a.booking.Charges {
		c := &a.booking.Charges[i]
		a.shadowed = a.shadowed && c.Shadow
		switch j := c.Jitter; {
		case c.Limit.Kind() == store.KindConcurrency:
			a.concurrent = true
		case j > clockJitter && !c.Shadow && (a.jitter == 0 || j < a.jitter):
			a.jitter = j
		}
	}
}

// receive takes over an answer of the store, and sets the state to what the caller now holds.
func (a *acquisition) receive(g store.Grant) {
	a.grant = g
	switch {
	case g.OK:
		a.state = booked
	case g.Ready == nil:
		a.state = idle
	case g.Handle == store.Handle{}:
		a.state = inLine
	default:
		a.state = inSlotLine
	}
}

// isImmediate reports whether the store granted the start without a wait, by an answer that
// took no time: one from memory.
func (a *acquisition) isImmediate() bool {
	return a.state == granted && a.grant.Wait == 0 && a.grant.Age == 0
}

// forget notes that the caller holds nothing any more: all was used, given back or lost.
func (a *acquisition) forget() { a.state, a.slots, a.uncounted = idle, nil, false }

// waited returns how long the caller has been held so far.
func (a *acquisition) waited() time.Duration {
	if a.arrivedAt == 0 {
		return 0
	}
	return now() - a.arrivedAt
}

// A caller asks its store at most mostAsks times in askPeriod. A store that keeps its
// contract hardly ever has a caller ask so often, see [Grant.Ready]. With a store that does not,
// the caller would ask without end.
const (
	mostAsks  = 8
	askPeriod = 8 * time.Millisecond
)

// An askRate counts how often a caller asked in the present askPeriod. Its zero value is of a
// caller that has not asked yet.
type askRate struct {
	since time.Duration // when the period began
	asks  int           // in the period
}

// next counts a question that the caller wants to ask at a time, and returns how long the
// caller must wait before it asks.
func (r *askRate) next(at time.Duration) (delay time.Duration) {
	if r.asks == 0 || at-r.since >= askPeriod {
		*r = askRate{since: at}
	}
	if r.asks++; r.asks <= mostAsks {
		return 0
	}
	delay = r.since + askPeriod - at
	*r = askRate{since: r.since + askPeriod, asks: 1}
	return delay
}

// An observedContext is the context of a call of the store, with the observer of outages that
// the store finds there. It is a field of the caller's acquisition, and so costs no allocation.
type observedContext struct {
	context.Context
	observer outage.Observer
}

// Value implements [context.Context].
func (c *observedContext) Value(key any) any {
	if key == (outage.Key{}) {
		return c.observer
	}
	return c.Context.Value(key)
}
