package throttle

import (
	"context"
	"errors"
	"time"
)

// A hold is one caller on its way through its budgets: it books a start, sleeps
// until then, and sees to it that the grant is used in time or given back.
// Transport and Limiter are built on it.
type acquisition struct {
	store   Store
	rtt     *rttEstimator // how long the store's answers take
	observe func(context.Context, Event)

	booking      Booking
	maxWait      time.Duration // as in Config
	arrivedAt    time.Duration // when the first start was asked for; 0: not yet
	waitDeadline time.Duration // when MaxWait is spent
	remaining    time.Duration // how long the caller could wait when it last asked; negative: for ever
	remainingBy  string        // what bounds that, for the error

	priority       Priority      // among those who wait
	returns        bool          // there was a start or a place before
	lead           time.Duration // how much before its start it wants to be back
	grant          Grant         // a start while its OK is true, a place in line while it has Ready
	startAt        time.Duration // its start, or a little later: it is safe to use from then on
	jitter         time.Duration // the least among the charges that count; 0: none has any
	concurrent     bool          // some charges are InFlight
	slots          *slotHold     // those, if they were taken after the start was booked
	validatedAt    time.Duration // when the store said last that the start may be used
	validateRTT    time.Duration // and how long it took to say so
	staleStreak    int           // how many answers in a row were too old when they came
	watch          Watch         // over a start that is waited for; nil: none
	invalidated    chan struct{} // what the watch tells; nil: there was none yet
	outageReported bool          // the store is away, and observe knows
}

// now is the time since the process began. It costs half as much as time.Now,
// which reads the wall clock too.
func now() time.Duration { return time.Since(born) }

var born = time.Now()

// errReplaced says that the policies changed during the wait.
var errReplaced = errors.New("throttle: the policies changed")

// take books a start and awaits it.
func (a *acquisition) acquire(ctx context.Context, w waitOptions) error {
	if err := a.book(ctx); err != nil || a.granted() {
		return err
	}
	return a.await(ctx, w)
}

// granted reports whether the start is this very moment.
func (a *acquisition) granted() bool { return a.grant.OK && a.grant.Wait == 0 && a.grant.Age == 0 }

// waiting says how a booked start is awaited.
type waitOptions struct {
	early           time.Duration   // come back this much before the start
	jitterShare     time.Duration   // how many sevenths of Jitter the grant may be old
	replaced        <-chan struct{} // come back when it is closed
	withConnection  bool            // with a connection in hand: do not wait beyond until
	connectionUntil time.Duration
}

// await sleeps until the booked start, or the caller's turn in line, and takes
// what is InFlight. If the grant turns out to be too old, or a penalty closed a
// budget meanwhile, it is given up and another one taken. Await returns
// errReplaced, with the place still held, when the policies were replaced, and
// likewise errFar when the start is too far away.
func (a *acquisition) await(ctx context.Context, w waitOptions) error {
	for {
		err := a.sleep(ctx, w)
		switch {
		case err != nil && err != errRevalidate:
		case !a.grant.OK:
			err = a.book(ctx)
		case a.late(w.jitterShare) > 0 || a.unusable(w.jitterShare):
			a.report(ctx, Stale, max(0, now()-a.startAt), nil)
			err = a.book(ctx)
		case err == errRevalidate || a.needsRevalidation():
			err = a.revalidate(ctx)
		case a.holdsSlots() || now() < a.startAt:
			return nil
		default:
			err = a.acquireSlots(ctx)
		}
		if err != nil {
			return err
		}
	}
}

// book asks the store for a start that is not too far away, in place of what is
// held, if anything. After an error nothing is held.
func (a *acquisition) book(ctx context.Context) error {
	if ctx.Err() != nil {
		return a.gaveUp(ctx)
	}
	asked := now()
	if a.arrivedAt == 0 {
		a.arrivedAt, a.waitDeadline = asked, asked+min(max(0, a.maxWait), Farthest)
	}
	b := &a.booking
	b.MaxWait = a.remainingWait(ctx, asked)
	storeCtx, stop := a.storeContext(ctx, b)
	defer stop()
	if storeCtx.Err() != nil {
		a.cancel()
		return a.storeFailure(ctx, context.Cause(storeCtx))
	}
	a.stopWatch()
	a.cancelSlots()
	if s := a.spread(); s != b.Spread {
		if a.grant.OK {
			a.cancel() // Instead is for bookings of the same spread
		}
		b.Spread = s
		a.adjustPace()
	}
	b.Instead, b.InsteadNode = 0, 0
	if a.holdsPlace() {
		b.Instead, b.InsteadNode = a.grant.Mark, a.grant.Node
	}
	b.Horizon, b.Priority, b.Turn, b.Returns = a.horizon(), a.priority, a.grant.Turn, a.returns
	b.Away = a.outageObserver(ctx)
	turn := a.inLine()
	g, err := a.store.Book(storeCtx, b)
	b.Away = nil
	if err != nil {
		a.forget() // given back or lost: it must not be given back twice
		return a.storeFailure(ctx, err)
	}
	a.outageReported = false
	a.rtt.add(g.Age)
	a.returns = true
	a.grant, a.startAt, a.validatedAt, a.validateRTT = g, asked, asked, g.Age
	if !a.holdsPlace() {
		return a.refusal(g)
	}
	if g.Wait > 0 || g.Age > 0 {
		answered := now()
		a.startAt, a.validatedAt = answered+g.Wait, answered-g.Age/2 // about when it was decided
		a.countStale()
		if err := a.exceedsMaxWait(ctx, g); err != nil {
			return err
		}
	}
	a.reportHeld(ctx, g, turn && g.OK)
	return nil
}

