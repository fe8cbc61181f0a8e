package throttle

import (
	"context"
	"slices"
	"time"
)

// A boarding is the second booking of a caller that had to wait for its start:
// of its InFlight charges alone, made when the start has come. The first one
// stays as it is. Booked anew it would lie a moment later, reach into the room of
// the starts booked behind it, and so go to the end of the queue.
type slotHold struct {
	booking Booking
	grant   Grant
}

// aboard reports whether all InFlight charges are held. A grant without a wait
// holds its own.
func (a *acquisition) holdsSlots() bool { return !a.concurrent || a.grant.Wait == 0 || a.slots != nil }

// board takes the InFlight charges at a start that has come. If they have no
// room the start is given up for a place in line.
func (a *acquisition) acquireSlots(ctx context.Context) error {
	b := &slotHold{booking: Booking{
		Charges: slices.DeleteFunc(slices.Clone(a.booking.Charges), countsStart),
		MaxWait: a.remainingWait(ctx, now()), Away: a.outageObserver(ctx),
	}}
	if a.spansScopes() {
		b.booking.MaxWait = 0
	}
	storeCtx, stop := a.storeContext(ctx, &b.booking)
	defer stop()
	g, err := a.store.Book(storeCtx, &b.booking)
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
	if a.grant = g; !a.holdsPlace() {
		return a.refusal(g)
	}
	a.reportHeld(ctx, g, false)
	return nil
}

// apart reports whether a store may keep the charges apart, some for the fleet
// and some for the node. Then a place in line for a part of them is none for all:
// who has no room books all anew.
func (a *acquisition) spansScopes() bool {
	c := a.booking.Charges
	return slices.ContainsFunc(c, func(other Charge) bool { return other.Node != c[0].Node })
}

// startsOnly reports whether a charge is for the start alone.
func countsStart(c Charge) bool { return c.Limit.kind != InFlight }

// inFlightOnly reports whether a charge is for what runs.
func countsSlot(c Charge) bool { return c.Limit.kind == InFlight }

// index finds a charge of a boarding among all.
func (a *acquisition) chargeIndex(b *Booking, i int) int {
	return slices.IndexFunc(a.booking.Charges, func(c Charge) bool {
		return i >= 0 && c.Budget == b.Charges[i].Budget
	})
}

// lineUp waits for the caller's turn in line, whose end nobody can know. For one that
// stands in line for a start there is a guess.
func (a *acquisition) waitInLine(ctx context.Context, w waitOptions) error {
	var waitOver, connectionOver <-chan time.Time
	if w.withConnection && a.inLine() && a.startAt > w.connectionUntil {
		return errDetach
	}
	if a.maxWait > 0 {
		timer := time.NewTimer(a.waitDeadline - now())
		defer timer.Stop()
		waitOver = timer.C
	}
	if w.withConnection {
		timer := time.NewTimer(w.connectionUntil - now())
		defer timer.Stop()
		connectionOver = timer.C
	}
	select {
	case <-a.grant.Ready:
		return nil
	case <-waitOver:
		if a.inLine() {
			return nil // the store says how long it would be
		}
		a.cancel()
		a.remaining, a.remainingBy = a.maxWait, "MaxWait is"
		return a.refusal(a.grant)
	case <-w.replaced:
		return errReplaced
	case <-connectionOver:
		return errDetach
	case <-ctx.Done():
		return a.gaveUp(ctx)
	}
}

// flight returns the booking and the grant that hold the InFlight charges, if
// they are held.
func (a *acquisition) heldSlots() (b *Booking, g Grant, ok bool) {
	switch {
	case a.slots != nil:
		return &a.slots.booking, a.slots.grant, true
	case a.concurrent && a.grant.OK && a.grant.Wait == 0:
		return &a.booking, a.grant, true
	}
	return nil, Grant{}, false
}

// disembark gives back what is held of the InFlight charges, and with it a start
// that was granted together with them.
func (a *acquisition) cancelSlots() {
	b, g, ok := a.heldSlots()
	if !ok {
		return
	}
	a.store.Cancel(b, g)
	if a.slots = nil; b == &a.booking {
		a.grant.OK = false
	}
}

// land ends what is in flight. The start stays booked: it was used.
func (a *acquisition) releaseSlots() {
	if b, g, ok := a.heldSlots(); ok {
		a.store.Release(b, g)
	}
}
