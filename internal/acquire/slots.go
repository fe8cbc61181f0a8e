package acquire

import (
	"context"
	"slices"

	"github.com/fleetthrottle/throttle/store"
)

// A slotHold is the second booking of a caller that had to wait for its start: it has the
// Concurrency charges alone, and is made when the start has come. The first booking stays
// as it is: a new booking of all charges would need a slightly later start. Other starts are
// booked there already, so the caller would get behind all of them.
type slotHold struct {
	booking store.Booking
	grant   store.Grant
}

// holdsSlots reports whether all Concurrency charges have their slots. A grant without
// a wait includes the slots.
func (c *Caller) holdsSlots() bool { return !c.concurrent || c.Grant.Wait == 0 || c.slots != nil }

// acquireSlots acquires the slots when the start has come. If a budget was closed meanwhile, it
// books anew. If there is no room for the slots the caller gives back the start, and gets in line or
// is refused. A caller that spansScopes books anew.
func (c *Caller) acquireSlots(ctx context.Context) error {
	// The second booking has the Concurrency charges alone: see slotHold.
	b := &slotHold{booking: store.Booking{
		Charges: slices.DeleteFunc(slices.Clone(c.Booking.Charges), countsStart),
		MaxWait: c.remainingWait(ctx, Now()),
	}}

	// A place in the line of one scope is of no use for the slots of the second scope.
	if c.spansScopes() {
		b.booking.MaxWait = 0
	}

	storeCtx, stop := c.storeContext(ctx, b.booking.MaxWait)
	defer stop()
	g, err := c.engine.Store.Book(storeCtx, &b.booking)
	c.endStoreCall()

	if err != nil {
		c.Cancel()
		return c.storeFailure(ctx, err)
	}

	c.outageReported = false

	switch {
	case g.OK && g.Wait == 0:
		b.grant, c.slots = g, b
		return nil

	// The slots come after a wait, because a penalty has closed a budget meanwhile.
	case g.OK:
		c.engine.Store.Cancel(&b.booking, g)
		return c.Book(ctx)
	case c.spansScopes():
		return c.Book(ctx)
	}

	// No slot is free. Give the start back, so that another caller can use it while this one stands in line.
	c.Cancel()

	// The answer speaks of the Concurrency charges alone: translate its index to all charges.
	g.HeldBy = c.chargeIndex(&b.booking, g.HeldBy)
	g.Turn = c.Grant.Turn
	c.receive(g)

	c.noticeClosed(ctx, &g)
	if c.state == idle {
		return c.refusal(g)
	}

	c.reportHeld(ctx, g, false)
	return nil
}

// heldSlots returns the booking and the grant of the slots, if they are held.
func (c *Caller) heldSlots() (b *store.Booking, g store.Grant, ok bool) {
	switch {
	case c.slots != nil:
		return &c.slots.booking, c.slots.grant, true
	case c.concurrent && c.state >= booked && c.Grant.Wait == 0 && !c.uncounted:
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

// ReleaseSlots gives the slots back after use. The start stays booked: it was used.
func (c *Caller) ReleaseSlots() {
	if b, g, ok := c.heldSlots(); ok {
		c.engine.Store.Release(b, g)
	}
}
