package throttle

import (
	"context"
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
	b := &a.booking
	b.MaxWait = a.remainingWait(ctx, asked)
	storeCtx, stop := a.storeContext(ctx, b.MaxWait)
	defer stop()
	if storeCtx.Err() != nil {
		a.cancel()
		return a.storeFailure(ctx, context.Cause(storeCtx))
	}
	a.stopWatch()
	a.cancelSlots()
	if s := a.spread(); s != b.Spread {
		if a.grant.OK {
			a.cancel() // Instead is for bookings of the same spread
		}
		b.Spread = s
		a.adjustPace()
	}
	b.Instead = Handle{}
	if a.holdsPlace() {
		b.Instead = a.grant.Handle
	}
	b.Horizon, b.Priority, b.Turn, b.Returns = a.horizon(), a.priority, a.grant.Turn, a.returns
	turn := a.inLine()
	g, err := a.store.Book(storeCtx, b)
	if err != nil {
		a.forget() // given back or lost: it must not be given back twice
		return a.storeFailure(ctx, err)
	}
	a.outageReported = false
	a.rtt.add(g.Age)
	a.returns = true
	a.grant, a.startAt, a.validatedAt, a.validateRTT = g, asked, asked, g.Age
	a.noticeClosed(ctx, &g)
	if !a.holdsPlace() {
		return a.refusal(g)
	}
	if g.Wait > 0 || g.Age > 0 {
		answered := now()
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
	if !g.OK {
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
