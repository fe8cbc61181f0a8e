package throttle

import (
	"context"
	"errors"
	"time"
)

// fresh is for how long what the store said last of a start needs no confirming:
// so little later than it can be known elsewhere, a penalty takes effect.
const fresh = 5 * time.Millisecond

// errDoubt says that a start may have become useless during the wait.
var errDoubt = errors.New("throttle: there may be a penalty")

// unsure reports whether the start is to be confirmed before it is used.
func (h *hold) unsure() bool { return now()-h.sure > fresh+min(h.ahead(), h.asking) }

// ahead is how much before the start it is time to confirm it: as long as the
// store takes to answer, if that matters. What it took this caller counts, too: what is
// believed of the store may be of another time.
func (h *hold) ahead() time.Duration {
	if lag := min(h.lag.get(), h.grant.Age); lag > fresh {
		return lag
	}
	return 0
}

// confirm asks the store whether the start may still be used, and books another
// one if not.
func (h *hold) confirm(ctx context.Context) error {
	asked := now()
	h.booking.MaxWait = h.patience(ctx, asked)
	h.keepWatch(ctx)
	within, stop := h.within(ctx, &h.booking)
	defer stop()
	ok, err := h.watch.Confirm(within)
	h.sure = now()
	h.asking = h.sure - asked
	switch {
	case err != nil:
		h.cancel()
		return h.failure(ctx, err)
	case !ok, h.sure-max(asked, h.due) > DefaultJitter:
		// Starts that were held up by the store would leave together. Whoever has
		// no Jitter may be late by itself, but not for that.
		return h.book(ctx)
	}
	h.outage = false
	return nil
}

// keepWatch has the store watch over the start from now on, at the latest.
func (h *hold) keepWatch(ctx context.Context) {
	if h.watch != nil {
		return
	}
	h.booking.Away = h.away(ctx)
	if h.news == nil {
		h.news = make(chan struct{}, 1)
	}
	h.watch = h.store.Watch(&h.booking, h.grant, h.news)
}

// stopWatch ends the watch: the start is used or given back.
func (h *hold) stopWatch() {
	if h.watch != nil {
		h.watch.Stop()
		h.watch, h.booking.Away = nil, nil
	}
}
