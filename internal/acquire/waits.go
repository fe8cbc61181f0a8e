package acquire

import (
	"context"
	"errors"
	"math"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/fleetthrottle/throttle/internal/outage"
	"github.com/fleetthrottle/throttle/store"
)

// For how long a caller waits: for its start, as MaxWait, the deadline of its context and its Patience say, and for the
// store.

// NoWaitLeft is the Booking.MaxWait of a caller whose MaxWait is over. It is not 0, which is the
// MaxWait of a caller that never waits: a store may take longer to answer such a caller.
const NoWaitLeft = time.Nanosecond

// StoreGrace is for how long after the end of MaxWait the store may still be asked: a
// caller whose start became useless at the last moment may get a new start right behind it.
const StoreGrace = 100 * time.Millisecond

// ErrWaitOver and ErrDefaultWaitOver say that MaxWait and StoreGrace are over.
var (
	ErrWaitOver        = errors.New("throttle: MaxWait is over")
	ErrDefaultWaitOver = errors.New("throttle: waited the default of one minute; set MaxWait")
)

// waitOver returns ErrWaitOver, or ErrDefaultWaitOver if nobody set the caller's MaxWait.
func (c *Caller) waitOver() error {
	if c.ByDefault {
		return ErrDefaultWaitOver
	}
	return ErrWaitOver
}

// A Bound is what bounds for how long a caller can wait.
type Bound uint8

const (
	BoundNone        Bound = iota // nothing does
	BoundMaxWait                  // MaxWait does
	BoundMaxWaitOver              // MaxWait did, and is over
	BoundDefault                  // MaxWait does, which nobody set
	BoundDefaultOver              // MaxWait did, which nobody set, and is over
	BoundDeadline                 // the deadline of the caller's context does
)

// BeginWait sets when the caller's wait began, and by that when its MaxWait is over and when the
// observer must be told of a long wait.
func (c *Caller) BeginWait(at time.Duration) {
	c.arrivedAt, c.waitDeadline = at, at+min(max(0, c.MaxWait), store.MaxAhead)
	if c.engine.LongWait > 0 {
		c.noticeAt = at + c.engine.LongWait
	}
}

// ExtendDeadline lets the caller ask the store once more although MaxWait may be over. Time spent dialling or
// sending again does not count against MaxWait.
func (c *Caller) ExtendDeadline() { c.waitDeadline = max(c.waitDeadline, Now()) }

// Waited returns how long the caller has been held until now.
func (c *Caller) Waited() time.Duration {
	if c.arrivedAt == 0 {
		return 0
	}
	return Now() - c.arrivedAt
}

// RemainingWait returns how long a caller that asks the store now can still wait, as a Booking.MaxWait.
func (c *Caller) RemainingWait(ctx context.Context) time.Duration { return c.remainingWait(ctx, Now()) }

// remainingWait returns how long a caller that asks the store at asked can still wait, as a
// Booking.MaxWait: AnyWait if nothing bounds the wait, and NoWaitLeft if a caller with a positive
// MaxWait has no time left. For a caller with patience see remainingPatience. remainingWait notes the
// time, with 0 for NoWaitLeft, and what bounds it in remaining and remainingBy, for the error if the
// store refuses.
func (c *Caller) remainingWait(ctx context.Context, asked time.Duration) time.Duration {
	if c.Patience > 0 {
		return c.remainingPatience(asked)
	}

	// The sooner of MaxWait and the deadline bounds the wait. AnyWait is negative, and means no bound.
	left, by := store.AnyWait, BoundNone
	if c.MaxWait != 0 {
		left, by = max(0, c.waitDeadline-asked), BoundMaxWait
	}

	if deadline, bounded := ctx.Deadline(); bounded {
		if d := max(0, time.Until(deadline)); left < 0 || d < left {
			left, by = d, BoundDeadline
		}
	}

	// A negative MaxWait leaves 0 from the start, so only a positive MaxWait can be over.
	if left == 0 && by == BoundMaxWait && c.MaxWait > 0 {
		by = BoundMaxWaitOver
	}

	c.remaining, c.remainingBy = left, by

	// A Booking.MaxWait of 0 is for a caller that never waits, which a store may take longer to answer.
	if left == 0 && c.MaxWait > 0 {
		return NoWaitLeft
	}

	return left
}

