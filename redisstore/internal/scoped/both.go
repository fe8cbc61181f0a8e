package scoped

import (
	"context"
	"time"

	"github.com/fleetthrottle/throttle"
)

// A request can need budgets of the fleet, in Redis, and budgets of this node
// alone, in memory: the halves of its booking.
type halves struct {
	whole           *throttle.Booking
	fleet, node     throttle.Booking
	inFleet, inNode []int // where the charges of a half stand in the whole
	over            []time.Duration
}

// split takes a booking apart.
func split(b *throttle.Booking) *halves {
	h := &halves{whole: b, fleet: *b, node: *b}
	h.fleet.Charges, h.node.Charges, h.node.Instead = nil, nil, nodePart(b.Instead)
	h.fleet.Instead = fleetPart(b.Instead)
	h.fleet.Turn, h.node.Turn = turnsOf(b.Turn)
	for i, c := range b.Charges {
		if c.Node {
			h.node.Charges, h.inNode = append(h.node.Charges, c), append(h.inNode, i)
		} else {
			h.fleet.Charges, h.inFleet = append(h.fleet.Charges, c), append(h.inFleet, i)
		}
	}
	return h
}

// turns are the arrivals of one caller in the lines of both halves.
type turns struct{ fleet, node throttle.Turn }

// turnsOf takes them apart. That of one half is known to that half alone.
func turnsOf(t throttle.Turn) (fleet, node throttle.Turn) {
	if both, ok := t.(turns); ok {
		return both.fleet, both.node
	}
	return t, t
}

// fleetPart is the fleet's half of a handle.
func fleetPart(h throttle.Handle) throttle.Handle {
	h.Node = nil
	return h
}

// nodePart is the node's half of a handle.
func nodePart(h throttle.Handle) throttle.Handle {
	if h.Node == nil {
		return throttle.Handle{}
	}
	return *h.Node
}

// book books one half.
func (h *halves) book(ctx context.Context, s throttle.Store, half *throttle.Booking, in []int) (throttle.Grant, error) {
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
func ofNode(g throttle.Grant) throttle.Grant {
	g.Handle = nodePart(g.Handle)
	_, g.Turn = turnsOf(g.Turn)
	return g
}

// ofFleet is the fleet's half of a grant.
func ofFleet(g throttle.Grant) throttle.Grant {
	g.Handle = fleetPart(g.Handle)
	g.Turn, _ = turnsOf(g.Turn)
	return g
}

// granted is a half's grant as one of the whole.
func (h *halves) granted(g throttle.Grant, in []int) throttle.Grant {
	if g.Held >= 0 {
		g.Held = in[g.Held]
	}
	if h.fleet.Turn != nil || h.node.Turn != nil {
		g.Turn = turns{h.fleet.Turn, h.node.Turn}
	}
	g.Over = h.over
	return g
}

// pick returns some of the costs.
func pick(costs, which []int) []int {
	picked := make([]int, len(which))
	for k, i := range which {
		picked[k] = costs[i]
	}
	return picked
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
