// Package acquire is one caller's way to a start: a [Caller] books a start in a store,
// waits for the start, and uses the start in time or gives it back. The package knows
// budgets and stores. It knows neither HTTP nor policies: the program above sets the
// charges, and turns a caller's events and errors into its own.
//
// This file follows a caller from the first question to the end. The remaining files say for how
// long a caller waits and how old a start may be (waits.go), how a caller gets its slots when
// its start has come (slots.go), which events the program is told of (event.go), which state all
// callers share, and how a caller gets its charges and is used again (engine.go), and how a
// caller waits in several lines at once (race.go).
//
// # Who owns what
//
// A caller holds exactly the things that the table of states names. The store knows the
// caller's place by the Grant, so each call of the store either replaces the caller's
// holdings in one step, or follows a call that gave them back:
//
//   - Book names the caller's holdings as Booking.Instead, and the store gives them back
//     whatever its answer is. If Book fails, the caller holds nothing: the store gives the
//     holdings back as soon as it can.
//   - Slots that were acquired after the start are a second booking, and are given back
//     before the next Book.
//   - A caller that went on because throttle is off, and a caller of shadow policies alone
//     that went on while the store was away, hold nothing in the store, and so give nothing
//     back.
//
// How a way ends, and the caller's holdings at its end:
//
//	Acquire returns   the caller holds
//	nil               its start and its slots; they are the program's, to be used, cancelled or released
//	ErrReplaced       the same as before: Reprice keeps it or gives it back, by the new charges
//	ErrDetach         the same as before: the next attempt goes on with it, or Cancel gives it back
//	ErrUnbooked       its place in line
//	ErrLost           the same as before: Leave gives it back when the race is over
//	any other error   nothing: all was given back
package acquire

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	"github.com/fleetthrottle/throttle/store"
)

// A state names the holdings of a caller, which decide its next step:
//
//	state       the caller holds                   and does next
//	idle        nothing                            books a start
//	inLine      a place in the line for a start    waits for its turn, then books
//	inSlotLine  a place in the line for slots      waits for its turn, then books
//	booked      a start                            waits for the start, then
//	                                                 books a new start, if this one is too old or closed,
//	                                                 has the store confirm it, if there may be a penalty,
//	                                                 acquires its slots, if it has none yet,
//	                                                 or is granted
//	granted     a start to use now, and its slots  goes on
//
// The store's answer to a booking sets the state, in receive. A start becomes granted in Book, if
// the store allows it at once, or in Acquire. A caller that goes on whatever the store says is
// granted in goOnShadowed or goUncounted. Recheck and holdStart make a granted start booked again.
// forget, cancelSlots and Reprice set idle where the caller has used, lost or given back its
// holdings. The caller gives its holdings back when its context ends, when MaxWait is over, and when
// the store refuses it or fails.
type state uint8

const (
	idle state = iota
	inLine
	inSlotLine
	booked
	granted
)