// usefulWait returns the Booking.MaxWait of a caller that can wait for left:
//
//   - 0 if the caller asks only for a start now,
//   - AnyWait for a variant that can wait for longer than the horizon: the store gives it a place in
//     line even if it guesses a longer wait. The guess counts callers that will start elsewhere, and a
//     closed budget may be opened early,
//   - left for every other caller.
func (c *Caller) usefulWait(left time.Duration) time.Duration {
	switch {
	case c.trying:
		return 0
	case c.Variant && left > c.Horizon():
		return store.AnyWait
	}
	return left
}

// exceedsMaxWait gives back a start that comes too late, and returns the caller's error: a start that comes
// more than half of StoreGrace after the end of MaxWait, or that a budget has held back beyond the deadline
// of ctx. It notes in remaining and remainingBy what bounded the wait. It returns nil if the start is in time,
// or if the caller has no start. A start can be too late although the booking had a MaxWait, because the
// store's answer, or the line, took long. The second half of StoreGrace is left for the store to confirm the
// start.
func (c *Caller) exceedsMaxWait(ctx context.Context, g store.Grant) error {
	// Without a positive MaxWait only a start that a budget has held back can be too late.
	if !g.OK || g.HeldBy < 0 && c.MaxWait <= 0 {
		return nil
	}

	// A caller whose deadline has passed already gives up by itself, so only a deadline to come counts.
	deadline, bounded := ctx.Deadline()
	switch left := time.Until(deadline); {
	case c.MaxWait > 0 && c.startAt > c.waitDeadline+StoreGrace/2:
		c.remaining, c.remainingBy = c.waitDeadline-Now(), BoundMaxWait
		if c.remaining <= 0 {
			c.remainingBy = BoundMaxWaitOver
		}
	case bounded && g.HeldBy >= 0 && left > 0 && g.Wait > left:
		c.remaining, c.remainingBy = left, BoundDeadline
	default:
		return nil
	}

	c.Cancel()

	// If no budget has held the caller, the store's answer took too long.
	if g.HeldBy < 0 {
		return c.storeFailure(ctx, c.waitOver())
	}

	return c.refusal(g)
}

// minPatience is the least time for which the store is asked for a caller with patience.
const minPatience = time.Second

// lineMargin is for how much longer than the horizon a ranked caller stands in line. All starts within the horizon are
// booked, so the turn of a caller that stood in line for less would never come, and others would go before it.
const lineMargin = 150 * time.Millisecond

// patienceEnd is when a caller with patience leaves its line. A ranked caller whose patience is short stays for its
// horizon, or for MinHorizon if that is longer, and for lineMargin: see lineMargin.
func (c *Caller) patienceEnd() time.Duration {
	patience := c.Patience
	if c.Ranked {
		patience = max(patience, max(c.Horizon(), store.MinHorizon)+lineMargin)
	}

	return c.arrivedAt + patience
}

// lineEnd is when a caller that has patience, or a MaxWait, leaves its line.
func (c *Caller) lineEnd() time.Duration {
	if c.Patience > 0 {
		return c.patienceEnd()
	}
	return c.waitDeadline
}

// remainingPatience is remainingWait for a caller with patience. A caller without a rank must get in
// line to get a rank, however long it would wait. A ranked caller gets in line only if its start comes
// within the horizon or before patienceEnd.
func (c *Caller) remainingPatience(asked time.Duration) time.Duration {
	c.remaining, c.remainingBy = store.AnyWait, BoundNone
	if c.Ranked {
		c.remaining = max(c.Horizon(), c.patienceEnd()-asked)
	}
	return c.remaining
}

// outOfPatience reports whether a caller with patience stands in line for nothing: its start is further away than
// the horizon, and comes after the end of its patience. g is the store's answer, which came at answered.
func (c *Caller) outOfPatience(g store.Grant, answered time.Duration) bool {
	return c.Patience > 0 && c.state == inLine && answered+g.Wait > max(c.patienceEnd(), answered+c.Horizon())
}

