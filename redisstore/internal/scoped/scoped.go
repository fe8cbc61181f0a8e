// Package scoped composes a store of a fleet's budgets and a store of one node's budgets: a request can
// need both, and has one start in all of them or in none.
package scoped

import (
	"context"
	"encoding/binary"
	"errors"
	"time"

	"github.com/fleetthrottle/throttle/store"
)

// A composed store keeps charges with [store.Charge.Node] in one store, and the rest in the store of the fleet.
type composed struct {
	fleet, node store.Store
}

// Compose returns a store that keeps budgets of this node in node, and budgets of the
// fleet in fleet.
func Compose(fleet, node store.Store) store.Store {
	return &composed{fleet: fleet, node: node}
}

// storeOf returns the store that keeps a charge.
func (s *composed) storeOf(c store.Charge) store.Store {
	if c.Node {
		return s.node
	}
	return s.fleet
}

// singleStore returns the store that keeps all of the charges, or nil if they need both stores. Without charges it is the
// fleet's store.
func (s *composed) singleStore(charges []store.Charge) store.Store {
	for i := range charges {
		if charges[i].Node != charges[0].Node {
			return nil
		}
	}
	if len(charges) == 0 {
		return s.fleet
	}
	return s.storeOf(charges[0])
}

// Book implements [store.Store].
func (s *composed) Book(ctx context.Context, b *store.Booking) (store.Grant, error) {
	if single := s.singleStore(b.Charges); single != nil {
		return s.bookSingle(ctx, single, b)
	}
	return s.bookBoth(ctx, b)
}

// bookSingle books in one store. If the charges of the caller have changed since it stood in lines of both stores, it gives
// up its places in lines of the other.
func (s *composed) bookSingle(ctx context.Context, single store.Store, b *store.Booking) (store.Grant, error) {
	both, _ := b.Turn.(turns)
	if both == (turns{}) && b.Instead.Node == nil {
		return single.Book(ctx, b)
	}

	own, other, ownTurn, otherTurn := *b, s.node, both.fleet, both.node
	own.Instead = fleetPart(b.Instead)
	if single == s.node {
		other, ownTurn, otherTurn = s.fleet, both.node, both.fleet
		own.Instead = nodePart(b.Instead)
	}

	if otherTurn != nil {
		other.Cancel(&store.Booking{}, store.Grant{Ready: never, Turn: otherTurn, HeldBy: store.NotHeld})
	}

	// A Turn of a single store stays as it is.
	if both != (turns{}) {
		own.Turn = ownTurn
	}
	return single.Book(ctx, &own)
}

// Cancel implements [store.Store].
func (s *composed) Cancel(b *store.Booking, g store.Grant) {
	if single := s.singleStore(b.Charges); single != nil {
		single.Cancel(b, g)
		return
	}
	h := split(b)
	s.fleet.Cancel(&h.fleet, ofFleet(g))
	s.node.Cancel(&h.node, ofNode(g))
}

// Release implements [store.Store].
func (s *composed) Release(b *store.Booking, g store.Grant) {
	if single := s.singleStore(b.Charges); single != nil {
		single.Release(b, g)
		return
	}
	h := split(b)
	s.fleet.Release(&h.fleet, ofFleet(g))
	s.node.Release(&h.node, ofNode(g))
}

// Settle implements [store.Store].
func (s *composed) Settle(ctx context.Context, b *store.Booking, g store.Grant, costs []int) error {
	if single := s.singleStore(b.Charges); single != nil {
		return single.Settle(ctx, b, g, costs)
	}
	h := split(b)

	// Both halves are settled, also if one of them fails.
	return errors.Join(
		s.node.Settle(ctx, &h.node, ofNode(g), pick(costs, h.inNode)),
		s.fleet.Settle(ctx, &h.fleet, ofFleet(g), pick(costs, h.inFleet)))
}

// Pause implements [store.Store].
func (s *composed) Pause(ctx context.Context, c store.Charge, d time.Duration) error {
	return s.storeOf(c).Pause(ctx, c, d)
}

// Refuse implements [store.Store].
func (s *composed) Refuse(ctx context.Context, c store.Charge, r store.Refusal) (from, to float64, err error) {
	// The start of a booking for the node's store alone has the store's own handle.
	if c.Node && r.Start.Handle.Node != nil {
		r.Start = ofNode(r.Start)
	}
	return s.storeOf(c).Refuse(ctx, c, r)
}

// Resume implements [store.Store].
func (s *composed) Resume(ctx context.Context, c store.Charge) error {
	return s.storeOf(c).Resume(ctx, c)
}

