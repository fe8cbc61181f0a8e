package throttle

import (
	"context"
	"errors"
	"time"
)

// A hold is one caller on its way through its budgets: it books a start, sleeps
// until then, and sees to it that the grant is used in time or given back.
// Transport and Limiter are built on it.
type hold struct {
	store   Store
	lag     *lag // how long the store's answers take
	observe func(context.Context, Event)

	booking Booking
	maxWait time.Duration // as in Config
	came    time.Duration // when the first start was asked for; 0: not yet
	ends    time.Duration // when MaxWait is spent
	room    time.Duration // how long the caller could wait when it last asked; negative: for ever
	roomBy  string        // what bounds that, for the error

	priority Priority      // among those who wait
	returns  bool          // there was a start or a place before
	lead     time.Duration // how much before its start it wants to be back
	grant    Grant         // a start while its OK is true, a place in line while it has Ready
	due      time.Duration // its start, or a little later: it is safe to use from then on
	jitter   time.Duration // the least among the charges that count; 0: none has any
	inFlight bool          // some charges are InFlight
	boarded  *boarding     // those, if they were taken after the start was booked
	sure     time.Duration // when the store said last that the start may be used
	asking   time.Duration // and how long it took to say so
	aged     int           // how many answers in a row were too old when they came
	watch    Watch         // over a start that is waited for; nil: none
	news     chan struct{} // what the watch tells; nil: there was none yet
	outage   bool          // the store is away, and observe knows
}

// now is the time since the process began. It costs half as much as time.Now,
// which reads the wall clock too.
func now() time.Duration { return time.Since(born) }

var born = time.Now()

// errReplaced says that the policies changed during the wait.
var errReplaced = errors.New("throttle: the policies changed")

// take books a start and awaits it.
func (h *hold) take(ctx context.Context, w waiting) error {
	if err := h.book(ctx); err != nil || h.granted() {
		return err
	}
	return h.await(ctx, w)
}

// granted reports whether the start is this very moment.
func (h *hold) granted() bool { return h.grant.OK && h.grant.Wait == 0 && h.grant.Age == 0 }

// waiting says how a booked start is awaited.
type waiting struct {
	early    time.Duration   // come back this much before the start
	parts    time.Duration   // how many sevenths of Jitter the grant may be old
	replaced <-chan struct{} // come back when it is closed
	inHand   bool            // with a connection in hand: do not wait beyond until
	until    time.Duration
}

// await sleeps until the booked start, or the caller's turn in line, and takes
// what is InFlight. If the grant turns out to be too old, or a penalty closed a
// budget meanwhile, it is given up and another one taken. Await returns
// errReplaced, with the place still held, when the policies were replaced, and
// likewise errFar when the start is too far away.
func (h *hold) await(ctx context.Context, w waiting) error {
	for {
		err := h.sleep(ctx, w)
		switch {
		case err != nil && err != errDoubt:
		case !h.grant.OK:
			err = h.book(ctx)
		case h.late(w.parts) > 0 || h.spoilt(w.parts):
			h.event(ctx, Stale, max(0, now()-h.due), nil)
			err = h.book(ctx)
		case err == errDoubt || h.unsure():
			err = h.confirm(ctx)
		case h.aboard() || now() < h.due:
			return nil
		default:
			err = h.board(ctx)
		}
		if err != nil {
			return err
		}
	}
}

// book asks the store for a start that is not too far away, in place of what is
// held, if anything. After an error nothing is held.
func (h *hold) book(ctx context.Context) error {
	if ctx.Err() != nil {
		return h.left(ctx)
	}
	asked := now()
	if h.came == 0 {
		h.came, h.ends = asked, asked+min(max(0, h.maxWait), Farthest)
	}
	b := &h.booking
	b.MaxWait = h.patience(ctx, asked)
	within, stop := h.within(ctx, b)
	defer stop()
	if within.Err() != nil {
		h.cancel()
		return h.failure(ctx, context.Cause(within))
	}
	h.stopWatch()
	h.disembark()
	if s := h.spread(); s != b.Spread {
		if h.grant.OK {
			h.cancel() // Instead is for bookings of the same spread
		}
		b.Spread = s
		h.keepPace()
	}
	b.Instead, b.InsteadNode = 0, 0
	if h.placed() {
		b.Instead, b.InsteadNode = h.grant.Mark, h.grant.Node
	}
	b.Horizon, b.Priority, b.Turn, b.Returns = h.horizon(), h.priority, h.grant.Turn, h.returns
	b.Away = h.away(ctx)
	turn := h.inLine()
	g, err := h.store.Book(within, b)
	b.Away = nil
	if err != nil {
		h.forget() // given back or lost: it must not be given back twice
		return h.failure(ctx, err)
	}
	h.outage = false
	h.lag.note(g.Age)
	h.returns = true
	h.grant, h.due, h.sure, h.asking = g, asked, asked, g.Age
	if !h.placed() {
		return h.refusal(g)
	}
	if g.Wait > 0 || g.Age > 0 {
		answered := now()
		h.due, h.sure = answered+g.Wait, answered-g.Age/2 // about when it was decided
		h.age()
		if err := h.outlasted(ctx, g); err != nil {
			return err
		}
	}
	h.tell(ctx, g, turn && g.OK)
	return nil
}

