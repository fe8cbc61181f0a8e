package acquire

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/fleetthrottle/throttle/store"
)

// Events of a caller, its errors, and the policies that held it, for the program above.

// An EventKind says what has happened.
type EventKind uint8

// The kinds of events. Package throttle has events of the same names, and documents them.
const (
	EventWaiting EventKind = iota + 1
	EventStillWaiting
	EventStarted
	EventRefused
	EventGaveUp
	EventStale
	EventLate
	EventShadowed
	EventStoreFailed
	EventClosed
	EventOpened
	EventOff
)

// An Event is something that happened to one caller. Its pointers and slices are the caller's: they are good until
// [Engine.Observe] returns, or until the caller goes on.
type Event struct {
	Kind     EventKind
	Charge   *store.Charge  // the charge whose budget decided, or nil
	Charges  []store.Charge // all charges of the caller
	Paused   bool           // the budget of Charge is closed, and not full
	Note     store.PauseNote
	Duration time.Duration // how long something took, or will take
	Callers  int           // EventWaiting, EventStillWaiting: how many callers the policy holds
	Left     time.Duration // EventStillWaiting: how long the caller will still be held, or 0 if unknown
	Err      error         // made by Errors, or nil
}

// Errors makes the errors that callers return, so that each error is of a type that the program's users know. Its
// methods may be called by many goroutines.
type Errors interface {
	Refused(Refusal) error       // a budget refuses the caller
	StoreFailed(err error) error // the store failed, with an error of its own
	GaveUp(Departure) error      // the caller's context ended
}

// A Refusal is why a budget refuses a caller, which holds nothing any more.
type Refusal struct {
	Charge    *store.Charge // of the budget, or nil if the store did not say
	Wait      time.Duration // for how long the caller would have had to wait, or 0 if unknown
	Paused    bool          // the budget is closed, and not full
	Shares    int           // as in store.Grant
	Note      store.PauseNote
	CouldWait time.Duration // for how long the caller could still have waited
	By        Bound         // what bounded CouldWait
}

// A Departure is how a caller left because its context ended. The caller holds nothing any more.
type Departure struct {
	Charge *store.Charge // of the budget that held the caller last, or nil
	Note   store.PauseNote
	Waited time.Duration
	Cause  error // context.Cause
	Err    error // of the context
	Store  error // why the store did not answer, made by Errors, or nil if a limit held the caller
}

// A Hold is the last time that a policy held a caller.
type Hold struct {
	Duration time.Duration   // how long the caller was held, which the program sets
	Policy   string          // "" if no policy held the caller
	Paused   bool            // the policy's budget was closed, and not full
	Note     store.PauseNote // the note of the operator who closed the budget, or zero
}

// GaveUp gives back the caller's holdings and returns the error of a caller whose context
// ended.
func (c *Caller) GaveUp(ctx context.Context) error {
	c.Cancel()
	return c.engine.Errors.GaveUp(c.departure(ctx))
}

// departure returns how the caller leaves, with the budget that held it last.
func (c *Caller) departure(ctx context.Context) Departure {
	d := Departure{Waited: c.Waited(), Cause: context.Cause(ctx), Err: ctx.Err()}
	if i := c.Grant.HeldBy; i >= 0 {
		d.Charge = &c.Booking.Charges[i]
		d.Note = c.engine.Store.PauseNote(d.Charge.Budget)
	}
	return d
}

// refusal returns the error of a caller that is refused because of g, the store's last answer.
func (c *Caller) refusal(g store.Grant) error {
	r := Refusal{Wait: g.Wait, Paused: g.Paused, Shares: g.Shares, CouldWait: c.remaining, By: c.remainingBy}

	// A MaxWait that nobody has set is the default, and the error says so.
	switch {
	case c.ByDefault && r.By == BoundMaxWait:
		r.By = BoundDefault
	case c.ByDefault && r.By == BoundMaxWaitOver:
		r.By = BoundDefaultOver
	}

	if g.HeldBy >= 0 {
		r.Charge = &c.Booking.Charges[g.HeldBy]
		if r.Paused {
			r.Note = c.engine.Store.PauseNote(r.Charge.Budget)
		}
	}

	return c.engine.Errors.Refused(r)
}

