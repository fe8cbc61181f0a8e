package acquire

import (
	"context"
	"slices"
	"time"

	"github.com/fleetthrottle/throttle/store"
)

// ClockJitter is the smallest Jitter of a charge that counts: the store's clock leaves out
// fractions of a microsecond, by which a start can follow its predecessor too early. No
// grant grows too old within ClockJitter.
const ClockJitter = time.Microsecond

// SetCharges sets the caller's charges, and takes over the slice. Each charge has the Pace
// of its limit. A caller that holds a start or a place must use Reprice.
func (c *Caller) SetCharges(charges []store.Charge) {
	c.Booking.Charges = charges
	c.jitter, c.concurrent, c.shadowed = 0, false, len(charges) > 0
	c.horizon, c.shared, c.repaced = store.MinHorizon, false, false

	for i := range charges {
		charge := &charges[i]
		c.shadowed = c.shadowed && charge.Shadow
		c.horizon, c.shared = max(c.horizon, charge.Limit.Horizon()), c.shared || charge.Share.ID != 0

		// The Jitter of a Concurrency charge does not count: a slot is held and does not age.
		switch j := charge.Jitter; {
		case charge.Limit.Kind() == store.KindConcurrency:
			c.concurrent = true
		case j > ClockJitter && !charge.Shadow && (c.jitter == 0 || j < c.jitter):
			c.jitter = j
		}
	}
}

// Reprice has price set the caller's charges anew, because the policies were replaced. A
// caller whose charges are equivalent keeps its start or place. If the charges differ the
// caller books in place of its holdings, if the store can replace them in one step, and
// otherwise gives them back. Reprice returns the error of price, or of the booking.
func (c *Caller) Reprice(ctx context.Context, price func() error) error {
	c.StopWatch()
	if c.uncounted {
		c.forget()
	}

	// A copy of the charges, because price may write into the same slice.
	old := c.Booking
	old.Charges = slices.Clone(old.Charges)

	err := price()
	if err == nil && slices.EqualFunc(old.Charges, c.Booking.Charges, equivalent) {
		return nil
	}

	// One step replaces the place in line, so that no later caller passes.
	moves := c.state == inLine || slices.EqualFunc(old.Charges, c.Booking.Charges, interchangeable)
	if c.state != idle && moves && err == nil && len(c.Booking.Charges) > 0 {
		return c.Book(ctx)
	}

	// The store cancels by the charges that it booked, and not by the new charges.
	if c.state != idle {
		c.engine.Store.Cancel(&old, c.Grant)
		c.state = idle
	}

	c.Grant = store.Grant{HeldBy: store.NotHeld, Turn: c.Grant.Turn}
	return err
}

// interchangeable reports whether a booking of b can give back a start that was booked for a.
func interchangeable(a, b store.Charge) bool {
	return a.Budget == b.Budget && a.Cost == b.Cost && a.Shadow == b.Shadow && a.Node == b.Node &&
		a.Limit.Kind() == b.Limit.Kind() && a.Limit.Kind() != store.KindLeakyBucket
}

// equivalent reports whether a start that was booked for a is as good as a start for b.
func equivalent(a, b store.Charge) bool {
	return a.Budget == b.Budget && a.Cost == b.Cost && a.Jitter == b.Jitter && a.Shadow == b.Shadow &&
		a.Node == b.Node && a.Adaptive == b.Adaptive && a.KeepFree == b.KeepFree && a.Limit.String() == b.Limit.String()
}

// spansScopes reports whether some charges are of the Fleet scope and some of the Node
// scope. Then a place in the line for slots of one scope is no place for slots of the
// second scope: a caller that finds no room books all charges again.
func (c *Caller) spansScopes() bool {
	charges := c.Booking.Charges
	return slices.ContainsFunc(charges, func(other store.Charge) bool { return other.Node != charges[0].Node })
}

// countsStart reports whether a charge counts starts, and takes no slot.
func countsStart(c store.Charge) bool { return c.Limit.Kind() != store.KindConcurrency }

// chargeIndex returns the index among the caller's charges of the i-th charge of the booking of a
// slotHold. The result is below 0 if i is.
func (c *Caller) chargeIndex(b *store.Booking, i int) int {
	return slices.IndexFunc(c.Booking.Charges, func(charge store.Charge) bool {
		return i >= 0 && charge.Budget == b.Charges[i].Budget
	})
}

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
	case c.invalidated != nil || c.uncounted && c.endsWhenOff():
		return false // the last call of the store may have ended early, and the store may look at it still

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
