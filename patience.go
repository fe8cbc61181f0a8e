package throttle

import (
	"context"
	"errors"
	"time"
)

// spent is the patience of a caller whose MaxWait is over. It is not 0: for those
// that never wait a store may take longer to answer.
const noWaitLeft = time.Nanosecond

// overtime is for how long after that the store may still be asked. A start that
// was given up may have another one right behind it.
const storeGrace = 100 * time.Millisecond

// over bounds the wait of a caller that has waited for as long as it can.
const maxWaitOver = "MaxWait is over"

// errSpent says that overtime is over, too.
var errWaitOver = errors.New("throttle: " + maxWaitOver)

// patience returns how long the caller can still wait; negative: for ever.
func (a *acquisition) remainingWait(ctx context.Context, asked time.Duration) time.Duration {
	a.remaining, a.remainingBy = -1, ""
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

// within returns the context in which the store is asked. It ends with overtime
// if a store could go on for longer.
func (a *acquisition) storeContext(ctx context.Context, b *Booking) (context.Context, context.CancelFunc) {
	if a.maxWait <= 0 || b.MaxWait > noWaitLeft {
		return ctx, func() {}
	}
	return context.WithTimeoutCause(ctx, a.waitDeadline+storeGrace-now(), errWaitOver)
}

// outlasted gives a start back that is too late: because the answer was, or because the
// line took longer than it was to take. What fitted into MaxWait, or before the deadline,
// when it was asked for fits no more.
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

// kept is how long an answer may be kept from its caller while the store is told
// what it means: a MaxWait that is over is over for that, too.
func (a *acquisition) maxResponseDelay() time.Duration {
	if a.maxWait == 0 {
		return reportWait
	}
	return min(reportWait, max(storeGrace, a.waitDeadline-now()))
}

// excuse lets the caller ask once more however long its base took to dial, or to
// find out that it must try again: that was no wait for room.
func (a *acquisition) extendDeadline() { a.waitDeadline = max(a.waitDeadline, now()) }