// storeFailure returns the error of a caller whose call of the store returned err. If throttle is off
// it returns nil, and the caller goes on. If the caller's own context has ended, the caller gave up:
// its error has err only if err says more than that the context has ended.
func (c *Caller) storeFailure(ctx context.Context, err error) error {
	if ctx.Err() == nil && c.engine.IsOff() {
		c.pass(ctx)
		return nil
	}
	if ctx.Err() == nil {
		return c.engine.Errors.StoreFailed(err)
	}

	// The context has ended, and the call with it. The caller leaves as in GaveUp.
	c.Cancel()
	d := c.departure(ctx)
	isOfContext := errors.Is(d.Cause, err) || errors.Is(d.Err, err)
	if !isOfContext {
		d.Store = c.engine.Errors.StoreFailed(err)
	}

	return c.engine.Errors.GaveUp(d)
}

// Event returns an event about the caller, of kind k, with a Duration of d and the error err. If a
// budget holds the caller, or held it last, the event names that budget. Event is for programs that
// hold a lock, and tell their observer afterwards.
func (c *Caller) Event(k EventKind, d time.Duration, err error) Event {
	e := Event{Kind: k, Duration: d, Err: err, Charges: c.Booking.Charges}
	if i := c.Grant.HeldBy; i >= 0 {
		e.Charge, e.Paused = &c.Booking.Charges[i], c.Grant.Paused
		if e.Paused {
			e.Note = c.engine.Store.PauseNote(e.Charge.Budget)
		}
	}

	// The event of a waiting caller says how many callers the same policy holds and, if known, how far away the start is.
	if (k == EventWaiting || k == EventStillWaiting) && c.heldCallers != nil {
		e.Callers = int(c.heldCallers.Load())
	}
	if k == EventStillWaiting && c.state != inSlotLine {
		e.Left = max(0, c.startAt-Now())
	}

	return e
}

// report tells the observer, if there is one, of an event about the caller: see Event.
func (c *Caller) report(ctx context.Context, k EventKind, d time.Duration, err error) {
	if c.engine.Observe != nil {
		c.engine.Observe(ctx, c.Event(k, d, err))
	}
}

// reportHeld notes in Hold which policy holds the caller by the store's answer g. If no policy holds the
// caller, Hold keeps the last policy that did. For a silent caller, and without an observer, that is all.
// Otherwise reportHeld counts the caller among the callers that the policy holds, and tells the observer
// that the caller is held, unless told says that the observer knows, and which shadow policies would have
// held the caller. Unless told is true, g must be c.Grant, which the event describes.
func (c *Caller) reportHeld(ctx context.Context, g store.Grant, told bool) {
	// A caller is held if a budget has made its start later, or if it has no start.
	held := g.Wait > 0 && g.HeldBy >= 0 || !g.OK
	if held && g.HeldBy >= 0 {
		charge := &c.Booking.Charges[g.HeldBy]
		c.Hold = Hold{Policy: charge.Budget.Policy, Paused: g.Paused}
		if g.Paused {
			c.Hold.Note = c.engine.Store.PauseNote(charge.Budget)
		}
	}

	// The rest is for the observer. A silent variant leaves its wait to a sibling.
	if c.engine.Observe == nil || c.silent {
		return
	}

	// A caller without a start that no budget holds now still counts for the policy that held it last.
	if held && c.Hold.Policy != "" {
		c.countHeld(c.Hold.Policy)
	}
	if !told && held {
		c.report(ctx, EventWaiting, g.Wait, nil)
	}

	for i, over := range g.Over {
		if over > 0 {
			c.engine.Observe(ctx, Event{Kind: EventShadowed, Charge: &c.Booking.Charges[i], Duration: over})
		}
	}
}

// reportShadows tells the observer which shadow policies would have held the caller.
func (c *Caller) reportShadows(ctx context.Context) {
	c.reportHeld(ctx, store.Grant{OK: true, HeldBy: store.NotHeld, Over: c.Grant.Over}, true)
}

