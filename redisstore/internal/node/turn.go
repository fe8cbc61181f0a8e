package node

import (
	"cmp"
	"encoding/binary"
	"slices"
	"time"

	"github.com/fleetthrottle/throttle/redisstore/internal/wire"
	"github.com/fleetthrottle/throttle/store"
)

// A turn is what this node knows of a caller that waits in line for a start, or did: its tickets. It is the
// [store.Turn] of its caller. See docs/internals/line.md and lua/queue.lua. The lock of the node guards it.
type turn struct {
	charges []store.Charge // of the last booking of the caller
	class   int64          // of the caller's priority: see classOf
	tickets []wire.Ticket  // one for each line in which the caller waits or waited
	inLine  bool           // Redis believes that the caller waits
	started bool           // the caller had a start: in lines where it has no ticket it goes before all other callers

	// The fields below are about the line in which the caller waits to be summoned.
	lineKey   string // the key of the line's budget, or "" while the caller does not wait
	share     uint64 // of the lane in which it waits there
	number    int64  // of the caller's ticket there; it does not change while an op has the turn
	cost      int64
	ready     chan struct{}
	nearAt    time.Time // when its start is within the horizon, by the last estimate
	comeBy    time.Time // when the caller is summoned at the latest
	notBefore time.Time // when the caller is summoned at the earliest
	waits     int       // how often the caller had to wait in lines
	deadline  time.Time // a start after this is of no use to the caller; the zero time if any start is of use
	horizon   time.Duration
	gathering *gathering // that expects the caller, or nil unless it was summoned and has not come yet
}

// classOf returns the class of a priority, 1 for High to 3 for Low: see lua/queue.lua.
func classOf(p store.Priority) int64 {
	return int64(store.PriorityHigh-max(store.PriorityLow, min(p, store.PriorityHigh))) + 1
}

// laneID names the lane in which the caller waits.
func (t *turn) laneID() wire.LaneID { return wire.LaneID{Class: t.class, Share: t.share} }

// compareTurns orders the turns of one line: by class, then by share, then by ticket.
func compareTurns(a, b *turn) int {
	return cmp.Or(cmp.Compare(a.class, b.class), cmp.Compare(a.share, b.share), cmp.Compare(a.number, b.number))
}

// leave returns the op that gives up the turn's places in lines, or nil if it has none.
func (t *turn) leave() *op {
	if !t.inLine {
		return nil
	}

	o := keepOp(wire.Cancel, slices.Clone(t.charges)...)
	o.Class, o.Tickets = t.class, slices.Clone(t.tickets)
	t.inLine, t.tickets = false, nil
	return o
}

// markHadStart marks the tickets of a turn that has left its lines: the caller had a start. A caller that comes
// back with them goes before all callers that came later.
func (t *turn) markHadStart() {
	for i := range t.tickets {
		t.tickets[i].State = wire.HadStart
	}
}

// setComeBy sets nearAt, and comeBy a little later: within the horizon there is time for several answers of
// Redis.
func (t *turn) setComeBy(near time.Time) {
	spare := t.horizon/2 - summonDelay
	if t.share != 0 {
		spare = t.horizon*3/5 - summonDelay // a third of the horizon before its start Redis would summon it
	}
	t.nearAt = latest(near, t.notBefore)
	t.comeBy = t.nearAt.Add(max(0, min(maxSpare, spare)))
}

func latest(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}

	return b
}

func earliest(a, b time.Time) time.Time {
	if b.Before(a) {
		return b
	}

	return a
}

// keptSize is how many bytes a kept ticket takes.
const keptSize = 16 + 3*8

// KeepTurn appends the tickets of a caller that has left its lines; [Node.RestoreTurn] reads them. In Redis they
// are holes, and cost nothing.
func (n *Node) KeepTurn(b []byte, arrival store.Turn) []byte {
	t, ok := arrival.(*turn)
	if !ok {
		return b
	}

	n.mu.Lock()
	defer n.mu.Unlock()

	for _, k := range t.tickets {
		b = append(b, k.Budget[:]...)
		b = binary.BigEndian.AppendUint64(b, uint64(k.Line))
		b = binary.BigEndian.AppendUint64(b, uint64(k.Number))
		b = binary.BigEndian.AppendUint64(b, k.Share)
	}

	return b
}

// RestoreTurn returns the turn of a caller that kept its tickets, in this process or a later one. In the line that
// gave a ticket the caller goes where it stood. A line that has ended since was older than the line that is there,
// so the caller goes before all of its class. Without tickets RestoreTurn returns nil. It returns false if the
// bytes do not hold tickets.
func (n *Node) RestoreTurn(b *store.Booking, kept []byte) (store.Turn, bool) {
	if len(kept)%keptSize != 0 {
		return nil, false
	}

	t := &turn{charges: slices.Clone(b.Charges), class: classOf(b.Priority), started: true}
	for ; len(kept) > 0; kept = kept[keptSize:] {
		k := wire.Ticket{Budget: [16]byte(kept), State: wire.HadStart}

		// Kept bytes come from outside, so no number is larger than Redis can give.
		line, number, share := binary.BigEndian.Uint64(kept[16:]), binary.BigEndian.Uint64(kept[24:]), binary.BigEndian.Uint64(kept[32:])
		if max(line, number, share) > wire.MostTicket {
			return nil, false
		}

		k.Line, k.Number, k.Share = int64(line), int64(number), share

		// Each ticket is for one charge of this booking, and each charge has one ticket at the most.
		isSame := func(known wire.Ticket) bool { return known.Budget == k.Budget }
		isCharged := func(c store.Charge) bool { return c.Budget.Key == k.Budget && !wire.ForSlots(&c) }
		if !slices.ContainsFunc(b.Charges, isCharged) || slices.ContainsFunc(t.tickets, isSame) {
			return nil, false
		}

		t.tickets = append(t.tickets, k)
	}

	if len(t.tickets) == 0 {
		return nil, true
	}

	return t, true
}
