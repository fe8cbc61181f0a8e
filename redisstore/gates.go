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

// isShut reports whether a budget is shut, as far as the program knows.
func (s *Store) isShut(b *throttle.Budget) bool {
	if s.shut.Empty() && s.pauses.Empty() {
		return false
	}
	key, now := s.key(b), time.Now()
	return s.shut.End(key).After(now) || s.pauses.End(key).Add(wire.LeastProbe).After(now)
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
		for i := range c.Charges {
			ch := &c.Charges[i]
			if !wire.Unlimited(ch) || b.rows[ch.Budget.Key] {
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
			if t.Budget == budget {
				return true
			}
		}
	}
	return false
}

// hearShut takes in which gates of a call are shut.
func (s *Store) hearShut(gates []wire.Gate) {
	now := time.Now()
	for _, g := range gates {
		s.shut.Note(g.Key, now.Add(min(wire.Wait(g.Left), throttle.MaxPenalty)), now)
	}
}
