package throttle

import (
	"context"
	"errors"
	"time"
)

// A waiterState is what a caller that was held is in when it wakes. It follows from what
// the caller holds, so nothing has to keep the two in step.
//
//	state     what the caller has               what it does                    what it may become
//	called    a place in a line, and its turn   books                           waits, or is refused
//	lapsed    a start that came too late, or    books in its place; its         waits, or is refused
//	          that is closed by now             arrival stays
//	doubtful  a start of which the store may    asks the store to confirm it    waits, or is due
//	          know better
//	due       a start, and no slots yet         acquires the slots              started, or waits for a slot
//	started   all that it needs                 goes on
//
// A caller that waits sleeps until the start that it has, or until its turn in the line. It
// leaves when its context ends, when MaxWait is over, or when policies are replaced, and
// gives back what it has: see giveback.go.
type waiterState uint8

const (
	called waiterState = iota + 1
	lapsed
	doubtful
	due
	started
)

// state returns the caller's state. Doubt says that a watch has news of its start, or that
// the time to confirm it has come.
func (a *acquisition) state(doubt bool) waiterState {
	switch {
	case !a.grant.OK:
		return called
	case a.stale() || a.unusable():
		return lapsed
	case doubt || a.needsRevalidation():
		return doubtful
	case a.holdsSlots() || now() < a.startAt: // before its start it has a lead
		return started
	}
	return due
}

// ask asks the store once, for what the state needs.
func (a *acquisition) ask(ctx context.Context, state waiterState) error {
	switch state {
	case doubtful:
		return a.revalidate(ctx)
	case due:
		return a.acquireSlots(ctx)
	case lapsed:
		a.report(ctx, Stale, max(0, now()-a.startAt), nil)
	}
	return a.book(ctx)
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

// A waitOptions says how a caller waits for its booked start.
type waitOptions struct {
	early           time.Duration   // return this much before the start
	replaced        <-chan struct{} // return when it is closed
	withConnection  bool            // the caller holds a connection: do not wait beyond connectionUntil
	connectionUntil time.Duration
}

// acquire books a start and waits for it.
func (a *acquisition) acquire(ctx context.Context, w waitOptions) error {
	if err := a.book(ctx); err != nil || a.startsNow() {
		return err
	}
	return a.await(ctx, w)
}

// startsNow reports whether the start that was booked just now may be used at once. An
// observer may have taken its time since.
func (a *acquisition) startsNow() bool {
	return a.granted() || a.grant.OK && a.grant.Wait == 0 && a.observe == nil && a.grant.Age <= validFor && !a.unusable()
}

// await sleeps until the booked start, or until the caller's turn in line, and does
// then what its state asks for, until it has started. It returns errReplaced, and still
// holds the place, when the policies were replaced, and errDetach when the start is too
// far away to hold a connection until then.
//
// Each turn of the loop tells the observer of a long wait, which happens ever more rarely,
// or asks the store once. So the loop ends, or the time moves, whatever a store answers: a
// caller asks at most mostAsks times in askPeriod, and one whose MaxWait is over keeps no
// place in line (see answered).
func (a *acquisition) await(ctx context.Context, w waitOptions) error {
	for {
		woken := a.sleep(ctx, w)
		if woken == errNotice {
			a.noticeLongWait(ctx)
			continue
		}
		if woken != nil && woken != errRevalidate {
			return woken
		}
		state := a.state(woken == errRevalidate)
		if state == started {
			return nil
		}
		if err := a.mayAsk(ctx); err != nil {
			return err
		}
		if err := a.ask(ctx, state); err != nil {
			return err
		}
	}
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

// sleep waits for the next step: the start, or a little before it, or the caller's
// turn in line. A caller whose context ends gives its place back.
func (a *acquisition) sleep(ctx context.Context, w waitOptions) error {
	if !a.grant.OK {
		return a.waitInLine(ctx, w)
	}
	if a.grant.Wait == 0 || a.unusable() {
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
	switch n, ok := a.noticeIn(); {
	case ok && n == 0:
		return errNotice
	case ok && n < d:
		d, end = n, errNotice
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

// waitInLine waits for the caller's turn in line. When that is cannot be known, but in
// the line for a start there is an estimate.
func (a *acquisition) waitInLine(ctx context.Context, w waitOptions) error {
	var waitOver, connectionOver, notice <-chan time.Time
	if w.withConnection && a.inLine() && a.startAt > w.connectionUntil {
		return errDetach
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
		return errNotice
	case ok:
		timer := time.NewTimer(n)
		defer timer.Stop()
		notice = timer.C
	}
	select {
	case <-a.grant.Ready:
		return nil
	case <-notice:
		return errNotice
	case <-waitOver:
		if a.inLine() {
			return nil // the store has a start at once, or says how long it would be
		}
		a.cancel()
		a.remaining, a.remainingBy = a.maxWait, "MaxWait is"
		return a.refusal(a.grant)
	case <-w.replaced:
		return errReplaced
	case <-connectionOver:
		return errDetach
	case <-ctx.Done():
		return a.gaveUp(ctx)
	}
}
