package throttle

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	"github.com/fleetthrottle/throttle/store"
)

// report tells the observer of an event. If a budget holds the caller, or held it last, the event
// names that budget; else it names the policy of the error, if there is one.
func (a *acquisition) report(ctx context.Context, k EventKind, d time.Duration, err error) {
	if a.observe != nil {
		a.observe(a.event(ctx, k, d, err))
	}
}

// event returns what report tells the observer, for callers that hold a lock: they tell it afterwards.
func (a *acquisition) event(ctx context.Context, k EventKind, d time.Duration, err error) (context.Context, Event) {
	e := Event{Kind: k, Duration: d, Err: err}
	if i := a.grant.Held; i >= 0 {
		c := &a.booking.Charges[i]
		e = eventOf(k, c, d, err)
		if e.Paused = a.grant.Paused; e.Paused {
			e.Note = a.store.PauseNote(c.Budget)
		}
	} else if err != nil {
		e.Policy, e.Limit = decidedBy(err)
	}
	if (k == EventWaiting || k == EventStillWaiting) && a.heldCallers != nil {
		e.Callers = int(a.heldCallers.Load())
	}
	if k == EventStillWaiting && a.state != inSlotLine {
		e.Left = max(0, a.startAt-now())
	}
	if err != nil {
		ctx = a.withQuestion(ctx, err, a.booking.Charges)
	}
	return ctx, e
}

// outcomeOf returns the kind of event for a caller that is not let start: EventGaveUp if err says that
// its context ended, else EventRefused.
func outcomeOf(err error) EventKind {
	var gone *gaveUpError
	if errors.As(err, &gone) {
		return EventGaveUp
	}
	return EventRefused
}

// decidedBy returns the policy that an error names, "" if it names none, and that policy's limit.
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

// reportHeld notes which policy holds the caller by the store's answer g, if one does. It tells the
// observer that the caller is held, unless told says that it was told before, and
// which shadow policies would have held the caller.
func (a *acquisition) reportHeld(ctx context.Context, g store.Grant, told bool) {
	held := g.Wait > 0 || !g.OK
	if held && g.Held >= 0 {
		c := &a.booking.Charges[g.Held]
		if a.hold = (Hold{Policy: c.Budget.Policy, Paused: g.Paused}); g.Paused {
			a.hold.Note = a.store.PauseNote(c.Budget)
		}
	}
	if a.observe == nil || a.silent {
		return
	}
	if a.hold.Policy != "" && held {
		a.countHeld(a.hold.Policy)
	}
	if !told && held {
		a.report(ctx, EventWaiting, g.Wait, nil)
	}
	for i, over := range g.Over {
		if over > 0 {
			a.observe(ctx, eventOf(EventShadowed, &a.booking.Charges[i], over, nil))
		}
	}
}

// countHeld counts the caller among those that the policy holds, and not any more among those of
// the policy before.
func (a *acquisition) countHeld(policy string) {
	n, ok := a.heldByPolicy.Load(policy)
	if !ok {
		n, _ = a.heldByPolicy.LoadOrStore(policy, new(atomic.Int64))
	}
	if n := n.(*atomic.Int64); n != a.heldCallers {
		a.uncountHeld()
		a.heldCallers = n
		n.Add(1)
	}
}

// uncountHeld notes that no policy holds the caller any more.
func (a *acquisition) uncountHeld() {
	if a.heldCallers != nil {
		a.heldCallers.Add(-1)
		a.heldCallers = nil
	}
}

// askClosed bounds how long a caller that meets a closed budget asks the store for the budget's
// end, for the observer. A caller that waits for less than nearlyOpen does not ask.
const (
	askClosed  = time.Second
	nearlyOpen = 50 * time.Millisecond
)

// noticeIn returns how long it is until the observer must be told that the caller still
// waits; false: the observer is never told.
func (a *acquisition) noticeIn() (time.Duration, bool) {
	if a.noticeAt == 0 {
		return 0, false
	}
	return max(0, a.noticeAt-now()), true
}

// noticeLongWait tells the observer that the caller still waits. The next notice is due when
// the caller has waited for twice as long as now.
func (a *acquisition) noticeLongWait(ctx context.Context) {
	waited := a.waited()
	a.noticeAt = now() + waited
	a.report(ctx, EventStillWaiting, waited, nil)
}

// noticeClosed tells the observer that the budget that holds the caller by the answer g is closed,
// unless the observer knows. It asks the store for how long the budget is closed.
func (a *acquisition) noticeClosed(ctx context.Context, g *store.Grant) {
	if a.observe == nil || !g.Paused || g.Held < 0 || g.Wait < nearlyOpen {
		return
	}
	c, at := &a.booking.Charges[g.Held], now()
	if !a.closings.add(c.Budget, at, at+askClosed) { // only one caller asks
		return
	}
	ctx, cancel := context.WithTimeout(ctx, askClosed)
	defer cancel()
	unit := *c
	unit.Cost = 1
	st, err := a.store.Status(ctx, unit)
	if err != nil || st.Paused <= 0 {
		return
	}
	a.closings.extend(c.Budget, at, now()+st.Paused)
	e := eventOf(EventClosed, c, st.Paused, nil)
	e.Paused, e.Note = true, a.store.PauseNote(c.Budget)
	a.observe(ctx, e)
}

// reportStart tells the observer that the caller goes on, after it was held for some time, and
// which budgets are open again.
func (a *acquisition) reportStart(ctx context.Context, held time.Duration) {
	if a.observe != nil {
		a.noticeOpen(ctx)
		a.uncountHeld()
		a.report(ctx, EventStarted, held, nil)
	}
}

// noticeOpen tells the observer which budgets of a start were closed before.
func (a *acquisition) noticeOpen(ctx context.Context) {
	for _, e := range a.openings() {
		a.observe(ctx, e)
	}
}

// openings returns what noticeOpen tells the observer, and notes that the budgets are open. It returns
// nil if there is no observer.
func (a *acquisition) openings() (events []Event) {
	if a.observe == nil || a.closings.count.Load() == 0 {
		return nil
	}
	for i := range a.booking.Charges {
		c := &a.booking.Charges[i]
		if c.Shadow {
			continue // a start does not show whether a shadow's budget is open
		}
		if d, ok := a.closings.remove(c.Budget, a.validatedAt, now()); ok {
			events = append(events, eventOf(EventOpened, c, d, nil))
		}
	}
	return events
}