// endsByGrace reports whether the end of StoreGrace must end a call of the store, because maxWait, the
// Booking.MaxWait of the call, does not say when the caller's MaxWait is over: it is 0, NoWaitLeft or AnyWait.
func (c *Caller) endsByGrace(maxWait time.Duration) bool {
	return c.MaxWait > 0 && maxWait <= NoWaitLeft
}

// needsStoreContext reports whether storeContext would return a context that differs from
// the caller's.
func (c *Caller) needsStoreContext(maxWait time.Duration) bool {
	return c.engine.Observe != nil || c.shadowed || c.endsByGrace(maxWait) || c.Patience > 0 || c.endsWhenOff()
}

// endsWhenOff reports whether a call of a store that is away ends when throttle is turned off. A store in memory is
// never away.
func (c *Caller) endsWhenOff() bool { return c.engine.Switch != nil && c.engine.Traits.InMemory == nil }

// countTimeout is for how long the store may take to answer a caller that is only counted: no answer of the store
// holds such a caller.
const countTimeout = 500 * time.Millisecond

// errUncounted is the cause of a call that took longer than countTimeout.
var errUncounted = errors.New("throttle: the store did not answer within 500ms, and the request goes on without being counted")

// storeContext returns the context of a call of the store by a caller that can wait for maxWait,
// which is what remainingWait or usefulWait returned. If there is an observer, the caller is only
// counted, or endsWhenOff is true, the context has an [outage.Observer] that the store tells of an
// outage. The context ends when the answer would be of no use to the caller. After the call of the
// store endStoreCall and the CancelFunc must be called.
func (c *Caller) storeContext(ctx context.Context, maxWait time.Duration) (context.Context, context.CancelFunc) {
	// When an answer is of no use depends on why the caller waits. In all other cases maxWait and ctx say it to the store.
	storeCtx, stop := ctx, func() {}
	switch {
	case c.shadowed:
		storeCtx, stop = context.WithTimeoutCause(ctx, countTimeout, errUncounted)
		c.stopCounting = stop
	case c.Patience > 0:
		storeCtx, stop = context.WithTimeoutCause(ctx, max(c.patienceEnd()-Now(), minPatience), ErrWaitOver)
	case c.endsByGrace(maxWait):
		storeCtx, stop = context.WithTimeoutCause(ctx, c.waitDeadline+StoreGrace-Now(), c.waitOver())
	}

	// When throttle is turned off, a call of a store that is away ends.
	if c.endsWhenOff() {
		c.endable = &endableContext{Context: storeCtx, caller: c}
		storeCtx = c.endable
	}

	// The caller's next call overwrites c.observed, so no other context here is derived from it: the timer of a derived
	// context may fire at that moment, and would read its parent.
	if c.engine.Observe != nil || c.shadowed {
		c.observed = observedContext{storeCtx, ctx, c}
		storeCtx = &c.observed
	}

	return storeCtx, stop
}

// An observedContext is the context of a call of the store, with the observer of outages that
// the store finds there. It is a field of its caller, and so costs no allocation.
type observedContext struct {
	context.Context
	caller   context.Context // the caller's own context, for events
	observer outage.Observer
}

// Value implements [context.Context].
func (o *observedContext) Value(key any) any {
	if key == (outage.Key{}) {
		return o.observer
	}
	return o.Context.Value(key)
}

// An endableContext is the context of a call of the store. Once the store has said that it is away, the context ends
// when throttle is turned off. Until then it is the embedded context, so that a usual call costs no tie to the switch.
// Stores ask for Done again when they have said that they are away.
type endableContext struct {
	context.Context
	caller *Caller
	ended  atomic.Pointer[endedContext] // nil until the store is away
}

// An endedContext ends when throttle is turned off.
type endedContext struct {
	context.Context
	end    context.CancelCauseFunc
	detach func() bool // ends the tie to the switch
}

// errOff is the cause of a call of the store that ended because throttle was turned off.
var errOff = errors.New("throttle: turned off")

// endWhenOff has the context end when the switch is turned off.
func (e *endableContext) endWhenOff(s *store.Switch) {
	if e.ended.Load() != nil {
		return
	}

	ctx, end := context.WithCancelCause(e.Context)
	e.ended.Store(&endedContext{ctx, end, context.AfterFunc(s.WhileOn(), func() { end(errOff) })})
}