// A Caller is one caller that acquires a start. The program calls Init, sets the exported
// fields, and calls Book or Acquire. One goroutine at a time may use a Caller. Fields that
// are moments are as of [Now].
type Caller struct {
	engine *Engine

	// The program sets these fields before the first booking, and the charges by SetCharges.
	Booking   store.Booking
	MaxWait   time.Duration  // for how long the caller may be held: 0 as long as its context allows, negative not at all
	Patience  time.Duration  // for how long the caller stands in line until it leaves and keeps its turn, or 0
	Lead      time.Duration  // how long before its start the caller wants to go on
	Priority  store.Priority // among the waiters
	ByDefault bool           // nobody set MaxWait: it is the default, or 0 because the context bounds the wait
	Ranked    bool           // the caller came back with its turn in line
	Variant   bool           // the caller is one of several, of which one goes on: see Race

	// The holdings of the caller.
	state     state
	uncounted bool        // granted without the store, which holds nothing for the caller: throttle is off, or the store was away
	returns   bool        // the caller had a start or a place in line before
	Grant     store.Grant // the store's last answer
	slots     *slotHold   // the slots, if they were acquired after the start was booked
	watch     store.Watch // over a start that the caller waits for, or nil

	// Summaries of the charges: see SetCharges.
	jitter     time.Duration // the smallest Jitter above ClockJitter, without Concurrency charges and shadow policies, or 0
	concurrent bool          // some charges are Concurrency: they need slots
	shadowed   bool          // all charges are of shadow policies: the caller is only counted
	horizon    time.Duration // the farthest horizon of the limits, at least store.MinHorizon
	shared     bool          // some charges have a Share
	repaced    bool          // the Pace of some charges may differ from the Pace of their limits: see adjustPace

	// How long the caller waits: see waits.go.
	remainingBy  Bound         // what bounds remaining
	remaining    time.Duration // how long the caller could still wait when it last asked; negative means forever
	arrivedAt    time.Duration // when the caller first asked for a start, or 0
	waitDeadline time.Duration // when MaxWait is over
	rate         askRate       // how often the store was asked lately

	// How old the start is: see waits.go.
	startAt     time.Duration // the booked start, or a little later: the grant may be used from then on. In line it is an estimate.
	validatedAt time.Duration // when the store last said that the start may be used
	validateRTT time.Duration // how long that answer took
	staleStreak int           // how many answers in a row were too old when they arrived
	invalidated chan struct{} // the watch sends when the start may be useless

	// The present call of the store: see storeContext.
	observed     observedContext // its context, if somebody must be told of an outage
	endable      *endableContext // its context below observed, if throttle can be turned off during the call, or nil
	stopCounting func()          // ends the call of a caller that is only counted. It is nil for other callers.

	// The observer's knowledge: see event.go.
	Hold           Hold          // the last time that a policy held the caller
	heldCallers    *atomic.Int64 // the engine's count of callers that the same policy holds, including this caller, or nil
	noticeAt       time.Duration // when the observer is told that the caller still waits, or 0 for never
	outageReported bool          // the observer has been told that the store is away
	waitsForStore  bool          // the caller counts in Engine.unanswered: the store has said during the present call that it is away
	silent         bool          // a sibling variant tells the observer how the caller waits

	// A variant: see race.go.
	trying bool  // the caller asks only for a start now
	line   *line // the line in which the caller stands, as later callers of the engine see it, or nil
}

// Init makes a zero Caller ready for use. All callers of one engine share its store.
func (c *Caller) Init(e *Engine) {
	c.engine = e
	c.Grant.HeldBy = store.NotHeld
}

// Idle reports whether the caller holds nothing.
func (c *Caller) Idle() bool { return c.state == idle }

// Stands reports whether the caller has a place in line.
func (c *Caller) Stands() bool { return c.state == inLine || c.state == inSlotLine }

// HasStart reports whether the caller has a start, however far away.
func (c *Caller) HasStart() bool { return c.state >= booked }

// Granted reports whether the caller may go on.
func (c *Caller) Granted() bool { return c.state == granted }

// Immediate reports whether the caller may go on by an answer that let it start at once and took no
// time: the answer came from a store in memory, or the caller goes on without the store.
func (c *Caller) Immediate() bool { return c.state == granted && c.Grant.Wait == 0 && c.Grant.Age == 0 }

// Concurrent reports whether the caller needs slots.
func (c *Caller) Concurrent() bool { return c.concurrent }

// Shadowed reports whether the caller is only counted, because all its charges are of shadow policies.
func (c *Caller) Shadowed() bool { return c.shadowed }

// Uncounted reports whether the caller goes on although the store holds nothing for it.
func (c *Caller) Uncounted() bool { return c.uncounted }

// StartAt returns when the caller's start is, as of [Now]. In line it is an estimate.
func (c *Caller) StartAt() time.Duration { return c.startAt }

var (
	// ErrReplaced says that the policies were replaced during the wait. No caller sees it.
	ErrReplaced = errors.New("throttle: the policies changed")

	// ErrDetach says that the start is too far away to wait for it with a
	// connection in hand. No caller sees it.
	ErrDetach = errors.New("throttle: the start is far away")

	// ErrUnbooked says that a caller of several variants has lost its start, and would have to wait in
	// line for a new start. No caller sees it.
	ErrUnbooked = errors.New("throttle: the start was lost")
)

