package throttle

import (
	"context"
	"slices"
	"time"
)

// book asks the store for a start within the horizon, in place of the one that is
// held, if any. After an error nothing is held.
func (a *acquisition) book(ctx context.Context) error {
	if ctx.Err() != nil {
		return a.gaveUp(ctx)
	}
	asked := now()
	if a.arrivedAt == 0 {
		a.beginWait(asked)
	}
	a.booking.MaxWait = a.remainingWait(ctx, asked)
	if !a.needsStoreContext(a.booking.MaxWait) {
		return a.bookBy(ctx, ctx, asked)
	}
	storeCtx, stop := a.storeContext(ctx, a.booking.MaxWait)
	defer stop()
	if storeCtx.Err() != nil {
		a.cancel()
		return a.storeFailure(ctx, context.Cause(storeCtx))
	}
	return a.bookBy(ctx, storeCtx, asked)
}

// bookBy books what is set by now, and asks the store for it with storeCtx.
func (a *acquisition) bookBy(ctx, storeCtx context.Context, asked time.Duration) error {
	b := &a.booking
	turn, s := a.state == inLine, a.spread()
	if a.returns { // else there is nothing to replace
		a.replacePlace(s)
	}
	b.Spread = s
	a.adjustPace()
	b.Horizon, b.Priority = a.horizon(), a.priority
	g, err := a.store.Book(storeCtx, b)
	a.returned()
	if err != nil {
		a.forget() // given back or lost: it must not be given back twice
		return a.storeFailure(ctx, err)
	}
	a.receive(g)
	a.startAt, a.validatedAt, a.validateRTT = asked, asked, g.Age
	a.returns, a.outageReported = true, false
	if r := a.recent.Load(); r != nil && !r.note(b.Charges, &a.grant, asked) {
		a.recent.CompareAndSwap(r, nil)
	}
	if g.OK && g.Wait == 0 && g.Age == 0 {
		if a.state = granted; a.observe == nil {
			return nil
		}
	}
	if err := a.answered(ctx, turn); err != nil {
		return err
	}
	// An observer may have taken its time.
	if g.OK && g.Wait == 0 && a.observe == nil && g.Age <= validFor && !a.unusable() {
		a.state = granted
	}
	return nil
}

// replacePlace makes the booking one in place of what is held. Spread is that of the
// new one.
func (a *acquisition) replacePlace(spread time.Duration) {
	b := &a.booking
	a.stopWatch()
	a.cancelSlots()
	if a.state == booked && spread != b.Spread {
		a.cancel() // Instead is for bookings of the same spread
	}
	b.Instead, b.Turn, b.Returns = Handle{}, a.grant.Turn, true
	if a.state != idle {
		b.Instead = a.grant.Handle
	}
}

// answered deals with an answer that holds the caller, or refuses it, or that an
// observer is told of. Turn says that the caller stood in the line for a start.
func (a *acquisition) answered(ctx context.Context, turn bool) error {
	g := a.grant
	answered := now()
	a.rtt.add(g.Age, answered)
	a.noticeClosed(ctx, &g)
	if a.state == inLine && a.remaining == 0 {
		a.cancel() // the place is of no use to a caller that can wait no longer
	}
	if a.state == idle {
		return a.refusal(g)
	}
	if g.Wait > 0 || g.Age > 0 {
		a.startAt, a.validatedAt = answered+g.Wait, answered-g.Age/2 // about when it was decided
		a.countStale()
		if err := a.exceedsMaxWait(ctx, g); err != nil {
			return err
		}
	}
	a.reportHeld(ctx, g, turn && g.OK)
	return nil
}

// exceedsMaxWait gives back a start that is too late and returns the caller's error:
// the wait fitted into MaxWait, or before the deadline, when it was asked for, but
// the answer or the line took longer than it was to take.
func (a *acquisition) exceedsMaxWait(ctx context.Context, g Grant) error {
	if !g.OK || g.Held < 0 && a.maxWait <= 0 {
		return nil
	}
	deadline, ok := ctx.Deadline()
	switch left := time.Until(deadline); {
	case a.maxWait > 0 && a.startAt > a.waitDeadline+storeGrace/2:
		if a.remaining, a.remainingBy = a.waitDeadline-now(), "MaxWait is"; a.remaining <= 0 {
			a.remainingBy = maxWaitOver
		}
	case ok && g.Held >= 0 && left > 0 && g.Wait > left:
		a.remaining, a.remainingBy = left, "the deadline is in"
	default:
		return nil
	}
	a.cancel()
	if g.Held < 0 {
		return a.storeFailure(ctx, errWaitOver)
	}
	return a.refusal(g)
}

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