// release frees what endWhenOff has made.
func (e *endableContext) release() {
	if o := e.ended.Load(); o != nil {
		o.detach()
		o.end(nil)
	}
}

// current returns the context that ends with the switch or, until the store is away, the embedded context.
func (e *endableContext) current() context.Context {
	if o := e.ended.Load(); o != nil {
		return o
	}
	return e.Context
}

// Done implements [context.Context].
func (e *endableContext) Done() <-chan struct{} { return e.current().Done() }

// Err implements [context.Context].
func (e *endableContext) Err() error { return e.current().Err() }

// Value implements [context.Context].
func (e *endableContext) Value(key any) any {
	if key == (outage.Key{}) {
		return outage.Observer(e.caller)
	}
	return e.current().Value(key)
}

// StoreAway implements [outage.Observer]. It counts the caller as unanswered until the call
// of the store returns, and makes one event of each outage. It ends the call of a caller that is only
// counted. From now on the call of any other caller ends when throttle is turned off, if there is a
// switch.
func (c *Caller) StoreAway(err error) {
	if c.endable != nil {
		c.endable.endWhenOff(c.engine.Switch)
	}

	// The store may tell of the outage several times, and each caller counts once.
	if !c.waitsForStore {
		c.waitsForStore = true
		c.engine.unanswered.Add(1)
	}
	if !c.outageReported {
		c.outageReported = true
		c.report(c.observed.caller, EventStoreFailed, c.Waited(), c.engine.Errors.StoreFailed(err))
	}

	// A caller that is only counted does not wait for the store to come back.
	if c.stopCounting != nil {
		c.stopCounting()
	}
}

// endStoreCall notes that a call of the store has returned, with an answer or an error: the caller
// does not wait for the store any more.
func (c *Caller) endStoreCall() {
	c.stopCounting = nil
	if c.endable != nil {
		c.endable.release()
		c.endable = nil
	}
	if c.waitsForStore {
		c.waitsForStore = false
		c.engine.unanswered.Add(-1)
	}
}

// A caller asks its store at most maxAsks times in askPeriod. A store that keeps its
// contract hardly ever has a caller ask more often, see [store.Grant.Ready]. A store that breaks
// the contract could have a caller ask without end.
const (
	maxAsks   = 8
	askPeriod = 8 * time.Millisecond
)

// An askRate counts how often a caller asked in the present askPeriod. Its zero value is of a
// caller that has not asked yet.
type askRate struct {
	since time.Duration // when the period began
	asks  int           // in the period
}

// next counts a question that the caller wants to ask at the time at, and returns how long the
// caller must wait from then on before it asks.
func (r *askRate) next(at time.Duration) (delay time.Duration) {
	if r.asks == 0 || at-r.since >= askPeriod {
		*r = askRate{since: at}
	}

	r.asks++
	if r.asks <= maxAsks {
		return 0
	}

	// The period is used up: this question is the first of the next period.
	delay = r.since + askPeriod - at
	*r = askRate{since: r.since + askPeriod, asks: 1}
	return delay
}

// waitToAsk counts the next question to the store, and waits until the caller's askRate allows it.
// If ctx ends first, waitToAsk gives back the caller's holdings and returns the caller's error.
func (c *Caller) waitToAsk(ctx context.Context) error {
	delay := c.rate.next(Now())
	if delay == 0 {
		return nil
	}

	timer := time.NewTimer(delay)
	defer timer.Stop()

	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return c.GaveUp(ctx)
	}
}

// How old a start may be when it is used, and how far ahead a start is booked.

// DefaultJitter is how long after its grant a start of a policy that does not say otherwise may arrive.
const DefaultJitter = 35 * time.Millisecond

// validFor is how long an answer of the store about a start counts as current. A
// penalty may take effect that much later than it was stored.
const validFor = 5 * time.Millisecond

// usableFor is how long after its start a grant may be used: 10 of the default 35 ms. The
// rest of Jitter is left for the way to the upstream, so that a connection that came late
// does not use it up.
func (c *Caller) usableFor() time.Duration { return c.jitter * 2 / 7 }

