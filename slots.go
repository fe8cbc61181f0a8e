package throttle

import (
	"context"
	"slices"
)

// holdsSlots reports whether all Concurrency charges have their slots. A grant without
// a wait holds its own.
func (a *acquisition) holdsSlots() bool { return !a.concurrent || a.grant.Wait == 0 || a.slots != nil }

// acquireSlots acquires the slots when the start has come. If there is no room for
// them the start is given up for a place in line.
func (a *acquisition) acquireSlots(ctx context.Context) error {
	b := &slotHold{booking: Booking{
		Charges: slices.DeleteFunc(slices.Clone(a.booking.Charges), countsStart),
		MaxWait: a.remainingWait(ctx, now()),
	}}
	if a.spansScopes() {
		b.booking.MaxWait = 0
	}
	storeCtx, stop := a.storeContext(ctx, b.booking.MaxWait)
	defer stop()
	g, err := a.store.Book(storeCtx, &b.booking)
	a.returned()
	if err != nil {
		a.cancel()
		return a.storeFailure(ctx, err)
	}
	a.outageReported = false
	if g.OK && g.Wait == 0 {
		b.grant, a.slots = g, b
		return nil
	}
	if g.OK { // a penalty has closed a budget meanwhile
		a.store.Cancel(&b.booking, g)
		return a.book(ctx)
	}
	if a.spansScopes() {
		return a.book(ctx)
	}
	a.cancel()
	g.Held, g.Turn = a.chargeIndex(&b.booking, g.Held), a.grant.Turn
	a.receive(g)
	a.noticeClosed(ctx, &g)
	if a.state == idle {
		return a.refusal(g)
	}
	a.reportHeld(ctx, g, false)
	return nil
}

// spansScopes reports whether a store may keep some charges for the fleet and others
// for the node. Then a place in line for some of them is no place for all: a caller
// that finds no room books all of them again.
func (a *acquisition) spansScopes() bool {
	c := a.booking.Charges
	return slices.ContainsFunc(c, func(other Charge) bool { return other.Node != c[0].Node })
}

// countsStart reports whether a charge is for the start alone.
func countsStart(c Charge) bool { return c.Limit.kind != KindConcurrency }

// countsSlot reports whether a charge is for a slot.
func countsSlot(c Charge) bool { return c.Limit.kind == KindConcurrency }

// chargeIndex finds a charge of a slotHold among all charges of the caller.
func (a *acquisition) chargeIndex(b *Booking, i int) int {
	return slices.IndexFunc(a.booking.Charges, func(c Charge) bool {
		return i >= 0 && c.Budget == b.Charges[i].Budget
	})
}
