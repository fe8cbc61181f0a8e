package throttle

import (
	"context"
	"errors"
	"time"
)

// A wake is why a caller that waited goes on.
type wake uint8

const (
	timeCame   wake = iota // the start or the caller's turn in line has come
	newsCame               // the start may have become useless, or the store must confirm the start
	noticeCame             // the observer must be told that the caller still waits
)

// acquire waits until the start and the slots may be used, and books what is missing. It returns
// errReplaced when the policies were replaced: the caller then still holds what it held. It
// returns errDetach when the start is too far away to hold a connection until the start.
//
// Each pass of the loop tells the observer of a long wait, which happens ever more rarely,
// or asks the store once. So the loop ends, or time passes, whatever a store answers: a
// caller asks at most mostAsks times in askPeriod, and a caller whose MaxWait is over keeps no
// place in line (see takeAnswer).
func (a *acquisition) acquire(ctx context.Context, w waitOptions) error {
	if a.state == idle {
		if err := w.ask(ctx, a, (*acquisition).book); err != nil {
			return err
		}
	}
	for a.state != granted && (w.race == nil || a.state != booked) {
		if w.whileBooked && a.state != booked {
			return errUnbooked
		}
		why, err := a.wait(ctx, w)
		if err != nil {
			return err
		}
		if why == noticeCame {
			a.noticeLongWait(ctx)
			continue
		}
		question := a.question(why == newsCame)
		if question == nil {
			a.state = granted
			break
		}
		if err := a.waitToAsk(ctx); err != nil {
			return err
		}
		if err := w.ask(ctx, a, question); err != nil {
			return err
		}
	}
	if w.race != nil {
		return w.race.claim(a)
	}
	return nil
}

// question returns the method by which a caller that wakes must ask the store; nil: the caller
// has all that it needs. news says that a watch has news of the start, or that the time to
// confirm the start has come.
func (a *acquisition) question(news bool) func(*acquisition, context.Context) error {
	switch {
	case a.state != booked:
		return (*acquisition).book
	case a.stale() || a.unusable():
		return (*acquisition).replaceStale
	case news || a.needsRevalidation():
		return (*acquisition).revalidate
	case a.holdsSlots() || now() < a.startAt: // the lead: slots are taken at the start, not before
		return nil
	}
	return (*acquisition).acquireSlots
}

// replaceStale reports that the start is too old, and books another start in its place.
func (a *acquisition) replaceStale(ctx context.Context) error {
	a.report(ctx, EventStale, max(0, now()-a.startAt), nil)
	return a.book(ctx)
}

// recheck puts a granted start back into the state booked, so that acquire checks the start
// once more: time has passed since the grant. The start of a caller that is only counted stays granted.
func (a *acquisition) recheck() {
	if a.state == granted && !a.shadowed {
		a.state = booked
	}
}

// errReplaced says that the policies changed during the wait.
var errReplaced = errors.New("throttle: the policies changed")

var (
	// errDetach says that the start is too far away to wait for it with a
	// connection in hand. No caller sees it.
	errDetach = errors.New("throttle: the start is far away")

	// errSentAnyway is the error of a request that the pre-write check stopped, but that may
	// have arrived: it must not be sent again.
	errSentAnyway = errors.New("throttle: the request may have been written though it was stopped")

	// errUnbooked says that a caller of several variants has lost its start, and would have to wait in
	// line for another. No caller sees it.
	errUnbooked = errors.New("throttle: the start was lost")
)

// A waitOptions says how a caller waits.
type waitOptions struct {
	early           time.Duration   // the wait ends this much before the start
	replaced        <-chan struct{} // closed when the policies are replaced, which ends the wait; nil: never
	withConnection  bool            // the caller holds a connection, until connectionUntil at the latest
	connectionUntil time.Duration   // a time as of now
	race            *race           // the wait ends when the caller has a start, however far away; nil: the caller has no other variant
	whileBooked     bool            // the wait ends with errUnbooked when the caller has no start any more
}

// ask asks the store by question.
func (w *waitOptions) ask(ctx context.Context, a *acquisition, question func(*acquisition, context.Context) error) error {
	if w.race != nil {
		return w.race.ask(ctx, a, question)
	}
	return question(a, ctx)
}

// waitToAsk waits until the caller's askRate allows another question to the store.
func (a *acquisition) waitToAsk(ctx context.Context) error {
	delay := a.rate.next(now())
	if delay == 0 {
		return nil
	}
	timer := time.NewTimer(delay)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return a.gaveUp(ctx)
	}
}

// wait waits until w.early before the booked start, or for the caller's turn in line. It returns
// early when there is news, or a notice is due. A caller whose context ends gives back what it
// holds.
func (a *acquisition) wait(ctx context.Context, w waitOptions) (wake, error) {
	if a.state == booked {
		return a.waitForStart(ctx, w)
	}
	return a.waitInLine(ctx, w)
}

