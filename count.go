package throttle

import (
	"context"
	"errors"
	"time"

	"github.com/fleetthrottle/throttle/store"
)

// errUncounted is the cause of a call that took longer than countPatience.
var errUncounted = errors.New("throttle: the store did not answer within 500ms, and the request goes on without being counted")

// count books a start for a caller that is only counted, and grants the start. asked is when it is
// called. Its error is that of a caller whose context has ended.
func (a *acquisition) count(ctx context.Context, asked time.Duration) error {
	a.startAt, a.validatedAt = asked, asked
	if !a.counting.mayAsk(asked) {
		a.cancel()
		a.grantUncounted()
		return nil
	}
	if a.returns {
		a.replacePlace(a.booking.Spread)
	}
	a.returns = true
	storeCtx, stop := context.WithTimeoutCause(ctx, countPatience, errUncounted)
	defer stop()
	a.observed, a.stopCount = observedContext{storeCtx, a}, stop
	b := &a.booking
	a.adjustPace()
	b.Horizon, b.Priority = a.horizon(), a.priority
	g, err := a.store.Book(&a.observed, b)
	a.stopCount = nil
	a.endStoreCall()
	if err != nil && ctx.Err() != nil {
		a.forget()
		return a.storeFailure(ctx, err)
	}
	a.counting.note(err == nil)
	if err == nil {
		a.receive(g)
		a.outageReported = false
		if r := a.recent.Load(); r != nil && !r.note(b.Charges, &a.grant, asked) {
			a.recent.CompareAndSwap(r, nil)
		}
	}
	if err == nil && g.OK {
		a.validateRTT = g.Age
		a.rtt.add(g.Age, now())
		a.reportHeld(ctx, store.Grant{OK: true, Held: store.NotHeld, Over: g.Over}, true)
		a.state = granted
		return nil
	}
	if err == nil {
		a.cancel() // the store of a fallback may have no start
	} else if !a.outageReported {
		a.outageReported = true
		a.report(ctx, EventStoreFailed, a.waited(), &StoreError{err})
	}
	a.grantUncounted()
	return nil
}

// grantUncounted lets the caller go on though the store holds nothing for it.
func (a *acquisition) grantUncounted() {
	a.grant = store.Grant{OK: true, Held: store.NotHeld, Turn: a.grant.Turn}
	a.state, a.uncounted = granted, true
}