// A Wait says how a caller waits. With the zero Wait a caller waits until its start.
type Wait struct {
	Early       time.Duration   // the wait ends this much before the start
	Replaced    <-chan struct{} // closed when the policies are replaced: the wait ends with ErrReplaced
	Detaches    bool            // a wait beyond DetachAt ends with ErrDetach
	DetachAt    time.Duration   // as of Now
	Race        *Race           // the wait ends when the caller has a start, however far away
	WhileBooked bool            // the wait ends with ErrUnbooked when the caller has no start any more
}

// A question is a method by which a caller asks the store.
type question func(*Caller, context.Context) error

// ask has a caller ask the store, in a race by Race.ask.
func (w *Wait) ask(ctx context.Context, c *Caller, q question) error {
	if w.Race != nil {
		return w.Race.ask(ctx, c, q)
	}
	return q(c, ctx)
}

// A wake is why a caller that waited goes on.
type wake uint8

const (
	timeCame   wake = iota // the start, the turn in line or the end of MaxWait has come, or the start will be too old to be used
	newsCame               // the start may have become useless, the store must confirm the start, or throttle is off
	noticeCame             // the observer must be told that the caller still waits
)

// Acquire books what the caller lacks, and waits until the start and the slots may be used. With
// w.Early it returns that much before a start that is to come, for which it acquires no slots. In a
// race it returns as soon as the caller has a start, and claims the race. The package comment lists
// the caller's holdings after each error.
//
// The loop does not spin, whatever a store answers. Each pass asks the store, or tells the observer
// of a long wait. waitToAsk bounds how often a caller asks. The notices of a long wait come ever more
// rarely. A caller whose MaxWait is over keeps no place in line (see takeAnswer).
func (c *Caller) Acquire(ctx context.Context, w Wait) error {
	if c.state == idle {
		if err := w.ask(ctx, c, (*Caller).Book); err != nil {
			return err
		}
	}

	// In a race the loop also ends as soon as the caller has a start, however far away.
	for c.state != granted && (w.Race == nil || c.state != booked) {
		if w.WhileBooked && c.state != booked {
			return ErrUnbooked
		}

		// Sleep until the start, the turn in line, or news.
		why, err := c.wait(ctx, w)
		if err != nil {
			return err
		}

		if why == noticeCame {
			c.noticeLongWait(ctx)
			continue
		}

		// Ask only for what the caller lacks. With nothing left to ask, the caller may go on.
		next := c.question(why == newsCame)
		if next == nil {
			c.state = granted
			break
		}

		if err := c.waitToAsk(ctx); err != nil {
			return err
		}
		if err := w.ask(ctx, c, next); err != nil {
			return err
		}
	}

	// A start from before the race is claimed here. For a start that Race.ask has booked and claimed this changes nothing.
	if w.Race != nil {
		return w.Race.Claim(c)
	}

	return nil
}

// question returns how a caller that wakes must ask the store, or nil if the caller
// may go on. news says that the caller woke by newsCame.
func (c *Caller) question(news bool) question {
	switch {
	// The caller stands in line, or throttle is off and Book lets the caller go on.
	case c.state != booked || c.engine.IsOff():
		return (*Caller).Book
	case c.stale() || c.unusable():
		return (*Caller).replaceStale

	// The start may have become useless.
	case news || c.needsRevalidation():
		return (*Caller).revalidate

	// A caller that goes on before its start takes no slots.
	case c.holdsSlots() || Now() < c.startAt:
		return nil
	}
	return (*Caller).acquireSlots
}

