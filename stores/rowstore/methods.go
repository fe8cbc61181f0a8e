package rowstore

import (
	"context"
	"time"

	"github.com/fleetthrottle/throttle/store"
)

// The methods of [store.Store], written out so that the documentation of this
// package has them.

// Book books the earliest start at which all charges of b have room, in one transaction,
// and says how long it is until then: see [store.Store].
func (s *Store) Book(ctx context.Context, b *store.Booking) (store.Grant, error) {
	return s.node.Book(ctx, b)
}

// Cancel gives back a start that was not used, or a place in line. It returns no
// error: a start that the database is not told of stays charged.
func (s *Store) Cancel(b *store.Booking, g store.Grant) {
	s.node.Cancel(b, g)
}

// Release gives back the slots of Concurrency limits that a start holds.
func (s *Store) Release(b *store.Booking, g store.Grant) {
	s.node.Release(b, g)
}

// Settle changes the cost of a start, to costs[i] for b.Charges[i].
func (s *Store) Settle(ctx context.Context, b *store.Booking, g store.Grant, costs []int) error {
	return s.node.Settle(ctx, b, g, costs)
}

// Pause closes the budget of c for d, for all programs that share it.
func (s *Store) Pause(ctx context.Context, c store.Charge, d time.Duration) error {
	return s.node.Pause(ctx, c, d)
}

// Refuse closes the budget of c because its upstream refused a request, and returns
// the ceiling of an Adaptive budget before and after.
func (s *Store) Refuse(ctx context.Context, c store.Charge, r store.Refusal) (from, to float64, err error) {
	return s.node.Refuse(ctx, c, r)
}

// Resume opens the budget of c.
func (s *Store) Resume(ctx context.Context, c store.Charge) error {
	return s.node.Resume(ctx, c)
}

// Reconcile lowers the rest of the budget of c to the rest that its upstream reports.
func (s *Store) Reconcile(ctx context.Context, c store.Charge, q store.Quota) error {
	return s.node.Reconcile(ctx, c, q)
}

// Watch tells news when a booked start may have become useless, until the watch is
// stopped.
func (s *Store) Watch(b *store.Booking, g store.Grant, news chan<- struct{}) store.Watch {
	return s.node.Watch(b, g, news)
}

// Status describes the budget of c, and changes nothing.
func (s *Store) Status(ctx context.Context, c store.Charge) (store.Status, error) {
	return s.node.Status(ctx, c)
}

// Traits says which optional features of stores this store has.
func (s *Store) Traits() store.Traits {
	return s.node.Traits()
}

// KeepTurn returns the place of a caller that leaves its line, for RestoreTurn. A
// rowstore keeps no places.
func (s *Store) KeepTurn(b *store.Booking, t store.Turn) []byte {
	return s.node.KeepTurn(b, t)
}

// RestoreTurn returns the place of a caller that comes back. It returns false if the
// bytes are not of a place in the same budgets.
func (s *Store) RestoreTurn(b *store.Booking, kept []byte) (store.Turn, bool) {
	return s.node.RestoreTurn(b, kept)
}

// Appoint returns in how long a caller that leaves its line should come again.
func (s *Store) Appoint(ctx context.Context, c store.Charge, wait time.Duration, again bool) (time.Duration, error) {
	return s.node.Appoint(ctx, c, wait, again)
}

// PauseNote returns what an operator said who closed the budget. A
// rowstore knows of none.
func (s *Store) PauseNote(b store.Budget) store.PauseNote {
	return s.node.PauseNote(b)
}
