package throttle

import (
	"context"
	"errors"
	"time"
)

// A wake is why a caller that waited goes on.
type wake uint8

const (
	timeCame   wake = iota // its start, or its turn in line
	newsCame               // the start may have become useless, or must be confirmed
	noticeCame             // the observer must be told that the caller still waits
)

// acquire waits until the start and the slots may be used, and books what is missing. It returns
// errReplaced, and still holds what it held, when the policies were replaced, and errDetach when
// the start is too far away to hold a connection until then.
//
// Each turn of the loop tells the observer of a long wait, which happens ever more rarely,
// or asks the store once. So the loop ends, or the time moves, whatever a store answers: a
// caller asks at most mostAsks times in askPeriod, and one whose MaxWait is over keeps no
// place in line (see answered).
func (a *acquisition) acquire(ctx context.Context, w waitOptions) error {
	if a.state == idle {
		if err := a.book(ctx); err != nil {
			return err
		}
	}
	for a.state != granted {
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
		if err := a.mayAsk(ctx); err != nil {
			return err
		}
		if err := question(a, ctx); err != nil {
			return err
		}
	}
	return nil
}

// question returns what the caller must ask the store when it wakes; nil: nothing, it has all
// that it needs. News says that a watch has news of the start, or that the time to confirm it
// has come.
func (a *acquisition) question(news bool) func(*acquisition, context.Context) error {
	switch {
	case a.state != booked:
		return (*acquisition).book
	case a.stale() || a.unusable():
		return (*acquisition).replaceStale
	case news || a.needsRevalidation():
		return (*acquisition).revalidate
	case a.holdsSlots() || now() < a.startAt: // before its start it has a lead
		return nil
	}
	return (*acquisition).acquireSlots
}

// replaceStale books a start in place of one that is too old.
func (a *acquisition) replaceStale(ctx context.Context) error {
	a.report(ctx, Stale, max(0, now()-a.startAt), nil)
	return a.book(ctx)
}

// recheck has acquire look again at a start that was granted a while ago.
func (a *acquisition) recheck() {
	if a.state == granted {
		a.state = booked
	}
}

// errReplaced says that the policies changed during the wait.
var errReplaced = errors.New("throttle: the policies changed")

var (
	// errDetach says that the start is too far away to wait for it with a
	// connection in hand. No caller sees it.
	errDetach = errors.New("throttle: the start is far away")

	// errSentAnyway is the error of a request that must not be sent again.
	errSentAnyway = errors.New("throttle: the request may have been written though it was stopped")
)

// A waitOptions says how a caller waits.
type waitOptions struct {
	early           time.Duration   // return this much before the start
	replaced        <-chan struct{} // return when it is closed
	withConnection  bool            // the caller holds a connection: do not wait beyond connectionUntil
	connectionUntil time.Duration
}

// mayAsk waits until the caller may ask its store again.
func (a *acquisition) mayAsk(ctx context.Context) error {
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

// wait waits for the start, or a little before it, or for the caller's turn in line. A caller
// whose context ends gives back what it holds.
func (a *acquisition) wait(ctx context.Context, w waitOptions) (wake, error) {
	if a.state == booked {
		return a.waitForStart(ctx, w)
	}
	return a.waitInLine(ctx, w)
}

// waitForStart waits for the start that is booked.
func (a *acquisition) waitForStart(ctx context.Context, w waitOptions) (wake, error) {
	if a.grant.Wait == 0 || a.unusable() {
		return timeCame, nil
	}
	d := a.startAt - w.early - now()
	if d <= 0 {
		return timeCame, nil
	}
	if w.withConnection && a.startAt > w.connectionUntil {
		return 0, errDetach
	}
	why := timeCame
	if d > validFor {
		a.startWatch(ctx)
		if lead := a.revalidateLead(); lead > 0 && d > validFor+lead {
			d, why = d-lead, newsCame
		}
	}
	switch n, ok := a.noticeIn(); {
	case ok && n == 0:
		return noticeCame, nil
	case ok && n < d:
		d, why = n, noticeCame
	}
	timer := time.NewTimer(d)
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

// waitInLine waits for the caller's turn in line. When that is cannot be known, but in
// the line for a start there is an estimate.
func (a *acquisition) waitInLine(ctx context.Context, w waitOptions) (wake, error) {
	var waitOver, connectionOver, notice <-chan time.Time
	if w.withConnection && a.state == inLine && a.startAt > w.connectionUntil {
		return 0, errDetach
	}
	if a.maxWait > 0 {
		timer := time.NewTimer(a.waitDeadline - now())
		defer timer.Stop()
		waitOver = timer.C
	}
	if w.withConnection {
		timer := time.NewTimer(w.connectionUntil - now())
		defer timer.Stop()
		connectionOver = timer.C
	}
	switch n, ok := a.noticeIn(); {
	case ok && n == 0:
		return noticeCame, nil
	case ok:
		timer := time.NewTimer(n)
		defer timer.Stop()
		notice = timer.C
	}
	select {
	case <-a.grant.Ready:
		return timeCame, nil
	case <-notice:
		return noticeCame, nil
	case <-waitOver:
		if a.state == inLine {
			return timeCame, nil // the store has a start at once, or says how long it would be
		}
		a.cancel()
		a.remaining, a.remainingBy = a.maxWait, "MaxWait is"
		return 0, a.refusal(a.grant)
	case <-w.replaced:
		return 0, errReplaced
	case <-connectionOver:
		return 0, errDetach
	case <-ctx.Done():
		return 0, a.gaveUp(ctx)
	}
}

// needsRevalidation reports whether the store must confirm the start before it is
// used.
func (a *acquisition) needsRevalidation() bool {
	return now()-a.validatedAt > validFor+min(a.revalidateLead(), a.validateRTT)
}

// revalidateLead is how much before the start the store is asked to confirm it: as
// long as the store takes to answer, if that is more than validFor. What it took
// this caller counts, too: the estimate may be of another time.
func (a *acquisition) revalidateLead() time.Duration {
	if lag := min(a.rtt.get(), a.grant.Age); lag > validFor {
		return lag
	}
	return 0
}

// revalidate asks the store whether the start may still be used, and books another
// one if not.
func (a *acquisition) revalidate(ctx context.Context) error {
	asked := now()
	maxWait := a.remainingWait(ctx, asked)
	a.startWatch(ctx)
	storeCtx, stop := a.storeContext(ctx, maxWait)
	defer stop()
	ok, err := a.watch.Confirm(storeCtx, maxWait)
	a.returned()
	a.validatedAt = now()
	a.validateRTT = a.validatedAt - asked
	switch {
	case err != nil:
		a.cancel()
		return a.storeFailure(ctx, err)
	case !ok, a.validatedAt-max(asked, a.startAt) > DefaultJitter:
		// Starts that the store held up would leave together. A caller without
		// Jitter may be late for reasons of its own, but not for this one.
		return a.book(ctx)
	}
	a.outageReported = false
	return nil
}

// startWatch makes the store watch over the start, unless it does already.
func (a *acquisition) startWatch(ctx context.Context) {
	if a.watch != nil {
		return
	}
	if a.invalidated == nil {
		a.invalidated = make(chan struct{}, 1)
	}
	a.watch = a.store.Watch(&a.booking, a.grant, a.invalidated)
}
