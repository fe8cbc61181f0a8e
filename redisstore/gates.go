package redisstore

import (
	"slices"
	"time"

	"github.com/fleetthrottle/throttle"
	"github.com/fleetthrottle/throttle/redisstore/internal/wire"
)

// A call names the unlimited budgets of its callers as gates: keys that Redis looks at and
// leaves alone, as long as nobody has closed them. One that is shut stands in the call as
// a row like any other. See docs/unlimited.md and lua/gates.lua.

// probeTime is for how long a budget stays shut after a penalty at the least, as in lua/penalty.lua.
// One that is shut for longer says so itself.
const probeTime = 250 * time.Millisecond

// isFree reports whether the charge is for an unlimited budget.
func isFree(c *throttle.Charge) bool { return c.Limit.Kind() == throttle.KindUnlimited }

// costOf is what a charge costs its budget. What an unlimited one costs means nothing.
func costOf(c *throttle.Charge) int64 {
	if isFree(c) {
		return 1
	}
	return int64(c.Cost)
}

// isShut reports whether a budget is shut, as far as the program knows.
func (s *Store) isShut(b *throttle.Budget) bool {
	if s.shut.Empty() && s.pauses.Empty() {
		return false
	}
	key, now := s.key(b), time.Now()
	return s.shut.End(key).After(now) || s.pauses.End(key).Add(probeTime).After(now)
}

// sort decides which unlimited budgets of a batch are rows: those that are shut, and those
// in whose line a caller has a place. What was decided stays, as long as a call may have
// been done that was written so. Again says that the last one was not, because of those
// that are shut.
func (s *Store) sort(b *batch, again bool, shut []wire.Gate) {
	if b.sorted && !again {
		return
	}
	b.sorted = true
	for _, c := range b.callers {
		for i := range c.charges {
			ch := &c.charges[i]
			if !isFree(ch) || b.rows[ch.Budget.Key] {
				continue
			}
			if s.isShut(&ch.Budget) || c.hasTicket(ch.Budget.Key) || contains(shut, s, &ch.Budget) {
				if b.rows == nil {
					b.rows = make(map[[16]byte]bool)
				}
				b.rows[ch.Budget.Key] = true
			}
		}
	}
}

func contains(gates []wire.Gate, s *Store, b *throttle.Budget) bool {
	if len(gates) == 0 {
		return false
	}
	own := s.key(b)
	return slices.ContainsFunc(gates, func(g wire.Gate) bool { return g.Key == own })
}

// hasTicket reports whether the caller has a place in the line of a budget.
func (c *caller) hasTicket(budget [16]byte) bool {
	if c.turn != nil {
		for _, t := range c.turn.tickets {
			if t.budget == budget {
				return true
			}
		}
	}
	return false
}

// leavesOut reports whether a call says nothing of a caller's charge but, at most, that it
// is a gate.
func (b *batch) leavesOut(c *caller, ch *throttle.Charge) bool {
	return isFree(ch) && (c.maxWait == changeCost || !b.rows[ch.Budget.Key])
}

// written returns where those of a caller's charges stand that a call says something of;
// nil if those are all.
func (b *batch) written(c *caller) []int {
	all := true
	for i := range c.charges {
		all = all && !b.leavesOut(c, &c.charges[i])
	}
	if all {
		return nil
	}
	at := make([]int, 0, len(c.charges))
	for i := range c.charges {
		if !b.leavesOut(c, &c.charges[i]) {
			at = append(at, i)
		}
	}
	return at
}

// hearShut takes in which gates of a call are shut.
func (s *Store) hearShut(gates []wire.Gate) {
	now := time.Now()
	for _, g := range gates {
		s.shut.Note(g.Key, now.Add(min(wire.Wait(g.Left), throttle.MaxPenalty)), now)
	}
}

// unfold makes what a call said of some charges what it means for all, where those stand
// at.
func (o *outcome) unfold(c *caller, at []int) {
	if at == nil {
		return
	}
	if o.held >= 0 {
		o.held = at[o.held]
	}
	for i := range o.tickets {
		o.tickets[i].budgetIndex = at[o.tickets[i].budgetIndex]
	}
	over, told := o.over, wire.Frame(nil)
	for i := range c.charges {
		ch := &c.charges[i]
		switch {
		case !o.booked || !ch.Shadow || flies(ch):
		case len(at) > 0 && at[0] == i:
			told, over = told.Add(over.At(0)), over.From(1)
		default:
			told = told.Add(0) // it was open
		}
		if len(at) > 0 && at[0] == i {
			at = at[1:]
		}
	}
	o.over = told
}
