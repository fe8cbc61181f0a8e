package throttle

import "context"

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
