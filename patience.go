package throttle

import (
	"context"
	"errors"
	"time"
)

// spent is the patience of a caller whose MaxWait is over. It is not 0: for those
// that never wait a store may take longer to answer.
const spent = time.Nanosecond

// overtime is for how long after that the store may still be asked. A start that
// was given up may have another one right behind it.
const overtime = 100 * time.Millisecond

// over bounds the wait of a caller that has waited for as long as it can.
const over = "MaxWait is over"

// errSpent says that overtime is over, too.
var errSpent = errors.New("throttle: " + over)

// patience returns how long the caller can still wait; negative: for ever.
func (h *hold) patience(ctx context.Context, asked time.Duration) time.Duration {
	h.room, h.roomBy = -1, ""
	if h.maxWait != 0 {
		h.room, h.roomBy = max(0, h.ends-asked), "MaxWait is"
	}
	if deadline, ok := ctx.Deadline(); ok {
		if d := max(0, time.Until(deadline)); h.room < 0 || d < h.room {
			h.room, h.roomBy = d, "the deadline is in"
		}
	}
	if h.room == 0 && h.maxWait > 0 {
		if h.roomBy == "MaxWait is" {
			h.roomBy = over
		}
		return spent
	}
	return h.room
}

// within returns the context in which the store is asked. It ends with overtime
// if a store could go on for longer.
func (h *hold) within(ctx context.Context, b *Booking) (context.Context, context.CancelFunc) {
	if h.maxWait <= 0 || b.MaxWait > spent {
		return ctx, func() {}
	}
	return context.WithTimeoutCause(ctx, h.ends+overtime-now(), errSpent)
}

// outlasted gives a start back that is too late: because the answer was, or because the
// line took longer than it was to take. What fitted into MaxWait, or before the deadline,
// when it was asked for fits no more.
func (h *hold) outlasted(ctx context.Context, g Grant) error {
	if !g.OK {
		return nil
	}
	deadline, ok := ctx.Deadline()
	switch left := time.Until(deadline); {
	case h.maxWait > 0 && h.due > h.ends+overtime/2:
		if h.room, h.roomBy = h.ends-now(), "MaxWait is"; h.room <= 0 {
			h.roomBy = over
		}
	case ok && g.Held >= 0 && left > 0 && g.Wait > left:
		h.room, h.roomBy = left, "the deadline is in"
	default:
		return nil
	}
	h.cancel()
	if g.Held < 0 {
		return h.failure(ctx, errSpent)
	}
	return h.refusal(g)
}

// kept is how long an answer may be kept from its caller while the store is told
// what it means: a MaxWait that is over is over for that, too.
func (h *hold) kept() time.Duration {
	if h.maxWait == 0 {
		return tellTime
	}
	return min(tellTime, max(overtime, h.ends-now()))
}

// excuse lets the caller ask once more however long its base took to dial, or to
// find out that it must try again: that was no wait for room.
func (h *hold) excuse() { h.ends = max(h.ends, now()) }
