package throttle

import (
	"context"
	"errors"
	"sync/atomic"
	"time"
)

// report tells the observer of something that concerns the budget that held the
// caller, if one did.
func (a *acquisition) report(ctx context.Context, k EventKind, d time.Duration, err error) {
	if a.observe == nil {
		return
	}
	e := Event{Kind: k, Duration: d, Err: err}
	if i := a.grant.Held; i >= 0 {
		c := &a.booking.Charges[i]
		e = eventOf(k, c, d, err)
		if e.Paused = a.grant.Paused; e.Paused {
			e.Note = a.pauseNote(c)
		}
	} else if err != nil {
		e.Policy, e.Limit = decidedBy(err)
	}
	if (k == Waiting || k == StillWaiting) && a.queue != nil {
		e.Callers = int(a.queue.Load())
	}
	if k == StillWaiting && a.state != inSlotLine {
		e.Left = max(0, a.startAt-now())
	}
	if err != nil {
		ctx = a.withQuestion(ctx, err, a.booking.Charges)
	}
	a.observe(ctx, e)
}

// outcomeOf returns the kind of event for an error.
func outcomeOf(err error) EventKind {
	var gone *gaveUpError
	if errors.As(err, &gone) {
		return GaveUp
	}
	return Refused
}

// decidedBy returns the policy that an error names, and its limit.
func decidedBy(err error) (policy string, l Limit) {
	var limited *LimitError
	var wrong *ConfigError
	if errors.As(err, &limited) {
		return limited.Policy, limited.Limit
	} else if errors.As(err, &wrong) {
		return wrong.Policy, Limit{}
	}
	return "", Limit{}
}

// reportHeld notes what holds the caller. It tells the observer that the caller is
// held, unless it was told so when the caller got in line, and what shadow policies
// would have done.
func (a *acquisition) reportHeld(ctx context.Context, g Grant, told bool) {
	held := g.Wait > 0 || !g.OK
	if held && g.Held >= 0 {
		c := &a.booking.Charges[g.Held]
		if a.hold = (Hold{Policy: c.Budget.Policy, Paused: g.Paused}); g.Paused {
			a.hold.Note = a.pauseNote(c)
		}
	}
	if a.observe == nil {
		return
	}
	if a.hold.Policy != "" && held {
		a.enterQueue(a.hold.Policy)
	}
	if !told && held {
		a.report(ctx, Waiting, g.Wait, nil)
	}
	for i, over := range g.Over {
		if over > 0 {
			a.observe(ctx, eventOf(Shadowed, &a.booking.Charges[i], over, nil))
		}
	}
}

// pauseNote returns what an operator said who closed the budget of a charge.
func (a *acquisition) pauseNote(c *Charge) PauseNote {
	if n, ok := a.store.(PauseNoter); ok {
		return n.PauseNote(c.Budget)
	}
	return PauseNote{}
}

// enterQueue counts the caller among those that a policy holds, and no other.
func (a *acquisition) enterQueue(policy string) {
	n, ok := a.queues.Load(policy)
	if !ok {
		n, _ = a.queues.LoadOrStore(policy, new(atomic.Int64))
	}
	if n := n.(*atomic.Int64); n != a.queue {
		a.leaveQueue()
		a.queue = n
		n.Add(1)
	}
}

// leaveQueue ends that.
func (a *acquisition) leaveQueue() {
	if a.queue != nil {
		a.queue.Add(-1)
		a.queue = nil
	}
}

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
