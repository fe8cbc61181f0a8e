package throttle

import (
	"context"
	"errors"
	"time"

	"github.com/fleetthrottle/throttle/internal/farthest"
	"github.com/fleetthrottle/throttle/store"
)

// noWaitLeft is the Booking.MaxWait of a caller whose MaxWait is over. It is not 0, which is the
// MaxWait of a caller that never waits: a store may take longer to answer such a caller.
const noWaitLeft = time.Nanosecond

// storeGrace is for how long after the end of MaxWait the store may still be asked: a caller whose
// start became useless at the last moment may get another start right behind it.
const storeGrace = 100 * time.Millisecond

// errWaitOver and errDefaultWaitOver say that storeGrace is over, too.
var (
	errWaitOver        = errors.New("throttle: " + maxWaitOver)
	errDefaultWaitOver = errors.New("throttle: " + defaultWaitOver)
)

// waitOver returns errWaitOver, or errDefaultWaitOver if nobody set the caller's MaxWait.
func (a *acquisition) waitOver() error {
	if a.byDefault {
		return errDefaultWaitOver
	}
	return errWaitOver
}

// beginWait sets when the caller's wait began, and by that when its MaxWait is over and when the
// observer must be told of a long wait.
func (a *acquisition) beginWait(at time.Duration) {
	a.arrivedAt, a.waitDeadline = at, at+min(max(0, a.maxWait), farthest.Wait)
	if a.longWait > 0 {
		a.noticeAt = at + a.longWait
	}
}

// remainingWait returns how long a caller that asks the store now, at asked, can still wait, as a
// Booking.MaxWait. It notes the same in remaining and remainingBy, for the error if the
// store refuses.
func (a *acquisition) remainingWait(ctx context.Context, asked time.Duration) time.Duration {
	if a.patience > 0 {
		return a.remainingPatience(asked)
	}
	deadline, ok := ctx.Deadline()
	if !ok && a.maxWait == 0 {
		a.remaining, a.remainingBy = store.AnyWait, ""
		return store.AnyWait
	}
	left, by := store.AnyWait, ""
	if a.maxWait != 0 {
		left, by = max(0, a.waitDeadline-asked), maxWaitIs
	}
	if ok {
		if d := max(0, time.Until(deadline)); left < 0 || d < left {
			left, by = d, "the deadline is in"
		}
	}
	if left == 0 && by == maxWaitIs && a.maxWait > 0 {
		by = maxWaitOver
	}
	a.remaining, a.remainingBy = left, by
	if left == 0 && a.maxWait > 0 {
		return noWaitLeft
	}
	return left
}

// usefulWait returns the Booking.MaxWait of a caller that can wait for left. A caller with other
// variants stands in each line whatever the line's guess is: the guess counts callers
// that will start elsewhere, and a closed budget may be opened early. A start within the horizon is
// no guess, and is booked only if it is of use.
func (a *acquisition) usefulWait(left time.Duration) time.Duration {
	switch {
	case a.trying:
		return 0
	case a.variant && left > a.horizon():
		return store.AnyWait
	}
	return left
}

// extendDeadline lets the caller ask the store once more although MaxWait may be over: the base
// took the time to dial or to try again, and that was no wait for room.
func (a *acquisition) extendDeadline() { a.waitDeadline = max(a.waitDeadline, now()) }

// inGrace reports whether the caller's MaxWait is over, so that only storeGrace is left for the
// store's answer. maxWait is what remainingWait returned.
func (a *acquisition) inGrace(maxWait time.Duration) bool {
	return a.maxWait > 0 && maxWait <= noWaitLeft
}

// needsStoreContext reports whether storeContext would return another context than the caller's.
func (a *acquisition) needsStoreContext(maxWait time.Duration) bool {
	return a.observe != nil || a.inGrace(maxWait) || a.outlasts(maxWait) || a.patience > 0
}

// outlasts reports whether the store would be asked for longer than the caller's MaxWait, because
// maxWait is what usefulWait returned for one of several variants.
func (a *acquisition) outlasts(maxWait time.Duration) bool { return a.maxWait > 0 && maxWait < 0 }

// storeContext returns the context of a call of the store by a caller that can wait for maxWait,
// which is what remainingWait or usefulWait returned. If there is an observer, the context has an
// [outage.Observer] that the store tells of an outage. If MaxWait is over, the context ends when
// storeGrace is over.
func (a *acquisition) storeContext(ctx context.Context, maxWait time.Duration) (context.Context, context.CancelFunc) {
	if a.observe != nil {
		a.observed = observedContext{ctx, a}
		ctx = &a.observed
	}
	if a.patience > 0 {
		return context.WithTimeoutCause(ctx, max(a.patienceEnd()-now(), leastPatience), errWaitOver)
	}
	if !a.inGrace(maxWait) && !a.outlasts(maxWait) {
		return ctx, func() {}
	}
	return context.WithTimeoutCause(ctx, a.waitDeadline+storeGrace-now(), a.waitOver())
}

// StoreAway implements [outage.Observer]. It counts the caller in engine.unanswered until the call
// of the store returns, and makes one event of each outage. A caller that is only counted does not
// wait any longer.
func (a *acquisition) StoreAway(err error) {
	if !a.waitsForStore {
		a.waitsForStore = true
		a.unanswered.Add(1)
	}
	if !a.outageReported {
		a.outageReported = true
		a.report(a.observed.Context, EventStoreFailed, a.waited(), &StoreError{err})
	}
	if a.stopCount != nil {
		a.stopCount()
	}
}

// endStoreCall notes that a call of the store has returned, with an answer or an error: the caller
// does not wait for the store any more.
func (a *acquisition) endStoreCall() {
	if a.waitsForStore {
		a.waitsForStore = false
		a.unanswered.Add(-1)
	}
}
