package throttle

import (
	"context"
	"time"

	"github.com/fleetthrottle/throttle/internal/outage"
)

// storeContext returns the context of a call of the store for which the caller can wait
// for maxWait. By it the store says why it does not answer; an outage makes one event.
// It ends with storeGrace if the store could go on for longer.
func (a *acquisition) storeContext(ctx context.Context, maxWait time.Duration) (context.Context, context.CancelFunc) {
	own := ctx
	if a.observe != nil {
		own = outage.WithObserver(ctx, func(err error) {
			if !a.outageReported {
				a.outageReported = true
				a.report(ctx, StoreFailed, a.waited(), &StoreError{err})
			}
		})
	}
	if a.maxWait <= 0 || maxWait > noWaitLeft {
		return own, func() {}
	}
	return context.WithTimeoutCause(own, a.waitDeadline+storeGrace-now(), errWaitOver)
}