// Book asks the store for a start within the horizon, or a place in line, in place of the
// caller's holdings. First it waits, for at most ReportTime, for reports that lower one of the
// caller's budgets. While throttle is off, the caller goes on without the store. A caller that is
// only counted goes on whatever the store answers, and also if it does not answer. After an error the
// caller holds nothing.
func (c *Caller) Book(ctx context.Context) error {
	if ctx.Err() != nil {
		return c.GaveUp(ctx)
	}

	asked := Now()
	if c.arrivedAt == 0 {
		c.BeginWait(asked)
	}
	if c.engine.IsOff() {
		c.pass(ctx)
		return nil
	}

	// A report that lowers one of the caller's budgets comes before the booking, or the booking
	// would spend units that the upstream no longer has.
	if c.engine.reports.pressing.Load() > 0 {
		c.awaitReports(ctx)
		asked = Now()
	}

	// The store refuses a caller whose start would come after this wait.
	c.Booking.MaxWait = c.usefulWait(c.remainingWait(ctx, asked))

	// After a failure one shadow caller in each breakerPause tries the store. The rest go on uncounted.
	if c.shadowed {
		if mayAsk := c.engine.breaker.mayAsk(asked); !mayAsk {
			c.Cancel()
			c.goUncounted()
			return nil
		}
	}

	// The usual caller needs no context of its own, which would cost an allocation.
	if !c.needsStoreContext(c.Booking.MaxWait) {
		return c.bookWithin(ctx, ctx, asked)
	}

	storeCtx, stop := c.storeContext(ctx, c.Booking.MaxWait)
	defer stop()

	// The time in which an answer would be of use may be over before the call. Then give back the holdings, as after a refusal.
	if storeCtx.Err() != nil {
		c.Cancel()
		return c.storeFailure(ctx, context.Cause(storeCtx))
	}

	return c.bookWithin(ctx, storeCtx, asked)
}

// bookWithin is the part of Book that calls the store, with the context storeCtx, and acts on the
// answer. ctx is the caller's own context. asked is the time before the call.
func (c *Caller) bookWithin(ctx, storeCtx context.Context, asked time.Duration) error {
	b, e := &c.Booking, c.engine
	stoodInLine := c.state == inLine
	spread := c.nextSpread()

	// The booking replaces the caller's holdings. A caller that asks for the first time has none.
	if c.returns {
		c.replacePlace(spread)
	}

	// replacePlace compares the new Spread with the old one, and adjustPace needs the new one.
	b.Spread = spread
	c.adjustPace()
	b.Horizon, b.Priority = c.Horizon(), c.Priority

	g, err := e.Store.Book(storeCtx, b)
	c.endStoreCall()

	// After an error the store gives the holdings back, or has lost them, so the caller must not give them back as well.
	if err != nil {
		c.forget()
		if c.shadowed && ctx.Err() == nil {
			c.goOnShadowed(ctx, err)
			return nil
		}

		return c.storeFailure(ctx, err)
	}

	// These times are right for a start now in memory. takeAnswer corrects them for later starts and slower answers.
	c.receive(g)
	c.startAt, c.validatedAt, c.validateRTT = asked, asked, g.Age
	c.returns, c.outageReported = true, false
	e.noteRecent(b.Charges, &c.Grant, asked)

	if c.shadowed {
		c.goOnShadowed(ctx, nil)
		return nil
	}

	// The usual case ends here, if no observer must be told: the store is in memory, and has room.
	if g.OK && g.Wait == 0 && g.Age == 0 {
		c.state = granted
		if e.Observe == nil {
			return nil
		}
	}

	if err := c.takeAnswer(ctx, stoodInLine); err != nil {
		return err
	}

	// A start for now from a slower store may be used if it is fresh. With an observer, whose calls take time, Acquire checks that.
	isFresh := g.OK && g.Wait == 0 && g.Age <= validFor && !c.unusable()
	if isFresh && e.Observe == nil {
		c.state = granted
	}

	return nil
}

// receive keeps the store's answer to a booking, and sets the state to the holdings that the answer gives the caller.
func (c *Caller) receive(g store.Grant) {
	c.Grant = g
	switch {
	case g.OK:
		c.state = booked
	case g.Ready == nil:
		c.state = idle
	case g.Handle == store.Handle{}:
		c.state = inLine
	default:
		c.state = inSlotLine
	}
}

