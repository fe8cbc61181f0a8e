package throttle

import (
	"context"
	"errors"
	"time"

	"github.com/fleetthrottle/throttle/internal/farthest"
)

// maxWaitKey is the context key of WithMaxWait.
type maxWaitKey struct{}

// WithMaxWait returns a context whose requests are held at most d instead of
// [Config.MaxWait], with the same meaning of 0 and of negative values. It also
// bounds [Limiter.Acquire].
func WithMaxWait(ctx context.Context, d time.Duration) context.Context {
	return context.WithValue(ctx, maxWaitKey{}, d)
}

// maxWait returns the context's own bound or, if it has none, d.
func maxWait(ctx context.Context, d time.Duration) time.Duration {
	if own, ok := ctx.Value(maxWaitKey{}).(time.Duration); ok {
		return own
	}
	return d
}

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
	a.remaining, a.remainingBy = AnyWait, ""
	if a.maxWait != 0 {
		a.remaining, a.remainingBy = max(0, a.waitDeadline-asked), "MaxWait is"
	}
	if deadline, ok := ctx.Deadline(); ok {
		if d := max(0, time.Until(deadline)); a.remaining < 0 || d < a.remaining {
			a.remaining, a.remainingBy = d, "the deadline is in"
		}
	}
	if a.remaining == 0 && a.maxWait > 0 {
		if a.remainingBy == "MaxWait is" {
			a.remainingBy = maxWaitOver
		}
		return noWaitLeft
	}
	return a.remaining
}

// extendDeadline lets the caller ask once more however long its base took to dial,
// or to find out that it must try again: that was no wait for room.
func (a *acquisition) extendDeadline() { a.waitDeadline = max(a.waitDeadline, now()) }
