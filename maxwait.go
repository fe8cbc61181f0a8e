package throttle

import (
	"context"
	"errors"
	"time"

	"github.com/fleetthrottle/throttle/internal/farthest"
)

// noWaitLeft is the remaining wait of a caller whose MaxWait is over. It is not 0:
// for callers that never wait a store may take longer to answer.
const noWaitLeft = time.Nanosecond

// storeGrace is for how long after MaxWait the store may still be asked. A start
// that was given up may have another one right behind it.
const storeGrace = 100 * time.Millisecond

// errWaitOver says that storeGrace is over, too.
var errWaitOver = errors.New("throttle: " + maxWaitOver)

// beginWait says since when the caller waits.
func (a *acquisition) beginWait(at time.Duration) {
	a.arrivedAt, a.waitDeadline = at, at+min(max(0, a.maxWait), farthest.Wait)
	if a.longWait > 0 {
		a.noticeAt = at + a.longWait
	}
}

// remainingWait returns how long the caller can still wait; negative: for ever.
func (a *acquisition) remainingWait(ctx context.Context, asked time.Duration) time.Duration {
	deadline, ok := ctx.Deadline()
	if !ok && a.maxWait == 0 {
		a.remaining, a.remainingBy = AnyWait, ""
		return AnyWait
	}
	left, by := AnyWait, ""
	if a.maxWait != 0 {
		left, by = max(0, a.waitDeadline-asked), "MaxWait is"
	}
	if ok {
		if d := max(0, time.Until(deadline)); left < 0 || d < left {
			left, by = d, "the deadline is in"
		}
	}
	if left == 0 && by == "MaxWait is" && a.maxWait > 0 {
		by = maxWaitOver
	}
	a.remaining, a.remainingBy = left, by
	if left == 0 && a.maxWait > 0 {
		return noWaitLeft
	}
	return left
}

// extendDeadline lets the caller ask once more however long its base took to dial,
// or to find out that it must try again: that was no wait for room.
func (a *acquisition) extendDeadline() { a.waitDeadline = max(a.waitDeadline, now()) }

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
