// Package scoped puts budgets of one node beside those of its fleet: a request can
// need both, and has one start in all of them or in none.
package scoped

import (
	"context"
	"errors"
	"time"

	"github.com/fleetthrottle/throttle"
)

// A store keeps charges with [throttle.Charge.Node] in one store, and all others
// in another.
type store struct{ fleet, node throttle.Store }

// Compose returns a store that keeps budgets of this node in node, and those of the
// fleet in fleet.
func Compose(fleet, node throttle.Store) throttle.Store { return &store{fleet, node} }

// of returns the store of a charge.
func (s *store) of(c throttle.Charge) throttle.Store {
	if c.Node {
		return s.node
	}
	return s.fleet
}

// only returns the store that keeps all of the charges; nil if they need both.
func (s *store) only(charges []throttle.Charge) throttle.Store {
	for i := range charges {
		if charges[i].Node != charges[0].Node {
			return nil
		}
	}
	if len(charges) == 0 {
		return s.fleet
	}
	return s.of(charges[0])
}

// Book implements [throttle.Store].
func (s *store) Book(ctx context.Context, b *throttle.Booking) (throttle.Grant, error) {
	if one := s.only(b.Charges); one != nil {
		return one.Book(ctx, b)
	}
	return s.bookBoth(ctx, b)
}

// Cancel implements [throttle.Store].
func (s *store) Cancel(b *throttle.Booking, g throttle.Grant) {
	if one := s.only(b.Charges); one != nil {
		one.Cancel(b, g)
		return
	}
	h := split(b)
	s.fleet.Cancel(&h.fleet, ofFleet(g))
	s.node.Cancel(&h.node, ofNode(g))
}

// Release implements [throttle.Store].
func (s *store) Release(b *throttle.Booking, g throttle.Grant) {
	if one := s.only(b.Charges); one != nil {
		one.Release(b, g)
		return
	}
	h := split(b)
	s.fleet.Release(&h.fleet, ofFleet(g))
	s.node.Release(&h.node, ofNode(g))
}

// Settle implements [throttle.Store].
func (s *store) Settle(ctx context.Context, b *throttle.Booking, g throttle.Grant, costs []int) error {
	if one := s.only(b.Charges); one != nil {
		return one.Settle(ctx, b, g, costs)
	}
	h := split(b)
	return errors.Join(
		s.node.Settle(ctx, &h.node, ofNode(g), pick(costs, h.inNode)),
		s.fleet.Settle(ctx, &h.fleet, ofFleet(g), pick(costs, h.inFleet)))
}

// Pause implements [throttle.Store].
func (s *store) Pause(ctx context.Context, c throttle.Charge, d time.Duration) error {
	return s.of(c).Pause(ctx, c, d)
}

// Refuse implements [throttle.Store].
func (s *store) Refuse(ctx context.Context, c throttle.Charge, r throttle.Refusal) (from, to float64, err error) {
	if c.Node && r.Start.Handle.Node != nil {
		r.Start = ofNode(r.Start)
	}
	return s.of(c).Refuse(ctx, c, r)
}

// Resume implements [throttle.Store].
func (s *store) Resume(ctx context.Context, c throttle.Charge) error { return s.of(c).Resume(ctx, c) }

// Reconcile implements [throttle.Store].
func (s *store) Reconcile(ctx context.Context, c throttle.Charge, q throttle.Quota) error {
	return s.of(c).Reconcile(ctx, c, q)
}

// Status implements [throttle.Store].
func (s *store) Status(ctx context.Context, c throttle.Charge) (throttle.Status, error) {
	return s.of(c).Status(ctx, c)
}

// Watch implements [throttle.Store].
func (s *store) Watch(b *throttle.Booking, g throttle.Grant, news chan<- struct{}) throttle.Watch {
	if one := s.only(b.Charges); one != nil {
		return one.Watch(b, g, news)
	}
	h := split(b)
	return &watch{s.fleet.Watch(&h.fleet, ofFleet(g), news), s.node.Watch(&h.node, ofNode(g), news)}
}

// A watch is kept over a start in budgets of the fleet and of this node.
type watch struct {
	inFleet, inNode throttle.Watch
}

// Confirm implements [throttle.Watch].
func (w *watch) Confirm(ctx context.Context, maxWait time.Duration) (bool, error) {
	good, err := w.inFleet.Confirm(ctx, maxWait)
	if err != nil || !good {
		return false, err
	}
	return w.inNode.Confirm(ctx, maxWait)
}

// Stop implements [throttle.Watch].
func (w *watch) Stop() {
	w.inFleet.Stop()
	w.inNode.Stop()
}