// waitForStart waits until w.early before the booked start.
func (a *acquisition) waitForStart(ctx context.Context, w waitOptions) (wake, error) {
	if a.grant.Wait == 0 || a.unusable() {
		return timeCame, nil
	}
	left := a.startAt - w.early - now()
	if left <= 0 {
		return timeCame, nil
	}
	if w.withConnection && a.startAt > w.connectionUntil {
		return 0, errDetach
	}
	why := timeCame
	if left > validFor {
		a.startWatch(ctx)
		if lead := a.revalidateLead(); lead > 0 && left > validFor+lead {
			left, why = left-lead, newsCame
		}
	} else if a.grant.Age == 0 {
		why = newsCame // a store in memory confirms even a near start: that costs no round trip
	}

	switch noticeDelay, ok := a.noticeIn(); {
	case ok && noticeDelay == 0:
		return noticeCame, nil
	case ok && noticeDelay < left:
		left, why = noticeDelay, noticeCame
	}
	timer := time.NewTimer(left)
	defer timer.Stop()
	select {
	case <-timer.C:
		return why, nil
	case <-a.invalidated:
		return newsCame, nil
	case <-w.replaced:
		return 0, errReplaced
	case <-ctx.Done():
		return 0, a.gaveUp(ctx)
	}
}

// waitInLine waits for the caller's turn in line, which the store announces on grant.Ready. In
// the line for a start startAt is an estimate; in the line for slots there is none.
func (a *acquisition) waitInLine(ctx context.Context, w waitOptions) (wake, error) {
	var waitOver, connectionOver, noticeDue <-chan time.Time
	if w.withConnection && a.state == inLine && a.startAt > w.connectionUntil {
		return 0, errDetach
	}
	if a.maxWait > 0 || a.patience > 0 {
		timer := time.NewTimer(a.lineEnd() - now())
		defer timer.Stop()
		waitOver = timer.C
	}
	if w.withConnection {
		timer := time.NewTimer(w.connectionUntil - now())
		defer timer.Stop()
		connectionOver = timer.C
	}
	switch noticeDelay, ok := a.noticeIn(); {
	case ok && noticeDelay == 0:
		return noticeCame, nil
	case ok:
		timer := time.NewTimer(noticeDelay)
		defer timer.Stop()
		noticeDue = timer.C
	}
	select {
	case <-a.grant.Ready:
		return timeCame, nil
	case <-noticeDue:
		return noticeCame, nil
	case <-waitOver:
		if a.patience > 0 {
			g := a.grant
			if g.Wait = 0; a.state == inLine {
				g.Wait = max(time.Millisecond, a.startAt-now())
			}
			a.cancel()
			return 0, a.refusal(g)
		}
		if a.state == inLine {
			return timeCame, nil // the caller books once more: the store has a start at once, or says how long the wait would be
		}
		a.cancel()
		a.remaining, a.remainingBy = a.maxWait, maxWaitIs
		return 0, a.refusal(a.grant)
	case <-w.replaced:
		return 0, errReplaced
	case <-connectionOver:
		return 0, errDetach
	case <-ctx.Done():
		return 0, a.gaveUp(ctx)
	}
}

// needsRevalidation reports whether the store's last word on the start is so old that the store
// must confirm the start before the start is used.
func (a *acquisition) needsRevalidation() bool {
	return now()-a.validatedAt > validFor+min(a.revalidateLead(), a.validateRTT)
}

// revalidateLead returns how long before the start the store is asked to confirm the start: as
// long as the store takes to answer, if that is more than validFor, else 0. The answer to this
// caller's own booking bounds the estimate, which other callers may have made at another time.
func (a *acquisition) revalidateLead() time.Duration {
	if lag := min(a.grantAge.get(), a.grant.Age); lag > validFor {
		return lag
	}
	return 0
}

// revalidate asks the store whether the start may still be used, and books another
// start if not.
func (a *acquisition) revalidate(ctx context.Context) error {
	asked := now()
	maxWait := a.remainingWait(ctx, asked)
	a.startWatch(ctx)
	storeCtx, stop := a.storeContext(ctx, maxWait)
	defer stop()
	ok, err := a.watch.Confirm(storeCtx, maxWait)
	a.endStoreCall()
	a.validatedAt = now()
	a.validateRTT = a.validatedAt - asked
	switch {
	case err != nil:
		a.cancel()
		return a.storeFailure(ctx, err)
	case !ok, a.validatedAt-max(asked, a.startAt) > DefaultJitter:
		// Starts that waited for one slow answer of the store would leave together. A caller
		// without Jitter may be late for other reasons, but not for a slow answer.
		return a.book(ctx)
	}
	a.outageReported = false
	return nil
}

// startWatch has the store watch over the start, unless the store does so already.
func (a *acquisition) startWatch(ctx context.Context) {
	if a.watch != nil {
		return
	}
	if a.invalidated == nil {
		a.invalidated = make(chan struct{}, 1)
	}
	a.watch = a.store.Watch(&a.booking, a.grant, a.invalidated)
}