// payable refuses a cost that no wait can make fit.
func payable(charges []Charge) error {
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
func (h *hold) waited() time.Duration {
	if h.came == 0 {
		return 0
	}
	return now() - h.came
}

// refusal turns a grant that was not given into the caller's error.
func (h *hold) refusal(g Grant) error {
	e := &LimitError{RetryAfter: g.Wait, Paused: g.Paused, room: h.room, by: h.roomBy}
	if g.Held >= 0 {
		c := &h.booking.Charges[g.Held]
		e.Policy, e.Limit = c.Budget.Policy, c.Limit
	}
	return e
}

// sleep waits for what comes next: the start, a little before it if so wished,
// or the caller's turn in line. A caller that leaves gives its place back.
func (h *hold) sleep(ctx context.Context, w waiting) error {
	if !h.grant.OK {
		return h.lineUp(ctx, w)
	}
	if h.grant.Wait == 0 || h.spoilt(w.parts) {
		return nil
	}
	d := h.due - w.early - now()
	if d <= 0 {
		return nil
	}
	if w.inHand && h.due > w.until {
		return errFar
	}
	var end error
	if d > fresh {
		h.keepWatch(ctx)
		if a := h.ahead(); a > 0 && d > fresh+a {
			d, end = d-a, errDoubt
		}
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return end
	case <-h.news:
		return errDoubt
	case <-w.replaced:
		return errReplaced
	case <-ctx.Done():
		return h.left(ctx)
	}
}

// placed reports whether a start is booked or a place in line is held.
func (h *hold) placed() bool { return h.grant.OK || h.grant.Ready != nil }

// inLine reports whether the place is in the line for a start.
func (h *hold) inLine() bool {
	return h.grant.Ready != nil && h.grant.Mark == 0 && h.grant.Node == 0
}

// cancel gives back what is held, if anything.
func (h *hold) cancel() {
	h.stopWatch()
	h.disembark()
	if h.placed() {
		h.store.Cancel(&h.booking, h.grant)
	}
	h.forget()
}

// forget is for a place that was used, given back or lost.
func (h *hold) forget() {
	h.grant.OK, h.grant.Ready, h.boarded = false, nil, nil
}

// left gives the place back and is the error of a caller whose context ended.
func (h *hold) left(ctx context.Context) *gaveUpError {
	h.cancel()
	e := &gaveUpError{waited: h.waited(), cause: context.Cause(ctx), err: ctx.Err()}
	if g := h.grant; g.Held >= 0 {
		e.policy = h.booking.Charges[g.Held].Budget.Policy
	}
	return e
}

// tell reports that the caller is held, unless it was told when it came to stand in
// line, and what shadow policies think of it.
func (h *hold) tell(ctx context.Context, g Grant, told bool) {
	if h.observe == nil {
		return
	}
	if !told && (g.Wait > 0 || !g.OK) {
		h.event(ctx, Waiting, g.Wait, nil)
	}
	for i := range h.booking.Charges {
		if c := &h.booking.Charges[i]; c.Over > 0 {
			h.observe(ctx, eventOf(Shadowed, c, c.Over, nil))
		}
	}
}

// event reports something about the budget that held the caller, if one did.
func (h *hold) event(ctx context.Context, k EventKind, d time.Duration, err error) {
	if h.observe == nil {
		return
	}
	var limited *LimitError
	var wrong *ConfigError
	e := Event{Kind: k, Wait: d, Err: err}
	if i := h.grant.Held; i >= 0 {
		e = eventOf(k, &h.booking.Charges[i], d, err)
		e.Paused = h.grant.Paused
	} else if errors.As(err, &limited) {
		e.Policy, e.Limit = limited.Policy, limited.Limit
	} else if errors.As(err, &wrong) {
		e.Policy = wrong.Policy
	}
	h.observe(ctx, e)
}

func eventOf(k EventKind, c *Charge, d time.Duration, err error) Event {
	return Event{Kind: k, Policy: c.Budget.Policy, Budget: c.Budget.String(), Limit: c.Limit, Wait: d, Err: err}
}
