package throttle

import (
	"context"
	"time"
)

// needsRevalidation reports whether the store must confirm the start before it is
// used.
func (a *acquisition) needsRevalidation() bool {
	return now()-a.validatedAt > validFor+min(a.revalidateLead(), a.validateRTT)
}

// revalidateLead is how much before the start the store is asked to confirm it: as
// long as the store takes to answer, if that is more than validFor. What it took
// this caller counts, too: the estimate may be of another time.
func (a *acquisition) revalidateLead() time.Duration {
	if lag := min(a.rtt.get(), a.grant.Age); lag > validFor {
		return lag
	}
	return 0
}

// revalidate asks the store whether the start may still be used, and books another
// one if not.
func (a *acquisition) revalidate(ctx context.Context) error {
	asked := now()
	maxWait := a.remainingWait(ctx, asked)
	a.startWatch(ctx)
	storeCtx, stop := a.storeContext(ctx, maxWait)
	defer stop()
	ok, err := a.watch.Confirm(storeCtx, maxWait)
	a.returned()
	a.validatedAt = now()
	a.validateRTT = a.validatedAt - asked
	switch {
	case err != nil:
		a.cancel()
		return a.storeFailure(ctx, err)
	case !ok, a.validatedAt-max(asked, a.startAt) > DefaultJitter:
		// Starts that the store held up would leave together. A caller without
		// Jitter may be late for reasons of its own, but not for this one.
		return a.book(ctx)
	}
	a.outageReported = false
	return nil
}

// startWatch makes the store watch over the start, unless it does already.
func (a *acquisition) startWatch(ctx context.Context) {
	if a.watch != nil {
		return
	}
	if a.invalidated == nil {
		a.invalidated = make(chan struct{}, 1)
	}
	a.watch = a.store.Watch(&a.booking, a.grant, a.invalidated)
}
