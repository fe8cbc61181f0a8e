package throttle

import (
	"context"
	"errors"
	"time"

	"github.com/fleetthrottle/throttle/store"
)

// cancel gives back the start, the place in line and the slots, if any are held.
func (a *acquisition) cancel() {
	a.stopWatch()
	a.cancelSlots()
	if a.state != idle && !a.uncounted {
		a.store.Cancel(&a.booking, a.grant)
	}
	a.forget()
}

// replacePlace sets the booking's Instead, Turn and Returns, so that the store gives back what the
// caller holds when it books the new start, which has the given spread. What the store cannot
// replace is given back here.
func (a *acquisition) replacePlace(spread time.Duration) {
	b := &a.booking
	a.stopWatch()
	a.cancelSlots()
	if a.state == booked && spread != b.Spread {
		a.cancel() // Instead is for bookings of the same spread
	}
	b.Instead, b.Turn, b.Returns = store.Handle{}, a.grant.Turn, true
	if a.state != idle {
		b.Instead = a.grant.Handle
	}
}

// heldSlots returns the booking and the grant of the slots, if they are held.
func (a *acquisition) heldSlots() (b *store.Booking, g store.Grant, ok bool) {
	switch {
	case a.slots != nil:
		return &a.slots.booking, a.slots.grant, true
	case a.concurrent && a.state >= booked && a.grant.Wait == 0 && !a.uncounted:
		return &a.booking, a.grant, true
	}
	return nil, store.Grant{}, false
}

// cancelSlots gives the slots back unused, and with them a start that was granted
// together with them.
func (a *acquisition) cancelSlots() {
	b, g, ok := a.heldSlots()
	if !ok {
		return
	}
	a.store.Cancel(b, g)
	if a.slots = nil; b == &a.booking {
		a.state = idle
	}
}

// releaseSlots gives the slots back after use. The start stays booked: it was used.
func (a *acquisition) releaseSlots() {
	if b, g, ok := a.heldSlots(); ok {
		a.store.Release(b, g)
	}
}

// stopWatch ends the watch, and counts the caller as held no more, because the start is used or
// given back.
func (a *acquisition) stopWatch() {
	if a.heldCallers != nil || a.watch != nil { // so little that stopWatch is inlined
		a.endWait()
	}
}

// endWait is stopWatch without the condition.
func (a *acquisition) endWait() {
	a.uncountHeld()
	if a.watch != nil {
		a.watch.Stop()
		a.watch = nil
	}
}

// gaveUp gives back what is held and returns the error of a caller whose context ended.
func (a *acquisition) gaveUp(ctx context.Context) *gaveUpError {
	a.cancel()
	e := &gaveUpError{waited: a.waited(), cause: context.Cause(ctx), err: ctx.Err()}
	if g := a.grant; g.Held >= 0 {
		c := &a.booking.Charges[g.Held]
		e.policy, e.note = c.Budget.Policy, a.store.PauseNote(c.Budget)
	}
	return e
}

// refusal returns the error of a caller whose booking was refused.
func (a *acquisition) refusal(g store.Grant) error {
	e := &LimitError{RetryAfter: g.Wait, Paused: g.Paused, Shares: g.Shares, couldWait: a.remaining, boundedBy: a.remainingBy, byDefault: a.byDefault}
	if g.Held >= 0 {
		c := &a.booking.Charges[g.Held]
		e.Policy, e.Limit = c.Budget.Policy, c.Limit
		if e.Paused {
			e.Note = a.store.PauseNote(c.Budget)
		}
	}
	return e
}

// storeFailure returns the error of a caller whose call of the store returned err. If the caller's
// own context has ended, the caller gave up, and err is part of its error only if err says more
// than that the context has ended.
func (a *acquisition) storeFailure(ctx context.Context, err error) error {
	if ctx.Err() == nil {
		return &StoreError{err}
	}
	e := a.gaveUp(ctx)
	if !errors.Is(e.cause, err) && !errors.Is(e.err, err) {
		e.store = &StoreError{err}
	}
	return e
}