// ReportStart tells the observer which budgets are open again, and that the caller goes on after it was
// held for some time.
func (c *Caller) ReportStart(ctx context.Context, held time.Duration) {
	if c.engine.Observe != nil {
		c.ReportOpenings(ctx)
		c.uncountHeld()
		c.report(ctx, EventStarted, held, nil)
	}
}

// reportPass tells the observer of each budget that does not hold the caller because throttle is off.
func (c *Caller) reportPass(ctx context.Context) {
	if c.engine.Observe == nil {
		return
	}

	// If throttle has been turned on again meanwhile the note is empty.
	off, _ := c.engine.Switch.State()
	note := store.PauseNote{By: off.By, Reason: off.Reason}
	for i := range c.Booking.Charges {
		c.engine.Observe(ctx, Event{Kind: EventOff, Charge: &c.Booking.Charges[i], Note: note, Duration: c.Waited()})
	}
}

// countHeld counts the caller among the callers that a policy holds, and no longer among the
// callers of the policy that held it before.
func (c *Caller) countHeld(policy string) {
	value, ok := c.engine.heldByPolicy.Load(policy)
	if !ok {
		value, _ = c.engine.heldByPolicy.LoadOrStore(policy, new(atomic.Int64))
	}
	if count := value.(*atomic.Int64); count != c.heldCallers {
		c.uncountHeld()
		c.heldCallers = count
		count.Add(1)
	}
}

// uncountHeld notes that no policy holds the caller any more.
func (c *Caller) uncountHeld() {
	if c.heldCallers != nil {
		c.heldCallers.Add(-1)
		c.heldCallers = nil
	}
}

// noticeIn returns how long it is until the observer must be told that the caller still
// waits, or false if the observer is never told.
func (c *Caller) noticeIn() (time.Duration, bool) {
	if c.noticeAt == 0 {
		return 0, false
	}
	return max(0, c.noticeAt-Now()), true
}

// noticeLongWait tells the observer that the caller still waits. The next notice is due when
// the caller has waited for twice as long as now.
func (c *Caller) noticeLongWait(ctx context.Context) {
	waited := c.Waited()
	c.noticeAt = Now() + waited
	c.report(ctx, EventStillWaiting, waited, nil)
}

// askClosed bounds how long a caller that meets a closed budget asks the store for the budget's
// end, for the observer. A caller that waits for less than nearlyOpen does not ask.
const (
	askClosed  = time.Second
	nearlyOpen = 50 * time.Millisecond
)

// noticeClosed tells the observer that the budget at g.HeldBy is closed, if it is, unless the observer
// was told before, or the wait is shorter than nearlyOpen. It asks the store when the budget opens. The
// observer is told nothing if the store does not answer within askClosed, if the budget is open by then, or
// if maxClosings other budgets are closed.
func (c *Caller) noticeClosed(ctx context.Context, g *store.Grant) {
	e := c.engine
	isClosed := g.Paused && g.HeldBy >= 0 && g.Wait >= nearlyOpen
	if e.Observe == nil || !isClosed {
		return
	}

	charge, at := &c.Booking.Charges[g.HeldBy], Now()

	// Note the budget as closed for as long as the question may take, so that only the first caller
	// asks. If the question fails, a later caller asks again.
	if added := e.closings.add(charge.Budget, at, at+askClosed); !added {
		return
	}

	// The budget is closed for a start of any cost, so ask with a cost of 1.
	asking, cancel := context.WithTimeout(ctx, askClosed)
	defer cancel()
	unit := *charge
	unit.Cost = 1

	st, err := e.Store.Status(asking, unit)
	if err != nil || st.Paused <= 0 {
		return
	}

	e.closings.extend(charge.Budget, at, Now()+st.Paused)
	note := e.Store.PauseNote(charge.Budget)
	e.Observe(ctx, Event{Kind: EventClosed, Charge: charge, Duration: st.Paused, Paused: true, Note: note})
}

