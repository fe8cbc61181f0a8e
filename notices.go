package throttle

import (
	"context"
	"time"
)

// askClosed is for how long the store is asked until when a budget is closed. A caller
// whose start is nearer does not ask.
const (
	askClosed  = time.Second
	nearlyOpen = 50 * time.Millisecond
)

// noticeIn is how long it is until the observer must be told that the caller still
// waits; false: never.
func (a *acquisition) noticeIn() (time.Duration, bool) {
	if a.noticeAt == 0 {
		return 0, false
	}
	return max(0, a.noticeAt-now()), true
}

// noticeLongWait tells the observer that the caller still waits. It does so again when
// the caller has waited for twice as long.
func (a *acquisition) noticeLongWait(ctx context.Context) {
	waited := a.waited()
	a.noticeAt = now() + waited
	a.report(ctx, StillWaiting, waited, nil)
}

// noticeClosed tells the observer that a budget is closed, if it was not told. The store
// knows for how long.
func (a *acquisition) noticeClosed(ctx context.Context, g *Grant) {
	if a.observe == nil || !g.Paused || g.Held < 0 || g.Wait < nearlyOpen {
		return
	}
	c, at := &a.booking.Charges[g.Held], now()
	if !a.closings.add(c.Budget, at, at+askClosed) { // only one caller asks
		return
	}
	ctx, cancel := context.WithTimeout(ctx, askClosed)
	defer cancel()
	one := *c
	one.Cost = 1
	st, err := a.store.Status(ctx, one)
	if err != nil || st.Paused <= 0 {
		return
	}
	a.closings.extend(c.Budget, at, now()+st.Paused)
	e := eventOf(Closed, c, st.Paused, nil)
	e.Paused, e.Note = true, a.pauseNote(c)
	a.observe(ctx, e)
}

// reportStart tells the observer that the caller goes on, and what is open again.
func (a *acquisition) reportStart(ctx context.Context, held time.Duration) {
	if a.observe != nil {
		a.noticeOpen(ctx)
		a.leaveQueue()
		a.report(ctx, Started, held, nil)
	}
}

// noticeOpen tells the observer which budgets of a start were closed before.
func (a *acquisition) noticeOpen(ctx context.Context) {
	if a.observe == nil || a.closings.count.Load() == 0 {
		return
	}
	for i := range a.booking.Charges {
		c := &a.booking.Charges[i]
		if c.Shadow {
			continue // it starts nothing, and holds nothing up
		}
		if d, ok := a.closings.remove(c.Budget, a.validatedAt, now()); ok {
			a.observe(ctx, eventOf(Opened, c, d, nil))
		}
	}
}