// age returns how long ago, at most, the start was. The result is negative before the start. The start
// may have been earlier than startAt by the grant's Age, because the store's answer was on its way. The
// store has left the spread free behind the start for this delay, so the spread does not count.
func (c *Caller) age() time.Duration {
	return Now() - c.startAt + c.Grant.Age - c.Booking.Spread
}

// Late returns by how much more than Jitter has passed since the start, for work that
// begins now, or 0 if the work is in time, or has no start that it could miss.
func (c *Caller) Late() time.Duration {
	if c.jitter == 0 || c.uncounted {
		return 0
	}
	return max(0, c.age()-c.jitter)
}

// stale reports whether the grant is too old to be used now.
func (c *Caller) stale() bool { return c.jitter > 0 && c.age() > c.usableFor() }

// unusable reports whether the grant will be stale already at startAt, because the store's
// answer took so long. Then the caller books a new start at once, and not after the wait.
func (c *Caller) unusable() bool {
	return c.jitter > 0 && c.Grant.Age-c.Booking.Spread > c.usableFor()
}

// spread returns how much room behind the next start makes up for the age of its grant: the
// part of the age above half of usableFor, at most spreadLimit. The other half of usableFor is left
// for unusually slow answers, and for timers that fire late. spread returns 0 for a younger grant,
// and if jitter is 0, because then no start of the caller is too old. For the age, which is not known
// yet, stands an upper bound on nearly all ages of all callers' grants. The budgets of this caller may
// lie on a slower server: after rttSamples stale answers in a row the last answer to this caller counts, too.
func (c *Caller) spread() time.Duration {
	if c.jitter == 0 {
		return 0
	}

	grantAge := c.engine.grantAge.upper(c.unevenPart())
	if c.staleStreak >= rttSamples {
		grantAge = max(grantAge, c.Grant.Age)
	}

	room := grantAge - c.usableFor()/2
	if room <= 0 {
		return 0
	}

	return min(room, spreadLimit(c.Booking.Charges))
}

// unevenPart returns by how much nearly all answers may exceed the usual time of an answer, as a part of that time.
// The answers of a store that books for waiters differ more, because one transaction waits for others.
func (c *Caller) unevenPart() float64 {
	if c.engine.Traits.BooksWaiters {
		return 1.0 / 2
	}
	return 1.0 / 4
}

// nextSpread returns the Spread of the next booking: spread, or the Spread of the last booking where keeping that
// is better.
func (c *Caller) nextSpread() time.Duration {
	spread := c.spread()
	last := c.Booking.Spread

	// The store may have booked the caller's start already, when its turn came, with the last Spread. A slow store answers
	// unevenly, so a new Spread would give back nearly every such start, at the price of one more step each. If the last Spread
	// was too small the grant is unusable, and the caller books again.
	if c.state == inLine && c.engine.Traits.BooksWaiters {
		return last
	}

	// A store replaces a start in one step only by a start of the same Spread. Between two steps a caller that came later takes
	// the room of the old start. So the caller keeps the last Spread if it was enough for the last answer, and if it is only a
	// little too small or not much too large for most answers.
	isGoodEnough := c.staleStreak == 0 && last-c.usableFor() <= spread && spread <= last+c.usableFor()/2
	if c.state == booked && isGoodEnough {
		return last
	}
	return spread
}

// adjustPace sets the Pace of each charge to the Pace of its limit less the spread. Both keep the next
// start away, so with the whole Pace starts would leave a part of the limit unused. There are two
// exceptions:
//
//   - A start that costs more than 1 has no Pace in a window of at most store.MaxEvenWindow: starts of
//     different costs do not fill a window, and a distance between them leaves room that no start fits into.
//   - In a longer window the Pace of the limit lets all starts leave within a moment, because a queue of many
//     windows would end up to a window later if they flowed evenly. Where costs turn out higher than they were
//     booked, all these starts would be too many at once, so there they flow evenly: see evenPace.
func (c *Caller) adjustPace() {
	for i := range c.Booking.Charges {
		charge := &c.Booking.Charges[i]
		isLong := charge.Limit.Per() > store.MaxEvenWindow
		isUnderestimated := isLong && c.engine.estimates.areLow(charge.Budget.Policy)
		keepsPace := charge.Cost == 1 && c.Booking.Spread == 0 && !c.repaced && !isUnderestimated
		if keepsPace {
			continue // most charges keep the Pace that they came with
		}

		// From now on the Pace of this charge may differ from its limit's.
		c.repaced = true
		switch {
		case isUnderestimated && charge.Limit.Pace() > 0:
			charge.Pace = evenPace(charge)
		case charge.Cost > 1 && !isLong:
			charge.Pace = 0
		default:
			charge.Pace = max(0, charge.Limit.Pace()-c.Booking.Spread)
		}
	}
}