// ReportOpenings tells the observer which budgets of a start were closed before.
func (c *Caller) ReportOpenings(ctx context.Context) {
	for _, e := range c.Openings() {
		c.engine.Observe(ctx, e)
	}
}

// Openings returns an EventOpened for each of the caller's budgets that was known to be closed and that the
// caller's start shows to be open, and notes that these budgets are open. It returns nil if there is no observer.
func (c *Caller) Openings() (events []Event) {
	known := &c.engine.closings
	if c.engine.Observe == nil || known.count.Load() == 0 {
		return nil
	}

	for i := range c.Booking.Charges {
		charge := &c.Booking.Charges[i]
		if charge.Shadow {
			continue // a start does not show whether a shadow's budget is open
		}
		if d, ok := known.remove(charge.Budget, c.validatedAt, Now()); ok {
			events = append(events, Event{Kind: EventOpened, Charge: charge, Duration: d})
		}
	}

	return events
}

// NoteClosed notes that a budget is closed for d from now on. The program itself tells its observer.
func (e *Engine) NoteClosed(b store.Budget, d time.Duration) {
	at := Now()
	e.closings.extend(b, at, at+d)
}

// closings are the budgets that are closed, as far as this program knows. By them the observer
// gets one event when a budget closes, and one when it is open again.
type closings struct {
	count atomic.Int32 // of known, so that starts need no lock while it is 0
	mu    sync.Mutex
	known map[store.Budget]closing
}

// A closing is the time for which a budget is closed, as far as this program knows.
type closing struct {
	since   time.Duration // when this program first learned that the budget is closed
	learned time.Duration // when this program learned of the present end
	until   time.Duration // the present end
}

// maxClosings is how many closed budgets are known at a time. The observer is told nothing of further ones.
const maxClosings = 1024

// add notes, at the present time at, that a budget is closed until a later time. It returns false, and
// adds nothing, if the budget is known to be closed still, or if maxClosings other budgets are.
func (k *closings) add(b store.Budget, at, until time.Duration) bool {
	k.mu.Lock()
	defer k.mu.Unlock()

	old, found := k.known[b]
	if found && at < old.until {
		return false
	}

	// Closings that are over make room for a new one.
	if len(k.known) >= maxClosings && !found {
		k.forgetPast(at)
		if len(k.known) >= maxClosings {
			return false
		}
	}

	if k.known == nil {
		k.known = make(map[store.Budget]closing)
	}

	// Until a start shows that the budget is open, a second closing goes on with the first.
	since := at
	if found {
		since = old.since
	}

	k.known[b] = closing{since: since, learned: at, until: until}
	k.count.Store(int32(len(k.known)))

	return true
}

// extend notes, at the present time at, that a budget is closed at least until a later time, even if
// the budget is known to be closed. If maxClosings other budgets are closed it does nothing.
func (k *closings) extend(b store.Budget, at, until time.Duration) {
	if added := k.add(b, at, until); added {
		return
	}

	k.mu.Lock()
	defer k.mu.Unlock()
	if c, found := k.known[b]; found {
		c.learned, c.until = at, max(c.until, until)
		k.known[b] = c
	}
}

// remove notes, at the present time at, that a budget was open at openAt: it forgets the closing, and
// returns for how long the budget was known to be closed. It returns false, and changes nothing, if the
// budget was not known to be closed, or if this program learned of the present end of the closing after
// openAt: then the budget may have been closed after openAt.
func (k *closings) remove(b store.Budget, openAt, at time.Duration) (time.Duration, bool) {
	k.mu.Lock()
	defer k.mu.Unlock()

	c, found := k.known[b]
	if !found || openAt < c.learned {
		return 0, false
	}
	delete(k.known, b)
	k.count.Store(int32(len(k.known)))
	return at - c.since, true
}

// forgetPast drops the closings whose end has passed at the time at. Their openings are not told.
func (k *closings) forgetPast(at time.Duration) {
	for b, c := range k.known {
		if c.until < at {
			delete(k.known, b)
		}
	}
}
