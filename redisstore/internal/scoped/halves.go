package scoped

import (
	"context"
	"slices"
	"time"

	"github.com/fleetthrottle/throttle/store"
)

// A request can need budgets of the fleet, in Redis, and budgets of this node
// alone, in memory: the halves of its booking.
type halves struct {
	whole           *store.Booking
	fleet, node     store.Booking
	inFleet, inNode []int           // the indexes in the whole of the charges of each half
	over            []time.Duration // Grant.Over of the whole, as far as the halves were booked
}

// split returns the halves of a booking.
func split(b *store.Booking) *halves {
	h := &halves{whole: b, fleet: *b, node: *b}

	// Each half has its own part of the start that is given back, and of the places in line.
	h.fleet.Instead, h.node.Instead = fleetPart(b.Instead), nodePart(b.Instead)
	h.fleet.Turn, h.node.Turn = turnsOf(b.Turn)

	h.fleet.Charges, h.node.Charges = nil, nil
	for i, c := range b.Charges {
		if c.Node {
			h.node.Charges, h.inNode = append(h.node.Charges, c), append(h.inNode, i)
		} else {
			h.fleet.Charges, h.inFleet = append(h.fleet.Charges, c), append(h.inFleet, i)
		}
	}

	// A place without a node's part is the fleet's, or of a caller that needed the node's store alone before. It is a place in a line for slots, and a
	// booking in its stead has the same charges for slots: if none of them is the fleet's, the place is the node's.
	if b.Instead.Place != 0 && b.Instead.Node == nil && !slices.ContainsFunc(h.fleet.Charges, isForSlots) {
		h.fleet.Instead, h.node.Instead = store.Handle{}, b.Instead
	}
	return h
}

// isForSlots reports whether a charge is for slots.
func isForSlots(c store.Charge) bool { return c.Limit.Kind() == store.KindConcurrency }

// turns are the arrivals of one caller in the lines of both halves.
type turns struct{ fleet, node store.Turn }

// turnsOf returns the arrivals of both halves. A Turn of a single store is returned for both:
// the other store does not know it.
func turnsOf(t store.Turn) (fleet, node store.Turn) {
	if both, ok := t.(turns); ok {
		return both.fleet, both.node
	}
	return t, t
}

// fleetPart is the fleet's half of a handle.
func fleetPart(h store.Handle) store.Handle {
	h.Node = nil
	return h
}

// nodePart is the node's half of a handle.
func nodePart(h store.Handle) store.Handle {
	if h.Node == nil {
		return store.Handle{}
	}
	return *h.Node
}

// book books one half in its store, and notes in h.over by how much the half's shadows would have delayed the start. in has
// the indexes in the whole of the half's charges.
func (h *halves) book(ctx context.Context, s store.Store, half *store.Booking, in []int) (store.Grant, error) {
	g, err := s.Book(ctx, half)
	for k, over := range g.Over {
		if h.over == nil {
			h.over = make([]time.Duration, len(h.whole.Charges))
		}
		h.over[in[k]] = over
	}
	return g, err
}

// ofNode is the node's half of a grant.
func ofNode(g store.Grant) store.Grant {
	g.Handle = nodePart(g.Handle)
	_, g.Turn = turnsOf(g.Turn)
	return g
}

// ofFleet is the fleet's half of a grant.
func ofFleet(g store.Grant) store.Grant {
	g.Handle = fleetPart(g.Handle)
	g.Turn, _ = turnsOf(g.Turn)
	return g
}

// granted returns the grant of one half as a grant to the whole booking, with the Turns and the Over of both halves. in has
// the indexes in the whole of the half's charges.
func (h *halves) granted(g store.Grant, in []int) store.Grant {
	if g.HeldBy >= 0 {
		g.HeldBy = in[g.HeldBy]
	}

	if h.fleet.Turn != nil || h.node.Turn != nil {
		g.Turn = turns{h.fleet.Turn, h.node.Turn}
	}
	g.Over = h.over
	return g
}

// pick returns the costs at some indexes.
func pick(costs, indexes []int) []int {
	picked := make([]int, len(indexes))
	for k, i := range indexes {
		picked[k] = costs[i]
	}
	return picked
}
