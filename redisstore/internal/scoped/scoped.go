// Package scoped puts budgets of one node beside those of its fleet: a request can
// need both, and has one start in all of them or in none.
package scoped

import (
	"context"
	"errors"
	"time"

	"github.com/fleetthrottle/throttle"
	"github.com/fleetthrottle/throttle/redisstore/internal/keeper"
)

// A store keeps charges with [throttle.Charge.Node] in one store, and all others
// in another.
type store struct {
	keeper.Finder
	fleet, node throttle.Store
}

// Compose returns a store that keeps budgets of this node in node, and those of the
// fleet in fleet.
func Compose(fleet, node throttle.Store) throttle.Store {
	s := &store{fleet: fleet, node: node}
	s.Finder = func(_ context.Context, c throttle.Charge) (throttle.Store, throttle.Charge) { return s.of(c), c }
	return s
}

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

// bookBoth books one start in both halves or in none. The node names a start,
// the fleet answers with the first one from then on, and the node's start moves
// there. If somebody else of this node was there first, all begins again from the
// next start: that is the only case of more than one round trip.
func (s *store) bookBoth(ctx context.Context, b *throttle.Booking) (throttle.Grant, error) {
	h, asked := split(b), time.Now()
	for {
		named := time.Now()
		mine, err := h.book(ctx, s.node, &h.node, h.inNode)
		if err != nil || !mine.OK {
			s.leave(&h.fleet)
			place := mine.Handle
			h.node.Turn, mine.Handle = mine.Turn, throttle.Handle{Node: &place}
			return h.granted(mine, h.inNode), err
		}
		h.node.Turn = mine.Turn
		h.fleet.NotBefore, h.fleet.MaxWait = mine.Wait, remaining(b.MaxWait, asked)
		theirs, err := h.book(ctx, s.fleet, &h.fleet, h.inFleet)
		h.fleet.Turn = theirs.Turn
		if err != nil || !theirs.OK {
			s.node.Cancel(&h.node, mine)
			return h.granted(theirs, h.inFleet), err
		}
		moved := s.move(ctx, h, mine, theirs.Wait, remaining(b.MaxWait, asked))
		h.node.Turn = moved.Turn
		if !moved.OK || moved.Wait > theirs.Wait {
			s.node.Cancel(&h.node, moved)
			h.node.Instead, h.node.NotBefore, h.fleet.Instead = throttle.Handle{}, theirs.Wait, theirs.Handle
			h.node.Returns, h.fleet.Returns = true, true
			continue
		}
		theirs.Handle.Node = &moved.Handle
		if moved.Handle.Start == mine.Handle.Start {
			theirs.Age = max(theirs.Age, time.Since(named)) // it counts from when it was named
		}
		if theirs.Held < 0 && theirs.Wait > 0 {
			theirs.Held, theirs.Paused = mine.Held, mine.Paused
			return h.granted(theirs, h.inNode), nil
		}
		return h.granted(theirs, h.inFleet), nil
	}
}

// move takes the node's start to a later time, if there is room then. A start that
// need not move keeps what it holds: nobody in line may take it meanwhile.
func (s *store) move(ctx context.Context, h *halves, g throttle.Grant, wait, maxWait time.Duration) throttle.Grant {
	if wait <= g.Wait {
		return g
	}
	h.node.Instead = g.Handle
	if holds(h.node.Charges, g) {
		s.node.Cancel(&h.node, g)
		h.node.Instead = throttle.Handle{}
	}
	h.node.NotBefore, h.node.MaxWait = wait, maxWait
	moved, _ := h.book(ctx, s.node, &h.node, h.inNode) // memory does not fail
	return moved
}

// leave gives back the fleet's half of a start, and its places in line, for a caller
// that waits in a line of the node or was refused there. It keeps its arrival.
func (s *store) leave(b *throttle.Booking) {
	if b.Turn != nil || b.Instead != (throttle.Handle{}) {
		// What is replaced never holds Concurrency charges: it had to wait.
		s.fleet.Cancel(b, throttle.Grant{OK: b.Instead.Start != 0, Handle: b.Instead, Wait: 1, Ready: never, Turn: b.Turn})
	}
}

// never is the Ready of a place in line that is given back.
var never = make(chan struct{})

// holds reports whether a grant holds Concurrency charges.
func holds(charges []throttle.Charge, g throttle.Grant) bool {
	for i := range charges {
		if charges[i].Limit.Kind() == throttle.KindConcurrency {
			return g.OK && g.Wait == 0
		}
	}
	return false
}

// remaining is what is left of a longest wait. One that is spent is not that of a
// caller that never waits, for whom Redis may take longer.
func remaining(maxWait time.Duration, since time.Time) time.Duration {
	if maxWait <= 0 {
		return maxWait
	}
	return max(1, maxWait-time.Since(since))
}
