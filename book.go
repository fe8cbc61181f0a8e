package throttle

import (
	"context"
	"slices"
	"time"

	"github.com/fleetthrottle/throttle/store"
)

// book asks the store for a start within the horizon, in place of what the caller
// holds. After an error the caller holds nothing.
func (a *acquisition) book(ctx context.Context) error {
	if ctx.Err() != nil {
		return a.gaveUp(ctx)
	}
	asked := now()
	if a.arrivedAt == 0 {
		a.beginWait(asked)
	}
	a.booking.MaxWait = a.usefulWait(a.remainingWait(ctx, asked))
	if a.shadowed {
		return a.count(ctx, asked)
	}
	if !a.needsStoreContext(a.booking.MaxWait) {
		return a.bookWithin(ctx, ctx, asked)
	}
	storeCtx, stop := a.storeContext(ctx, a.booking.MaxWait)
	defer stop()
	if storeCtx.Err() != nil {
		a.cancel()
		return a.storeFailure(ctx, context.Cause(storeCtx))
	}
	return a.bookWithin(ctx, storeCtx, asked)
}

// bookWithin is the part of book that calls the store, with storeCtx. asked is when it is called.
func (a *acquisition) bookWithin(ctx, storeCtx context.Context, asked time.Duration) error {
	b := &a.booking
	stoodInLine, s := a.state == inLine, a.spread()
	if a.returns { // a caller that asks for the first time holds nothing
		a.replacePlace(s)
	}
	b.Spread = s
	a.adjustPace()
	b.Horizon, b.Priority = a.horizon(), a.priority
	g, err := a.store.Book(storeCtx, b)
	a.endStoreCall()
	if err != nil {
		a.forget() // the store gives back what was held, or has lost it: it must not be given back twice
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
	if err := a.takeAnswer(ctx, stoodInLine); err != nil {
		return err
	}
	// Without an observer, whose calls take time, the start is still fresh.
	if g.OK && g.Wait == 0 && a.observe == nil && g.Age <= validFor && !a.unusable() {
		a.state = granted
	}
	return nil
}

// takeAnswer goes through the store's answer to a booking, unless that is a start at once that no
// observer is told of. It returns the error of a caller that is refused, sets startAt for one that
// must wait, and tells the observer. stoodInLine says that the caller stood in the line for a start
// before.
func (a *acquisition) takeAnswer(ctx context.Context, stoodInLine bool) error {
	g := a.grant
	answered := now()
	if g.OK {
		a.grantAge.add(g.Age, answered)
	} else {
		a.rtt.add(g.Age, answered)
	}
	a.noticeClosed(ctx, &g)
	if a.state == inLine && a.remaining == 0 {
		a.cancel() // the place is of no use to a caller that can wait no longer
	}
	if a.outOfPatience(g, answered) {
		a.cancel()
	}
	if a.state == idle {
		return a.refusal(g)
	}
	if g.Wait > 0 || g.Age > 0 {
		a.startAt, a.validatedAt = answered+g.Wait, answered-g.Age/2 // the store decided about then
		a.countStale()
		if err := a.exceedsMaxWait(ctx, g); err != nil {
			return err
		}
	}
	a.reportHeld(ctx, g, stoodInLine && g.OK) // a caller in line was reported when it got in line
	return nil
}

// exceedsMaxWait gives back a start that is too late for MaxWait or for the deadline of ctx, and
// returns the caller's error; nil if the start is in time. A start can be too late although the
// store was told what wait is of use: its answer, or the line, may have taken long.
func (a *acquisition) exceedsMaxWait(ctx context.Context, g store.Grant) error {
	if !g.OK || g.Held < 0 && a.maxWait <= 0 {
		return nil
	}
	deadline, ok := ctx.Deadline()
	switch left := time.Until(deadline); {
	case a.maxWait > 0 && a.startAt > a.waitDeadline+storeGrace/2:
		if a.remaining, a.remainingBy = a.waitDeadline-now(), maxWaitIs; a.remaining <= 0 {
			a.remainingBy = maxWaitOver
		}
	case ok && g.Held >= 0 && left > 0 && g.Wait > left:
		a.remaining, a.remainingBy = left, "the deadline is in"
	default:
		return nil
	}
	a.cancel()
	if g.Held < 0 {
		return a.storeFailure(ctx, a.waitOver())
	}
	return a.refusal(g)
}

// holdsSlots reports whether all Concurrency charges have their slots. A grant without
// a wait has them.
func (a *acquisition) holdsSlots() bool { return !a.concurrent || a.grant.Wait == 0 || a.slots != nil }

// acquireSlots acquires the slots when the start has come. If there is no room for the slots the
// caller gives back the start and gets in line.
func (a *acquisition) acquireSlots(ctx context.Context) error {
	b := &slotHold{booking: store.Booking{
		Charges: slices.DeleteFunc(slices.Clone(a.booking.Charges), countsStart),
		MaxWait: a.remainingWait(ctx, now()),
	}}
	if a.spansScopes() {
		b.booking.MaxWait = 0
	}
	storeCtx, stop := a.storeContext(ctx, b.booking.MaxWait)
	defer stop()
	g, err := a.store.Book(storeCtx, &b.booking)
	a.endStoreCall()
	if err != nil {
		a.cancel()
		return a.storeFailure(ctx, err)
	}
	a.outageReported = false
	if g.OK && g.Wait == 0 {
		b.grant, a.slots = g, b
		return nil
	}
	if g.OK { // with a wait, because a penalty has closed a budget meanwhile
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

// spansScopes reports whether some charges are of the Fleet scope and others of the Node scope.
// Then a place in the line for slots of one scope is no place for slots of the other: a caller
// that finds no room books all charges again.
func (a *acquisition) spansScopes() bool {
	c := a.booking.Charges
	return slices.ContainsFunc(c, func(other store.Charge) bool { return other.Node != c[0].Node })
}

// countsStart reports whether a charge counts starts, and takes no slot.
func countsStart(c store.Charge) bool { return c.Limit.Kind() != store.KindConcurrency }

// countsSlot reports whether a charge takes a slot.
func countsSlot(c store.Charge) bool { return c.Limit.Kind() == store.KindConcurrency }

// chargeIndex returns the index among the caller's charges of the i-th charge of the booking of a
// slotHold; below 0 if i is.
func (a *acquisition) chargeIndex(b *store.Booking, i int) int {
	return slices.IndexFunc(a.booking.Charges, func(c store.Charge) bool {
		return i >= 0 && c.Budget == b.Charges[i].Budget
	})
}