// takeAnswer acts on c.Grant, the store's answer to a booking: it adds the answer to the estimators,
// sets startAt and validatedAt unless both are right already, and tells the observer. If the caller is
// refused, or if its place or start comes too late, takeAnswer gives back the caller's holdings and
// returns its error. stoodInLine says that the caller stood in the line for a start before.
func (c *Caller) takeAnswer(ctx context.Context, stoodInLine bool) error {
	g, e := c.Grant, c.engine
	answered := Now()

	// The age of a start is not only the time that the answer took, so starts have an estimator of their own: see Engine.
	if g.OK {
		e.grantAge.add(g.Age, answered)
	} else {
		e.rtt.add(g.Age, answered)
	}

	// Notice the closing before the refusal, so that the observer is told of the closing first.
	c.noticeClosed(ctx, &g)

	// A place in line is of no use to a caller that can wait no longer.
	if c.state == inLine && c.remaining == 0 || c.outOfPatience(g, answered) {
		c.Cancel()
	}
	if c.state == idle {
		return c.refusal(g)
	}

	// The store decided about half an Age ago. The Age that a store with BooksWaiters tells may be less
	// than a round trip, so half of what a confirmation takes counts if that is more: see confirmTakes.
	if g.Wait > 0 || g.Age > 0 {
		c.startAt, c.validatedAt = answered+g.Wait, answered-max(g.Age, c.confirmTakes())/2
		c.countStale()
		if err := c.exceedsMaxWait(ctx, g); err != nil {
			return err
		}
	}

	// A caller that had to stand in line for its start was reported when it got in line.
	c.reportHeld(ctx, g, stoodInLine && g.OK)
	return nil
}

// goOnShadowed has a caller of shadow policies alone go on, whatever the store has answered to its
// booking: no budget of a shadow policy holds anybody. failed is the error of the call, or nil. The
// caller goes on uncounted unless the store has booked a start.
func (c *Caller) goOnShadowed(ctx context.Context, failed error) {
	c.engine.breaker.note(failed == nil)

	// The store has counted the caller, which goes on whatever the answer's wait is.
	if failed == nil && c.Grant.OK {
		c.engine.rtt.add(c.Grant.Age, Now())
		c.reportShadows(ctx)
		c.state = granted
		return
	}

	if failed == nil {
		c.Cancel() // a store that stands in for another may have given a place in line
	} else if !c.outageReported {
		c.outageReported = true
		c.report(ctx, EventStoreFailed, c.Waited(), c.engine.Errors.StoreFailed(failed))
	}

	c.goUncounted()
}

// pass gives back the caller's holdings and has the caller go on, because throttle is off. The
// switch counts the caller, and the observer is told.
func (c *Caller) pass(ctx context.Context) {
	c.Cancel()
	c.goUncounted()
	c.engine.Switch.Pass()
	c.reportPass(ctx)
}

// goUncounted has the caller go on though the store holds nothing for it. The caller keeps its Turn,
// because it books again if the policies are replaced.
func (c *Caller) goUncounted() {
	at := Now()
	c.startAt, c.validatedAt = at, at
	c.Grant = store.Grant{OK: true, HeldBy: store.NotHeld, Turn: c.Grant.Turn}
	c.state, c.uncounted = granted, true
}

// switchedOff returns a channel that is closed when throttle is turned off, or nil if there is no switch.
func (c *Caller) switchedOff() <-chan struct{} {
	if c.engine.Switch == nil {
		return nil
	}
	return c.engine.Switch.WhileOn().Done()
}

// wait waits until w.Early before the booked start, or for the caller's turn in line. It returns
// earlier when there is news, a notice is due, MaxWait is over, or throttle is turned off. It fails
// with ErrReplaced, with ErrDetach, or with the error of a caller that gave up or was refused, which
// holds nothing any more.
func (c *Caller) wait(ctx context.Context, w Wait) (wake, error) {
	if c.state == booked {
		return c.waitForStart(ctx, w)
	}
	return c.waitInLine(ctx, w)
}

