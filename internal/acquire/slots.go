package acquire

import (
	"context"
	"slices"

	"github.com/fleetthrottle/throttle/store"
)

// A slotHold is the second booking of a caller that had to wait for its start: it has the
// Concurrency charges alone, and is made when the start has come. The first booking stays
// as it is: a new booking of all charges would need a slightly later start. At that time other
// starts are booked already, so the caller would get behind all of them.
type slotHold struct {
	booking store.Booking
	grant   store.Grant
}

// holdsSlots reports whether all Concurrency charges of a caller with a start, if it has any, have
// their slots. A grant without a wait includes the slots.
func (c *Caller) holdsSlots() bool { return !c.concurrent || c.Grant.Wait == 0 || c.slots != nil }

// acquireSlots acquires the slots when the start has come. If a budget was closed meanwhile, the
// caller books all charges anew. If no slot is free, a caller that spansScopes books all charges anew,
// and any other gives back its start, and gets in the line for slots or is refused. If the store does
// not answer, acquireSlots gives back the caller's holdings and returns the caller's error.
func (c *Caller) acquireSlots(ctx context.Context) error {
	// The second booking has the Concurrency charges alone: see slotHold.
	hold := &slotHold{booking: store.Booking{
		Charges: slices.DeleteFunc(slices.Clone(c.Booking.Charges), countsStart),
		MaxWait: c.remainingWait(ctx, Now()),
	}}

	// With a MaxWait of 0 the store gives no place in line, which such a caller cannot use.
	if c.spansScopes() {
		hold.booking.MaxWait = 0
	}

	storeCtx, stop := c.storeContext(ctx, hold.booking.MaxWait)
	defer stop()
	g, err := c.engine.Store.Book(storeCtx, &hold.booking)
	c.endStoreCall()

	if err != nil {
		c.Cancel()
		return c.storeFailure(ctx, err)
	}

	c.outageReported = false

	switch {
	case g.OK && g.Wait == 0:
		hold.grant, c.slots = g, hold
		return nil

	// The slots come after a wait, because a penalty has closed a budget meanwhile.
	case g.OK:
		c.engine.Store.Cancel(&hold.booking, g)
		return c.Book(ctx)

	// No slot is free, and the caller cannot stand in the line for slots.
	case c.spansScopes():
		return c.Book(ctx)
	}

	// No slot is free. Give the start back, so that another caller can use it while this one stands in line.
	c.Cancel()

	// The answer is to a booking of the Concurrency charges alone: translate its index to all charges, and keep the
	// Turn of the booking of all charges, which has the caller's arrival.
	g.HeldBy = c.chargeIndex(&hold.booking, g.HeldBy)
	g.Turn = c.Grant.Turn
	c.receive(g)

	c.noticeClosed(ctx, &g)
	if c.state == idle {
		return c.refusal(g)
	}

	c.reportHeld(ctx, g, false)
	return nil
}

// heldSlots returns the booking and the grant that have the slots, or false if the caller holds no
// slots.
func (c *Caller) heldSlots() (b *store.Booking, g store.Grant, ok bool) {
	hasStart := c.state >= booked && !c.uncounted
	switch {
	case c.slots != nil:
		return &c.slots.booking, c.slots.grant, true
	case hasStart && c.concurrent && c.Grant.Wait == 0: // see holdsSlots
		return &c.Booking, c.Grant, true
	}
	return nil, store.Grant{}, false
}

// cancelSlots gives the slots back unused. If they are part of the first booking, its start
// goes back, too.
func (c *Caller) cancelSlots() {
	b, g, ok := c.heldSlots()
	if !ok {
		return
	}

	c.engine.Store.Cancel(b, g)
	c.slots = nil
	if b == &c.Booking {
		c.state = idle
	}
}

// ReleaseSlots gives the slots back after use, if the caller holds any. The start stays booked: it was used.
func (c *Caller) ReleaseSlots() {
	if b, g, ok := c.heldSlots(); ok {
		c.engine.Store.Release(b, g)
	}
}