// Reconcile implements [store.Store].
func (s *composed) Reconcile(ctx context.Context, c store.Charge, q store.Quota) error {
	return s.storeOf(c).Reconcile(ctx, c, q)
}

// Status implements [store.Store].
func (s *composed) Status(ctx context.Context, c store.Charge) (store.Status, error) {
	return s.storeOf(c).Status(ctx, c)
}

// Watch implements [store.Store].
func (s *composed) Watch(b *store.Booking, g store.Grant, news chan<- struct{}) store.Watch {
	if single := s.singleStore(b.Charges); single != nil {
		return single.Watch(b, g, news)
	}
	h := split(b)
	return &watch{s.fleet.Watch(&h.fleet, ofFleet(g), news), s.node.Watch(&h.node, ofNode(g), news)}
}

// A watch is kept over a start in budgets of the fleet and of this node.
type watch struct {
	inFleet, inNode store.Watch
}

// Confirm implements [store.Watch].
func (w *watch) Confirm(ctx context.Context, maxWait time.Duration) (bool, error) {
	// The question to the fleet may fail, so it comes first.
	good, err := w.inFleet.Confirm(ctx, maxWait)
	if err != nil || !good {
		return false, err
	}
	return w.inNode.Confirm(ctx, maxWait)
}

// Stop implements [store.Watch].
func (w *watch) Stop() {
	w.inFleet.Stop()
	w.inNode.Stop()
}

// bookBoth books one start in the budgets of both stores, or in none. The node's store books a start
// first, the fleet's store books its first start that is no earlier, and the node's start moves to that time. If
// a second caller of this node has taken the room there meanwhile, bookBoth begins again from the next
// start: that is the only case of more than one round trip to the fleet's store.
func (s *composed) bookBoth(ctx context.Context, b *store.Booking) (store.Grant, error) {
	h, asked := split(b), time.Now()
	for {
		nodeAsked := time.Now()
		nodeGrant, err := h.book(ctx, s.node, &h.node, h.inNode)

		// The node's store books no start: the caller waits in its line, or is refused. It gives back what it has in the fleet.
		if err != nil || !nodeGrant.OK {
			s.leaveFleet(&h.fleet)
			place := nodeGrant.Handle
			h.node.Turn, nodeGrant.Handle = nodeGrant.Turn, store.Handle{Node: &place}
			return h.granted(nodeGrant, h.inNode), err
		}

		h.node.Turn = nodeGrant.Turn

		// The fleet's start is no earlier than the node's, which may move to it.
		h.fleet.NotBefore, h.fleet.MaxWait = nodeGrant.Wait, remaining(b.MaxWait, asked)
		fleetGrant, err := h.book(ctx, s.fleet, &h.fleet, h.inFleet)
		h.fleet.Turn = fleetGrant.Turn

		// All or nothing: without a start in the fleet the node's start goes back.
		if err != nil || !fleetGrant.OK {
			s.node.Cancel(&h.node, nodeGrant)
			return h.granted(fleetGrant, h.inFleet), err
		}

		moved := s.move(ctx, h, nodeGrant, fleetGrant.Wait, remaining(b.MaxWait, asked))
		h.node.Turn = moved.Turn

		// A second caller has taken the room. Begin again: the node's next start is no earlier than the fleet's, which is given back.
		if !moved.OK || moved.Wait > fleetGrant.Wait {
			s.node.Cancel(&h.node, moved)
			h.node.Instead, h.node.NotBefore, h.fleet.Instead = store.Handle{}, fleetGrant.Wait, fleetGrant.Handle
			if holdsSlots(h.fleet.Charges, fleetGrant) {
				s.fleet.Cancel(&h.fleet, fleetGrant) // a start with slots is not replaced
				h.fleet.Instead = store.Handle{}
			}
			h.node.Returns, h.fleet.Returns = true, true // the caller has given up a start in both
			continue
		}

		// A start of the node that has not moved was booked before the fleet was asked.
		fleetGrant.Handle.Node = &moved.Handle
		if moved.Handle.Start == nodeGrant.Handle.Start {
			fleetGrant.Age = max(fleetGrant.Age, time.Since(nodeAsked))
		}

		// No budget of the fleet held the start back, so a budget of the node did.
		if fleetGrant.HeldBy < 0 && fleetGrant.Wait > 0 {
			fleetGrant.HeldBy, fleetGrant.Paused = nodeGrant.HeldBy, nodeGrant.Paused
			return h.granted(fleetGrant, h.inNode), nil
		}

		return h.granted(fleetGrant, h.inFleet), nil
	}
}