// waitForStart is wait for a caller with a start. It has the store watch over a start that is
// further away than validFor.
func (c *Caller) waitForStart(ctx context.Context, w Wait) (wake, error) {
	// A start for now needs no wait. A start that will be too old is replaced at once, and not after the wait.
	if c.Grant.Wait == 0 || c.unusable() {
		return timeCame, nil
	}

	sleep := c.startAt - w.Early - Now()
	if sleep <= 0 {
		return timeCame, nil
	}
	if w.Detaches && c.startAt > w.DetachAt {
		return 0, ErrDetach
	}

	why := timeCame
	if sleep > validFor {
		c.startWatch()

		// The store is asked to confirm the start when confirmLead is left. If hardly more than that is left already, the
		// store's last word is enough if it is fresh, or if it still counts at the start. A store in memory, for which
		// confirmLead is 0, is asked when the start has come.
		confirmLead := c.revalidateLead()
		isFresh := Now()-c.validatedAt <= validFor
		mustConfirm := sleep > validFor+confirmLead || !isFresh && c.needsRevalidationAt(c.startAt)
		if confirmLead > 0 && mustConfirm {
			sleep, why = sleep-confirmLead, newsCame
		}

		// Less than confirmLead is left, so the store is asked at once.
		if sleep <= 0 {
			return why, nil
		}
	} else if c.Grant.Age == 0 {
		why = newsCame // a store in memory confirms even a near start, because that takes no round trip
	}

	// The notice of a long wait may be due before the start.
	switch noticeDelay, ok := c.noticeIn(); {
	case ok && noticeDelay == 0:
		return noticeCame, nil
	case ok && noticeDelay < sleep:
		sleep, why = noticeDelay, noticeCame
	}

	timer := time.NewTimer(sleep)
	defer timer.Stop()

	select {
	case <-timer.C:
		return why, nil
	case <-c.invalidated:
		return newsCame, nil
	case <-c.switchedOff():
		return newsCame, nil
	case <-w.Replaced:
		return 0, ErrReplaced
	case <-ctx.Done():
		return 0, c.GaveUp(ctx)
	}
}

// waitInLine is wait for a caller in line, whose turn the store announces on Grant.Ready. In the
// line for a start startAt is an estimate. In the line for slots startAt says nothing.
func (c *Caller) waitInLine(ctx context.Context, w Wait) (wake, error) {
	if w.Detaches && c.state == inLine && c.startAt > w.DetachAt {
		return 0, ErrDetach
	}

	// Each reason to leave the line has a timer of its own. A nil channel never fires.
	var waitOver, detach, noticeDue <-chan time.Time
	if c.MaxWait > 0 || c.Patience > 0 {
		timer := time.NewTimer(c.lineEnd() - Now())
		defer timer.Stop()
		waitOver = timer.C
	}

	if w.Detaches {
		timer := time.NewTimer(w.DetachAt - Now())
		defer timer.Stop()
		detach = timer.C
	}

	switch noticeDelay, ok := c.noticeIn(); {
	case ok && noticeDelay == 0:
		return noticeCame, nil
	case ok:
		timer := time.NewTimer(noticeDelay)
		defer timer.Stop()
		noticeDue = timer.C
	}

	select {
	case <-c.Grant.Ready:
		return timeCame, nil
	case <-c.switchedOff():
		return newsCame, nil
	case <-noticeDue:
		return noticeCame, nil
	case <-waitOver:
		return c.endLine()
	case <-w.Replaced:
		return 0, ErrReplaced
	case <-detach:
		return 0, ErrDetach
	case <-ctx.Done():
		return 0, c.GaveUp(ctx)
	}
}

// endLine ends the wait of a caller that has stood in line until MaxWait or its patience was over. It returns the
// error of the refusal, or timeCame if the caller must ask the store once more.
func (c *Caller) endLine() (wake, error) {
	switch {
	// A caller with patience leaves and keeps its Turn. The refusal says how much longer the wait would have been. In the
	// line for slots nobody knows that, so Wait is 0.
	case c.Patience > 0:
		g := c.Grant
		g.Wait = 0
		if c.state == inLine {
			g.Wait = max(time.Millisecond, c.startAt-Now())
		}

		c.Cancel()
		return 0, c.refusal(g)

	// The caller books once more: the store has a start at once, or says how long the wait would be.
	case c.state == inLine:
		return timeCame, nil
	}

	// Nobody knows when a slot is free, so a caller in the line for slots is refused with the last answer. The
	// error has the whole MaxWait.
	c.Cancel()
	c.remaining, c.remainingBy = c.MaxWait, BoundMaxWait
	return 0, c.refusal(c.Grant)
}

