package throttle

import (
	"context"
	"errors"
	"time"
)

// fresh is for how long what the store said last of a start needs no confirming:
// so little later than it can be known elsewhere, a penalty takes effect.
const validFor = 5 * time.Millisecond

// errDoubt says that a start may have become useless during the wait.
var errRevalidate = errors.New("throttle: there may be a penalty")

// unsure reports whether the start is to be confirmed before it is used.
func (a *acquisition) needsRevalidation() bool {
	return now()-a.validatedAt > validFor+min(a.revalidateLead(), a.validateRTT)
}

// ahead is how much before the start it is time to confirm it: as long as the
// store takes to answer, if that matters. What it took this caller counts, too: what is
// believed of the store may be of another time.
func (a *acquisition) revalidateLead() time.Duration {
	if lag := min(a.rtt.get(), a.grant.Age); lag > validFor {
		return lag
	}
	return 0
}

// confirm asks the store whether the start may still be used, and books another
// one if not.
func (a *acquisition) revalidate(ctx context.Context) error {
	asked := now()
	a.booking.MaxWait = a.remainingWait(ctx, asked)
	a.startWatch(ctx)
	storeCtx, stop := a.storeContext(ctx, &a.booking)
	defer stop()
	ok, err := a.watch.Confirm(storeCtx)
	a.validatedAt = now()
	a.validateRTT = a.validatedAt - asked
	switch {
	case err != nil:
		a.cancel()
		return a.storeFailure(ctx, err)
	case !ok, a.validatedAt-max(asked, a.startAt) > DefaultJitter:
		// Starts that were held up by the store would leave together. Whoever has
		// no Jitter may be late by itself, but not for that.
		return a.book(ctx)
	}
	a.outageReported = false
	return nil
}

// keepWatch has the store watch over the start from now on, at the latest.
func (a *acquisition) startWatch(ctx context.Context) {
	if a.watch != nil {
		return
	}
	a.booking.Away = a.outageObserver(ctx)
	if a.invalidated == nil {
		a.invalidated = make(chan struct{}, 1)
	}
	a.watch = a.store.Watch(&a.booking, a.grant, a.invalidated)
}

// stopWatch ends the watch: the start is used or given back.
func (a *acquisition) stopWatch() {
	if a.watch != nil {
		a.watch.Stop()
		a.watch, a.booking.Away = nil, nil
	}
}
