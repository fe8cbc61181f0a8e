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