// evenPace returns the least Pace of a charge under which a store spreads the starts of a full window over the whole
// window: the Pace at which the whole limit takes half of the window. A store keeps a shorter Pace as it is.
func evenPace(charge *store.Charge) time.Duration {
	return (charge.Span()/(2*time.Duration(charge.Limit.N())) + time.Microsecond).Truncate(time.Microsecond)
}

// needsRevalidation reports whether the store's last word on the start is so old that the store
// must confirm the start before the start is used.
func (c *Caller) needsRevalidation() bool { return c.needsRevalidationAt(Now()) }

// needsRevalidationAt is needsRevalidation at a later moment, if the store says nothing until then. The last word
// counts for validFor and, if the store is slow, for about as long as an answer takes besides.
func (c *Caller) needsRevalidationAt(at time.Duration) bool {
	return at-c.validatedAt > validFor+min(c.slowAnswer(), max(c.validateRTT, c.confirmTakes()))
}

// revalidateLead returns how long before the start the store is asked to confirm the start. For a store in memory, which
// answers in no time, it is 0. For a fast store it is validFor, because an answer counts for that long. For a slow store
// the time is added in which nearly all confirmations come, or one and a half times the usual time if that is less: an
// answer is half a round trip old when it comes, and at the start it must not be older than a round trip and validFor.
func (c *Caller) revalidateLead() time.Duration {
	if c.Grant.Age == 0 {
		return 0
	}

	slow := c.slowAnswer()
	return validFor + min(max(slow, c.engine.confirmTook.upper(c.unevenPart())), slow*3/2)
}

// slowAnswer returns how long the store takes to answer if that is longer than validFor, and otherwise 0. The
// answer to this caller's own booking bounds the estimate, which older answers to other callers may dominate.
func (c *Caller) slowAnswer() time.Duration {
	lag := max(min(c.engine.grantAge.get(), c.Grant.Age), c.confirmTakes())
	if lag <= validFor {
		return 0
	}
	return lag
}

// confirmTakes returns how long a store that books for waiters takes to confirm a start, and 0 for any other store.
// Such a store knows its clock better than by one answer, so the Age of a grant may be less than a round trip.
func (c *Caller) confirmTakes() time.Duration {
	if !c.engine.Traits.BooksWaiters {
		return 0
	}
	return c.engine.confirmTook.get()
}

// countStale counts how many answers of the store in a row took so long that the grant was too old
// when it came.
func (c *Caller) countStale() {
	if c.Grant.Age-c.Booking.Spread <= c.usableFor() {
		c.staleStreak = 0
		return
	}
	c.staleStreak++
}

// spreadLimit returns the largest spread that the charges allow. Each FixedWindow allows half of
// its window less its Jitter, so that the window has as much time for starts as for the spread. If
// the store needs more, no grant can be proved to be in time.
func spreadLimit(charges []store.Charge) time.Duration {
	largest := time.Duration(math.MaxInt64) // other limits allow any spread
	for i := range charges {
		// A CalendarWindow, which has no Per, is of the same kind: its windows are long.
		if c := &charges[i]; c.Limit.Kind() == store.KindFixedWindow && c.Limit.Per() > 0 {
			largest = min(largest, (c.Limit.Per()-c.Jitter)/2)
		}
	}
	return largest
}

