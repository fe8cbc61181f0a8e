package acquire

import (
	"context"
	"errors"
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

// ErrWaitOver and ErrDefaultWaitOver say that StoreGrace is over, too.
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
// Booking.MaxWait. It notes the same in remaining and remainingBy, for the error if the
// store refuses.
func (c *Caller) remainingWait(ctx context.Context, asked time.Duration) time.Duration {
	if c.Patience > 0 {
		return c.remainingPatience(asked)
	}

	deadline, ok := ctx.Deadline()
	if !ok && c.MaxWait == 0 {
		c.remaining, c.remainingBy = store.AnyWait, BoundNone
		return store.AnyWait
	}

	left, by := store.AnyWait, BoundNone
	if c.MaxWait != 0 {
		left, by = max(0, c.waitDeadline-asked), BoundMaxWait
	}

	if ok {
		if d := max(0, time.Until(deadline)); left < 0 || d < left {
			left, by = d, BoundDeadline
		}
	}

	// A negative MaxWait leaves 0 from the start, so only a positive MaxWait can be over.
	if left == 0 && by == BoundMaxWait && c.MaxWait > 0 {
		by = BoundMaxWaitOver
	}

	c.remaining, c.remainingBy = left, by

	if left == 0 && c.MaxWait > 0 {
		return NoWaitLeft
	}

	return left
}

// usefulWait returns the Booking.MaxWait of a caller that can wait for left. A caller with other
// variants stands in each line whatever the line's guess is: the guess counts callers
// that will start elsewhere, and a closed budget may be opened early. A start within the horizon is
// no guess, and is booked only if it is of use.
func (c *Caller) usefulWait(left time.Duration) time.Duration {
	switch {
	case c.trying:
		return 0
	case c.Variant && left > c.Horizon():
		return store.AnyWait
	}
	return left
}

// exceedsMaxWait gives back a start that is too late for MaxWait or for the deadline of ctx, and
// returns the caller's error, or nil if the start is in time. A start can be too late although the
// store was told what wait is of use: its answer, or the line, may have taken long.
func (c *Caller) exceedsMaxWait(ctx context.Context, g store.Grant) error {
	if !g.OK || g.HeldBy < 0 && c.MaxWait <= 0 {
		return nil
	}

	deadline, ok := ctx.Deadline()
	switch left := time.Until(deadline); {
	case c.MaxWait > 0 && c.startAt > c.waitDeadline+StoreGrace/2:
		c.remaining, c.remainingBy = c.waitDeadline-Now(), BoundMaxWait
		if c.remaining <= 0 {
			c.remainingBy = BoundMaxWaitOver
		}

	case ok && g.HeldBy >= 0 && left > 0 && g.Wait > left:
		c.remaining, c.remainingBy = left, BoundDeadline
	default:
		return nil
	}

	c.Cancel()
	if g.HeldBy < 0 {
		return c.storeFailure(ctx, c.waitOver())
	}

	return c.refusal(g)
}

// minPatience is for how long the store is asked for a caller with patience, at the least.
const minPatience = time.Second

// lineMargin is for how much longer than the horizon a ranked caller stands in line. All starts within the horizon are
// booked, so a caller that stood there for less would never come to its turn, and others would go before it.
const lineMargin = 150 * time.Millisecond

// patienceEnd is when a caller with patience leaves its line.
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
// line to get a rank, however long it would wait. A ranked caller gets in line only if its turn comes
// soon.
func (c *Caller) remainingPatience(asked time.Duration) time.Duration {
	c.remaining, c.remainingBy = store.AnyWait, BoundNone
	if c.Ranked {
		c.remaining = max(c.Horizon(), c.patienceEnd()-asked)
	}
	return c.remaining
}

// outOfPatience reports whether a caller with patience has a place in line whose turn comes too late for
// it, by the store's answer of that time.
func (c *Caller) outOfPatience(g store.Grant, answered time.Duration) bool {
	return c.Patience > 0 && c.state == inLine && answered+g.Wait > max(c.patienceEnd(), answered+c.Horizon())
}

// inGrace reports whether the caller's MaxWait is over, so that only StoreGrace is left for the
// store's answer. maxWait is what remainingWait returned.
func (c *Caller) inGrace(maxWait time.Duration) bool { return c.MaxWait > 0 && maxWait <= NoWaitLeft }

// outlasts reports whether the store would be asked for longer than the caller's MaxWait, because
// maxWait is what usefulWait returned for one of several variants.
func (c *Caller) outlasts(maxWait time.Duration) bool { return c.MaxWait > 0 && maxWait < 0 }

// needsStoreContext reports whether storeContext would return a context that differs from
// the caller's.
func (c *Caller) needsStoreContext(maxWait time.Duration) bool {
	return c.engine.Observe != nil || c.shadowed || c.inGrace(maxWait) || c.outlasts(maxWait) || c.Patience > 0 || c.endsWhenOff()
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
// which is what remainingWait or usefulWait returned. If there is an observer or a switch, or the caller is only
// counted, the context has an [outage.Observer] that the store tells of an outage. The context ends when the answer
// has become useless to the caller.
func (c *Caller) storeContext(ctx context.Context, maxWait time.Duration) (context.Context, context.CancelFunc) {
	bounded, stop := ctx, func() {}
	switch {
	case c.shadowed:
		bounded, stop = context.WithTimeoutCause(ctx, countTimeout, errUncounted)
		c.stopCount = stop
	case c.Patience > 0:
		bounded, stop = context.WithTimeoutCause(ctx, max(c.patienceEnd()-Now(), minPatience), ErrWaitOver)
	case c.inGrace(maxWait) || c.outlasts(maxWait):
		bounded, stop = context.WithTimeoutCause(ctx, c.waitDeadline+StoreGrace-Now(), c.waitOver())
	}

	// The observed context is the outermost: a timer that just fires may look at its parent while the next call begins.
	if c.endsWhenOff() {
		c.endable = &endableContext{Context: bounded, caller: c}
		bounded = c.endable
	}

	// The observed context is the outermost: a timer that just fires may look at its parent while the next call begins.
	if c.engine.Observe != nil || c.shadowed {
		c.observed = observedContext{bounded, ctx, c}
		bounded = &c.observed
	}

	return bounded, stop
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

// An endableContext is the context of a call of the store that ends when throttle is turned off, from the moment on
// when the store says that it is away. Until then it is the context of the caller: a usual call costs no tie to the
// switch. Stores ask for Done again when they have said that they are away.
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

// current returns the context that counts now.
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
// of the store returns, and makes one event of each outage. A caller that is only counted does not
// wait any longer. Any other caller waits until throttle is turned off.
func (c *Caller) StoreAway(err error) {
	if c.endable != nil {
		c.endable.endWhenOff(c.engine.Switch)
	}
	if !c.waitsForStore {
		c.waitsForStore = true
		c.engine.unanswered.Add(1)
	}
	if !c.outageReported {
		c.outageReported = true
		c.report(c.observed.caller, EventStoreFailed, c.Waited(), c.engine.Errors.StoreFailed(err))
	}
	if c.stopCount != nil {
		c.stopCount()
	}
}

// endStoreCall notes that a call of the store has returned, with an answer or an error: the caller
// does not wait for the store any more.
func (c *Caller) endStoreCall() {
	c.stopCount = nil
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
// contract hardly ever has a caller ask more often, see [store.Grant.Ready]. With a store that
// breaks it, the caller would ask without end.
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

// next counts a question that the caller wants to ask at a time, and returns how long the
// caller must wait before it asks.
func (r *askRate) next(at time.Duration) (delay time.Duration) {
	if r.asks == 0 || at-r.since >= askPeriod {
		*r = askRate{since: at}
	}

	r.asks++
	if r.asks <= maxAsks {
		return 0
	}
	delay = r.since + askPeriod - at
	*r = askRate{since: r.since + askPeriod, asks: 1}
	return delay
}

// waitToAsk waits until the caller's askRate allows the next question to the store.
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