// move moves g, the node's start, to the first time with room from wait on, and returns the grant there: no start, if there
// is no room within maxWait. It changes h.node. If the start is at wait or later already, move returns g as it is: to give g back and
// to book anew would let a waiter of this node take its room.
func (s *composed) move(ctx context.Context, h *halves, g store.Grant, wait, maxWait time.Duration) store.Grant {
	if wait <= g.Wait {
		return g
	}

	// A start with slots cannot be replaced: it is given back, and booked anew.
	if holdsSlots(h.node.Charges, g) {
		h.node.Instead = g.Handle
		s.node.Cancel(&h.node, g)
		h.node.Instead = store.Handle{}
	} else {
		h.node.Instead = g.Handle
	}

	h.node.NotBefore, h.node.MaxWait = wait, maxWait
	moved, _ := h.book(ctx, s.node, &h.node, h.inNode) // memory does not fail
	return moved
}

// leaveFleet gives back a caller's start or places in line in the fleet's store, if it has any, because the
// caller waits in a line of the node or was refused there. The caller keeps its Turn.
func (s *composed) leaveFleet(b *store.Booking) {
	if b.Turn != nil || b.Instead != (store.Handle{}) {
		// A grant that a booking replaces holds no Concurrency charges: its start had a wait.
		s.fleet.Cancel(b, store.Grant{OK: b.Instead.Start != 0, Handle: b.Instead, Wait: 1, Ready: never, Turn: b.Turn})
	}
}

// never is the Ready of a place in line that is given back.
var never = make(chan struct{})

// holdsSlots reports whether a grant to a booking of the charges holds slots.
func holdsSlots(charges []store.Charge, g store.Grant) bool {
	for i := range charges {
		if charges[i].Limit.Kind() == store.KindConcurrency {
			return g.OK && g.Wait == 0
		}
	}
	return false
}

// remaining returns the rest of maxWait, a Booking.MaxWait that began at since. If nothing is left it
// returns 1 and not 0, which is the MaxWait of a caller that never waits: Redis may take longer to answer
// such a caller.
func remaining(maxWait time.Duration, since time.Time) time.Duration {
	if maxWait <= 0 {
		return maxWait
	}
	return max(1, maxWait-time.Since(since))
}

// keptByBoth is the first byte of a kept Turn of both stores. The length of the fleet's half and the two halves
// follow. A Turn of one store is kept by that store.
const keptByBoth = 'b'

// Traits implements [store.Store].
func (s *composed) Traits() store.Traits {
	return store.Traits{Places: s.fleet.Traits().Places && s.node.Traits().Places}
}

// PauseNote implements [store.Store].
func (s *composed) PauseNote(b store.Budget) store.PauseNote { return s.fleet.PauseNote(b) }

// KeepTurn implements [store.Store].
func (s *composed) KeepTurn(b *store.Booking, t store.Turn) []byte {
	if single := s.singleStore(b.Charges); single != nil {
		return single.KeepTurn(b, t)
	}
	h := split(b)
	fleet, node := turnsOf(t)
	inFleet := s.fleet.KeepTurn(&h.fleet, fleet)
	kept := append(binary.AppendUvarint([]byte{keptByBoth}, uint64(len(inFleet))), inFleet...)
	return append(kept, s.node.KeepTurn(&h.node, node)...)
}

// RestoreTurn implements [store.Store].
func (s *composed) RestoreTurn(b *store.Booking, kept []byte) (store.Turn, bool) {
	if single := s.singleStore(b.Charges); single != nil {
		return single.RestoreTurn(b, kept)
	}

	// The first byte tells a Turn of both stores from a Turn of one.
	if len(kept) < 2 || kept[0] != keptByBoth {
		return nil, false
	}

	// Then come the size of the fleet's part, that part, and the node's part.
	size, read := binary.Uvarint(kept[1:])
	if read <= 0 || size > uint64(len(kept)-1-read) {
		return nil, false
	}

	h, parts := split(b), kept[1+read:]
	fleet, ok := s.fleet.RestoreTurn(&h.fleet, parts[:size])
	node, okNode := s.node.RestoreTurn(&h.node, parts[size:])
	if fleet == nil && node == nil {
		return nil, ok && okNode
	}

	return turns{fleet, node}, ok && okNode
}

// Appoint implements [store.Store].
func (s *composed) Appoint(ctx context.Context, c store.Charge, wait time.Duration, again bool) (time.Duration, error) {
	return s.storeOf(c).Appoint(ctx, c, wait, again)
}