// A start is booked at most one horizon ahead: a caller that has to wait for longer stands in
// line, so that the line can move when something changes. A booked start is not moved any more,
// so the nearer the horizon is, the less a caller that leaves disturbs the order. docs/internals/line.md
// explains the numbers.
const (
	shareHorizon  = 250 * time.Millisecond // in place of store.MinHorizon for callers with a share: a small share waits for all booked starts
	summonHorizon = 5 * time.Millisecond   // in place of shareHorizon and leadMargin for callers of one budget, if the store summons waiters: see store.Traits
	maxHorizon    = 2 * time.Second        // only a caller's Lead needs a farther horizon
	leadMargin    = 250 * time.Millisecond // by how much the horizon reaches beyond the caller's lead
	horizonTrips  = 5                      // round trips to the store that fit into the horizon

	// A start that is booked ahead counts with its estimated cost. If the estimate is k times too high, starts that are
	// booked H ahead leave 1/(1+(k-1)H/per) of the limit: a horizon of per/(k-1)/estimateParts costs a tenth of it.
	estimateParts    = 10
	estimatesHorizon = 5 * time.Millisecond // no horizon is nearer because of estimates
)

// Horizon returns how far ahead the next start is booked at the most: as far as the caller's limits and
// horizonTrips to the store need, at most maxHorizon. Only a long Lead makes it farther: a caller that goes on
// long before its start, because its connections take long, must know its start that early.
func (c *Caller) Horizon() time.Duration {
	ofLimits, margin := c.horizon, leadMargin

	// A caller with a share books less far ahead, unless one of its limits needs a farther horizon.
	if c.shared && ofLimits == store.MinHorizon {
		ofLimits = shareHorizon

		// If the store summons waiters, a caller of one budget books right before its start. A caller of several budgets
		// does not, because it needs a start that is near in all of them.
		if c.engine.Traits.SummonsWaiters && len(c.Booking.Charges) == 1 {
			ofLimits, margin = summonHorizon, summonHorizon
		}
	}

	// Estimates that are too high bound both: see estimateParts. The trips to the store and the lead are needed whatever
	// was estimated.
	if c.engine.estimates.known.Load() {
		for i := range c.Booking.Charges {
			bound := c.estimateHorizon(&c.Booking.Charges[i])
			ofLimits, margin = min(ofLimits, bound), min(margin, bound)
		}
	}

	horizon := min(max(ofLimits, horizonTrips*c.engine.rtt.get()), maxHorizon)
	return max(horizon, c.Lead+margin)
}

// estimateHorizon returns how far ahead starts of a charge whose cost is estimated too high may be booked at the most:
// see estimateParts. It returns maxHorizon if the cost is not estimated too high, and for all limits except SlidingWindow
// and TokenBucket: in a fixed window, what is given back can be used until the window ends, and a leaky bucket has no window.
func (c *Caller) estimateHorizon(charge *store.Charge) time.Duration {
	times := c.engine.estimates.times(charge.Budget.Policy)
	if times == 1 || charge.Limit.Kind() != store.KindSlidingWindow && charge.Limit.Kind() != store.KindTokenBucket {
		return maxHorizon
	}

	d := float64(charge.Span()) / (times - 1) / estimateParts
	return time.Duration(max(float64(estimatesHorizon), min(d, float64(maxHorizon))))
}

// Now is the time since the process began. It costs half as much as time.Now,
// which reads the wall clock too.
func Now() time.Duration { return time.Since(born) }

// born is when the process began.
var born = time.Now()

// A rttEstimator estimates how long a store's answers take: their mean, but not much more
// than the shortest of the last few. So the mean counts for a store that is far away or
// slow for long. A hiccup does not count, and the first fast answer ends a slow phase. If
// the estimate is too small, a start is booked again. If it is too large, it costs quota:
// starts with too much room stay booked after the store is fast again.
type rttEstimator struct {
	estimate  atomic.Int64 // in nanoseconds
	deviation atomic.Int64 // by how much answers differ from the mean, on average

	mu      sync.Mutex
	mean    time.Duration
	samples [rttSamples]time.Duration
	seen    int           // how many samples were added
	lastAt  time.Duration // when the last of them arrived
}

const (
	// rttSamples is how many answers in a row must be slow until the estimate grows. A store that
	// needs a second for each answer has been slow for as many seconds by that time.
	rttSamples = 6

	// An answer that took more than outlierFactor times as long as the shortest of the last
	// rttSamples is an outlier, unless it took less than DefaultJitter, which costs little.
	outlierFactor = 4
)

// get returns the estimate, or 0 before the first sample.
func (e *rttEstimator) get() time.Duration { return time.Duration(e.estimate.Load()) }

