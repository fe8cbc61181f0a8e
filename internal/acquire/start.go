package acquire

import (
	"slices"
	"time"

	"github.com/fleetthrottle/throttle/store"
)

// Callers are used again after their way is over. A permit keeps a Start in place of its caller.

// A Start is the part of a caller that a permit keeps, beside the charges. It has no pointer to the
// caller, so that a permit that does not leave its user's function costs no allocation.
type Start struct {
	spread      time.Duration
	wait, age   time.Duration // of the grant
	handle      store.Handle
	turn        store.Turn
	slots       *slotHold // the slots, if they were acquired after the start was booked
	startAt     time.Duration
	validatedAt time.Duration
	validateRTT time.Duration
	maxWait     time.Duration
	byDefault   bool
	priority    store.Priority
}

// Set copies the start of a caller. It sets each field by itself, because a literal would
// be copied.
func (s *Start) Set(c *Caller) {
	g := &c.Grant
	s.spread, s.slots = c.Booking.Spread, c.slots
	s.wait, s.age, s.handle, s.turn = g.Wait, g.Age, g.Handle, g.Turn
	s.startAt, s.validatedAt, s.validateRTT = c.startAt, c.validatedAt, c.validateRTT
	s.maxWait, s.byDefault, s.priority = c.MaxWait, c.ByDefault, c.Priority
}

// SetMaxWait sets for how long the caller may be held when it acquires its next start, as
// [Caller] has it.
func (s *Start) SetMaxWait(d time.Duration, byDefault bool) { s.maxWait, s.byDefault = d, byDefault }

// Caller returns a caller that holds the start. The charges are the charges of the start,
// and the caller's from now on.
func (s *Start) Caller(e *Engine, charges []store.Charge) Caller {
	c := Caller{
		engine: e, Booking: store.Booking{Spread: s.spread}, returns: true,
		MaxWait: s.maxWait, ByDefault: s.byDefault, Priority: s.priority,
		Grant:   store.Grant{OK: true, Wait: s.wait, Age: s.age, Handle: s.handle, Turn: s.turn, HeldBy: store.NotHeld},
		slots:   s.slots,
		startAt: s.startAt, validatedAt: s.validatedAt, validateRTT: s.validateRTT,
	}
	c.SetCharges(charges)
	c.holdStart()
	return c
}

// Again returns a copy of a caller that has its start. The copy holds that start and has charges of its own.
func (c *Caller) Again() Caller {
	again := *c
	again.Hold = Hold{}
	again.Booking.Charges = slices.Clone(c.Booking.Charges)
	again.holdStart()
	return again
}

// holdStart sets the state of a caller that holds a start from which time has passed.
func (c *Caller) holdStart() {
	c.state = booked
	if c.shadowed {
		c.state = granted
	}
}

// Reuse makes a caller whose way is over ready for the next way with the same engine and
// memory for charges. It returns false, and does nothing, if the store may still use the
// caller, or had a watch, which looks at the charges.
func (c *Caller) Reuse() bool {
	switch {
	case c.invalidated != nil:
		return false

	case c.Immediate() && !c.Booking.Returns:
		// The caller booked once: the first booking of the next way sets all remaining fields anew.
		c.state, c.arrivedAt, c.returns, c.uncounted, c.Grant.HeldBy = idle, 0, false, false, store.NotHeld
		return true

	case c.Immediate() || c.engine.Observe == nil && !c.shadowed:
		*c = Caller{
			engine: c.engine, Booking: store.Booking{Charges: c.Booking.Charges, Spread: c.Booking.Spread},
			jitter: c.jitter, concurrent: c.concurrent, shadowed: c.shadowed,
			horizon: c.horizon, shared: c.shared, repaced: c.repaced,
			Grant: store.Grant{HeldBy: store.NotHeld},
		}

		return true
	}

	return false // the store may still use the observed context, which is a field of the caller
}

// Return notes that the caller comes back with its turn in line, which may be nil.
func (c *Caller) Return(turn store.Turn) { c.returns, c.Grant.Turn = turn != nil, turn }

// LoseSlots notes that the slots are given back elsewhere, or were: the caller goes on
// without its Concurrency charges.
func (c *Caller) LoseSlots() {
	isSlot := func(charge store.Charge) bool { return !countsStart(charge) }
	c.Booking.Charges = slices.DeleteFunc(c.Booking.Charges, isSlot)
	c.slots, c.concurrent = nil, false

	if len(c.Booking.Charges) == 0 {
		c.forget()
	}
}
