package commit

import (
	"slices"
	"time"

	"github.com/fleetthrottle/throttle"
	"github.com/fleetthrottle/throttle/redisstore/internal/wire"
)

// A call names the unlimited budgets of its callers as gates: keys that Redis looks at and
// leaves alone, as long as nobody has closed them. One that is shut stands in the call as
// a row like any other. See docs/unlimited.md and lua/gates.lua.

// isShut reports whether a budget is shut, as far as the program knows.
func (qs *Queues) isShut(key string, now time.Time) bool {
	return qs.Shut.End(key).After(now) || qs.Pauses.End(key).Add(wire.LeastProbe).After(now)
}

// sort decides which unlimited budgets of a batch are rows: those that are shut, and those
// in whose line a caller has a place. What was decided stays, as long as a call may have
// been done that was written so. Again says that the last one was not, because of those
// that are shut.
func (qs *Queues) sort(b *batch, again bool, shut []wire.Gate) {
	if b.sorted && !again {
		return
	}
	b.sorted = true
	for _, op := range b.ops {
		for i := range op.Charges {
			ch := &op.Charges[i]
			if wire.Unlimited(ch) && !b.rows[ch.Budget.Key] && qs.isRow(op, &ch.Budget, shut) {
				if b.rows == nil {
					b.rows = make(map[[16]byte]bool)
				}
				b.rows[ch.Budget.Key] = true
			}
		}
	}
}

// isRow reports whether an op's unlimited budget is a row.
func (qs *Queues) isRow(op *Op, b *throttle.Budget, shut []wire.Gate) bool {
	if slices.ContainsFunc(op.Tickets, func(t wire.Ticket) bool { return t.Budget == b.Key }) {
		return true
	}
	if len(shut) == 0 && qs.Shut.Empty() && qs.Pauses.Empty() {
		return false
	}
	key := qs.Names.Row(b)
	return qs.isShut(key, time.Now()) || slices.ContainsFunc(shut, func(g wire.Gate) bool { return g.Key == key })
}

// noteShut takes in which gates of a call are shut.
func (qs *Queues) noteShut(gates []wire.Gate) {
	now := time.Now()
	for _, g := range gates {
		qs.Shut.Note(g.Key, now.Add(min(wire.Wait(g.Left), throttle.MaxPenalty)), now)
	}
}