// upper returns an upper bound on nearly all answers: the estimate plus the given part of it, or plus four times the
// deviation if that is less.
func (e *rttEstimator) upper(part float64) time.Duration {
	return e.get() + min(time.Duration(part*float64(e.get())), 4*time.Duration(e.deviation.Load()))
}

// add adds a sample: how long an answer took, and when it arrived. Callers share answers, and
// a hiccup delays all answers that are on their way. So an answer that was on its way for more
// than half of its time before the last sample arrived adds nothing. Neither does an answer that
// took no time, because it came from memory.
func (e *rttEstimator) add(took, arrivedAt time.Duration) {
	if took <= 0 {
		return
	}

	e.mu.Lock()
	defer e.mu.Unlock()

	// More than half of this answer's time had passed when the last sample arrived.
	if e.seen > 0 && arrivedAt-took/2 < e.lastAt {
		return
	}

	e.lastAt = arrivedAt
	e.samples[e.seen%rttSamples] = took
	e.seen++

	// The bound keeps outliers out of the estimate.
	bound := max(outlierFactor*slices.Min(e.samples[:min(e.seen, rttSamples)]), DefaultJitter)

	// When answers become faster, the mean falls to the bound at once.
	if took < e.mean {
		e.mean = min(e.mean, bound)
	}

	// Moving averages: each answer counts for a quarter.
	e.deviation.Add((int64((took - e.mean).Abs()) - e.deviation.Load()) / 4)
	e.mean += (took - e.mean) / 4
	e.estimate.Store(int64(min(e.mean, bound)))
}

// estimates have an estimate for each policy: how wrong the booked costs of its last starts were. The
// zero value has none. Many goroutines may use it at once.
type estimates struct {
	known    atomic.Bool // some policy has an estimate: while it is false nobody looks for one
	byPolicy sync.Map    // of *estimate
}

// An estimate says how the settled costs of a policy's starts differ from the booked costs.
type estimate struct {
	remained atomic.Int64 // the settled part of the booked cost, on average, in units of 1/remainedWhole
	low      atomic.Int32 // above 0: one of the last lowMemory starts has cost more than was booked
}

const (
	remainedWhole  = 1 << 20
	remainedMemory = 16 // how many starts the average covers, about
	lowMemory      = 64
)

// note notes at which cost a start under a policy was booked and settled. It does nothing if
// settled is negative, because the cost is not known, or if nothing was booked.
func (e *estimates) note(policy string, booked, settled int) {
	if booked < 1 || settled < 0 {
		return
	}

	// Two callers may be the first of a policy at once: one of their estimates is kept.
	ofPolicy := e.of(policy)
	if ofPolicy == nil {
		fresh := new(estimate)
		fresh.remained.Store(remainedWhole)
		v, _ := e.byPolicy.LoadOrStore(policy, fresh)
		ofPolicy = v.(*estimate)
		e.known.Store(true)
	}

	// Of two updates at one moment one may be lost, which only makes the average a little older.
	old := ofPolicy.remained.Load()
	remained := remainedWhole * int64(min(settled, booked)) / int64(booked)
	ofPolicy.remained.Store(old + (remained-old)/remainedMemory)

	// A cost that was estimated too low counts for lowMemory starts.
	switch low := ofPolicy.low.Load(); {
	case settled > booked:
		ofPolicy.low.Store(lowMemory)
	case low > 0:
		ofPolicy.low.Store(low - 1)
	}
}

// of returns the estimate of a policy, or nil if none is known.
func (e *estimates) of(policy string) *estimate {
	if !e.known.Load() {
		return nil
	}
	v, _ := e.byPolicy.Load(policy)
	ofPolicy, _ := v.(*estimate)
	return ofPolicy
}

// times returns how many times too high the costs of a policy are estimated on average, at least 1.
func (e *estimates) times(policy string) float64 {
	ofPolicy := e.of(policy)
	if ofPolicy == nil {
		return 1
	}
	return remainedWhole / float64(max(1, ofPolicy.remained.Load()))
}

// areLow reports whether a start under a policy has lately cost more than was booked for it.
func (e *estimates) areLow(policy string) bool {
	ofPolicy := e.of(policy)
	return ofPolicy != nil && ofPolicy.low.Load() > 0
}
