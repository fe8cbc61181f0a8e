package throttle

import (
	"context"
	"time"
)

// inGrace reports whether MaxWait leaves the caller nothing to wait for but storeGrace.
func (a *acquisition) inGrace(maxWait time.Duration) bool {
	return a.maxWait > 0 && maxWait <= noWaitLeft
}

// needsStoreContext reports whether a call of the store needs a context of its own.
func (a *acquisition) needsStoreContext(maxWait time.Duration) bool {
	return a.observe != nil || a.inGrace(maxWait)
}

// storeContext returns the context of a call of the store for which the caller can wait
// for maxWait. By it the store says why it does not answer. It ends with storeGrace if
// the store could go on for longer.
func (a *acquisition) storeContext(ctx context.Context, maxWait time.Duration) (context.Context, context.CancelFunc) {
	if a.observe != nil {
		a.observed = observedContext{ctx, a}
		ctx = &a.observed
	}
	if !a.inGrace(maxWait) {
		return ctx, func() {}
	}
	return context.WithTimeoutCause(ctx, a.waitDeadline+storeGrace-now(), errWaitOver)
}

// StoreAway implements [outage.Observer]: an outage makes one event.
func (a *acquisition) StoreAway(err error) {
	if !a.waitsForStore {
		a.waitsForStore = true
		a.unanswered.Add(1)
	}
	if !a.outageReported {
		a.outageReported = true
		a.report(a.observed.Context, StoreFailed, a.waited(), &StoreError{err})
	}
}

// returned notes that a call of the store has returned, whatever it said.
func (a *acquisition) returned() {
	if a.waitsForStore {
		a.waitsForStore = false
		a.unanswered.Add(-1)
	}
}