// payable refuses a cost that no wait can make fit.
func checkCosts(charges []Charge) error {
	for i := range charges {
		c := &charges[i]
		switch {
		case c.Cost <= c.Limit.Capacity()-c.Reserve:
		case c.Shadow:
			c.Cost = c.Limit.Capacity() - c.Reserve // counted as far as it can be
		default:
			return &LimitError{Policy: c.Budget.Policy, Limit: c.Limit, RetryAfter: Never, cost: c.Cost}
		}
	}
	return nil
}

// waited is how long the caller has been held so far.
func (a *acquisition) waited() time.Duration {
	if a.arrivedAt == 0 {
		return 0
	}
	return now() - a.arrivedAt
}

// refusal turns a grant that was not given into the caller's error.
func (a *acquisition) refusal(g Grant) error {
	e := &LimitError{RetryAfter: g.Wait, Paused: g.Paused, room: a.remaining, by: a.remainingBy}
	if g.Held >= 0 {
		c := &a.booking.Charges[g.Held]
		e.Policy, e.Limit = c.Budget.Policy, c.Limit
	}
	return e
}

// sleep waits for what comes next: the start, a little before it if so wished,
// or the caller's turn in line. A caller that leaves gives its place back.
func (a *acquisition) sleep(ctx context.Context, w waitOptions) error {
	if !a.grant.OK {
		return a.waitInLine(ctx, w)
	}
	if a.grant.Wait == 0 || a.unusable(w.jitterShare) {
		return nil
	}
	d := a.startAt - w.early - now()
	if d <= 0 {
		return nil
	}
	if w.withConnection && a.startAt > w.connectionUntil {
		return errDetach
	}
	var end error
	if d > validFor {
		a.startWatch(ctx)
		if lead := a.revalidateLead(); lead > 0 && d > validFor+lead {
			d, end = d-lead, errRevalidate
		}
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return end
	case <-a.invalidated:
		return errRevalidate
	case <-w.replaced:
		return errReplaced
	case <-ctx.Done():
		return a.gaveUp(ctx)
	}
}

// placed reports whether a start is booked or a place in line is held.
func (a *acquisition) holdsPlace() bool { return a.grant.OK || a.grant.Ready != nil }

// inLine reports whether the place is in the line for a start.
func (a *acquisition) inLine() bool {
	return a.grant.Ready != nil && a.grant.Mark == 0 && a.grant.Node == 0
}

// cancel gives back what is held, if anything.
func (a *acquisition) cancel() {
	a.stopWatch()
	a.cancelSlots()
	if a.holdsPlace() {
		a.store.Cancel(&a.booking, a.grant)
	}
	a.forget()
}

// forget is for a place that was used, given back or lost.
func (a *acquisition) forget() {
	a.grant.OK, a.grant.Ready, a.slots = false, nil, nil
}

// left gives the place back and is the error of a caller whose context ended.
func (a *acquisition) gaveUp(ctx context.Context) *gaveUpError {
	a.cancel()
	e := &gaveUpError{waited: a.waited(), cause: context.Cause(ctx), err: ctx.Err()}
	if g := a.grant; g.Held >= 0 {
		e.policy = a.booking.Charges[g.Held].Budget.Policy
	}
	return e
}

// tell reports that the caller is held, unless it was told when it came to stand in
// line, and what shadow policies think of it.
func (a *acquisition) reportHeld(ctx context.Context, g Grant, told bool) {
	if a.observe == nil {
		return
	}
	if !told && (g.Wait > 0 || !g.OK) {
		a.report(ctx, Waiting, g.Wait, nil)
	}
	for i := range a.booking.Charges {
		if c := &a.booking.Charges[i]; c.Over > 0 {
			a.observe(ctx, eventOf(Shadowed, c, c.Over, nil))
		}
	}
}

// event reports something about the budget that held the caller, if one did.
func (a *acquisition) report(ctx context.Context, k EventKind, d time.Duration, err error) {
	if a.observe == nil {
		return
	}
	var limited *LimitError
	var wrong *ConfigError
	e := Event{Kind: k, Wait: d, Err: err}
	if i := a.grant.Held; i >= 0 {
		e = eventOf(k, &a.booking.Charges[i], d, err)
		e.Paused = a.grant.Paused
	} else if errors.As(err, &limited) {
		e.Policy, e.Limit = limited.Policy, limited.Limit
	} else if errors.As(err, &wrong) {
		e.Policy = wrong.Policy
	}
	a.observe(ctx, e)
}

func eventOf(k EventKind, c *Charge, d time.Duration, err error) Event {
	return Event{Kind: k, Policy: c.Budget.Policy, Budget: c.Budget.String(), Limit: c.Limit, Wait: d, Err: err}
}