// Recheck puts a granted start back into the state booked, so that Acquire checks the start
// once more: time has passed since the grant. The start of a caller that is only counted, or that
// goes on without the store, stays granted.
func (c *Caller) Recheck() {
	if c.state == granted && !c.shadowed && !c.uncounted {
		c.state = booked
	}
}

// replaceStale reports that the start is too old, and books a new start in its place.
func (c *Caller) replaceStale(ctx context.Context) error {
	c.report(ctx, EventStale, max(0, Now()-c.startAt), nil)
	return c.Book(ctx)
}

// startWatch has the store watch over the start, unless the store does so already.
func (c *Caller) startWatch() {
	if c.watch != nil {
		return
	}
	if c.invalidated == nil {
		c.invalidated = make(chan struct{}, 1)
	}
	c.watch = c.engine.Store.Watch(&c.Booking, c.Grant, c.invalidated)
}

// revalidate asks the store whether the start may still be used, and notes when the answer came and how
// long it took. It books a new start if the start may not be used, or if the answer came more than
// DefaultJitter after both the question and the start. If the store does not answer, revalidate gives
// back the caller's holdings and returns the caller's error.
func (c *Caller) revalidate(ctx context.Context) error {
	asked := Now()
	maxWait := c.remainingWait(ctx, asked)

	// Confirm is a method of the watch, so a start without a watch gets one.
	c.startWatch()

	storeCtx, stop := c.storeContext(ctx, maxWait)
	defer stop()
	ok, err := c.watch.Confirm(storeCtx, maxWait)
	c.endStoreCall()
	c.validatedAt = Now()
	c.validateRTT = c.validatedAt - asked
	c.engine.confirmTook.add(c.validateRTT, c.validatedAt)

	switch {
	case err != nil:
		c.Cancel()
		return c.storeFailure(ctx, err)

	// Callers that waited for the same slow answer would all start at once, so each books a new start. A
	// caller without Jitter does so, too, although its start is never too old for other reasons: see stale.
	case !ok, c.validatedAt-max(asked, c.startAt) > DefaultJitter:
		return c.Book(ctx)
	}

	c.outageReported = false
	return nil
}

// Cancel gives back the start, the place in line and the slots, if any are held.
func (c *Caller) Cancel() {
	c.StopWatch()
	c.cancelSlots()
	if c.state != idle && !c.uncounted {
		c.engine.Store.Cancel(&c.Booking, c.Grant)
	}
	c.forget()
}

// Spend notes that the start was used, and releases the slots: the caller holds nothing any more.
func (c *Caller) Spend() {
	c.ReleaseSlots()
	c.forget()
}

// forget notes that the caller holds nothing any more: all was used, given back or lost.
func (c *Caller) forget() { c.state, c.slots, c.uncounted = idle, nil, false }

// replacePlace sets the booking's Instead, Turn and Returns, so that the store gives back
// the caller's holdings when it books the new start, which has the given spread. Holdings
// that the store cannot replace are given back here.
func (c *Caller) replacePlace(spread time.Duration) {
	b := &c.Booking
	c.StopWatch() // the watch is over the old start

	// The store can replace neither slots nor a start of a different spread.
	c.cancelSlots()
	if c.state == booked && spread != b.Spread {
		c.Cancel()
	}

	b.Instead, b.Turn, b.Returns = store.Handle{}, c.Grant.Turn, true
	if c.state != idle {
		b.Instead = c.Grant.Handle
	}
}

// StopWatch ends the watch, and uncounts the caller among the held callers, because the
// start is used or given back.
func (c *Caller) StopWatch() {
	if c.heldCallers != nil || c.watch != nil {
		c.endWait()
	}
}

// endWait does the work of StopWatch. It is a function of its own so that the compiler inlines StopWatch.
func (c *Caller) endWait() {
	c.uncountHeld()
	if c.watch != nil {
		c.watch.Stop()
		c.watch = nil
	}
}
