package linecheck

import (
	"fmt"
	"slices"

	"github.com/fleetthrottle/throttle/redisstore/internal/wire"
)

// operate applies one operation of a call that was done at now to a state. at is the index of the charge
// for the line's row. It returns an error if an answer to the operation is not allowed.
func (l *Line) operate(s *state, op *Op, at int, now int64) error {
	var held *Ticket
	for i := range op.Tickets {
		if t := op.Tickets[i]; t.Charge == at && t.Line == l.id {
			held = &t
		}
	}

	class, cost := &s.classes[op.Class-1], op.Charges[at].Cost
	switch op.Kind {
	case wire.Renew, wire.Settle:
		return nil
	case wire.Cancel:
		if held != nil {
			class.takeOut(held, cost)
		}
		return nil
	}

	for _, o := range op.Outcomes {
		if err := checkOrder(s, op, at, held, &o, now); err != nil {
			return err
		}

		switch {
		case o.State == wire.Unsettled || o.State == wire.Booked && op.Horizon == 0:
		case o.State != wire.InLine:
			if held == nil {
				break
			}
			class.takeOut(held, cost)
			held.State = wire.HadStart
			if o.State == wire.Booked || o.State == wire.Held {
				class.step = 0
			}
		default:
			if err := class.keepWaiting(op, at, held, &o, cost, l.id); err != nil {
				return err
			}
		}
	}
	return nil
}

// checkOrder returns an error if a newcomer starts at once although waiters go before it, or if a
// caller is told to wait until now. held is the caller's ticket, or nil if it has none.
func checkOrder(s *state, op *Op, at int, held *Ticket, o *Outcome, now int64) error {
	if o.State == wire.InLine && o.At <= now {
		return fmt.Errorf("a caller has to wait in line, until now")
	}
	starts := (o.State == wire.Booked || o.State == wire.Held) && o.At <= now
	if !starts || op.Horizon == 0 || op.Charges[at].Shadow || held != nil || op.Returns {
		return nil
	}
	if n := s.waiting(op.Class); n > 0 {
		return fmt.Errorf("a newcomer starts at once, though %d go before it", n)
	}
	return nil
}

// keepWaiting applies an answer by which a caller has to wait. held is the caller's ticket, or nil if it gets a ticket.
// The ticket is set to what the answer says of it.
func (c *class) keepWaiting(op *Op, at int, held *Ticket, o *Outcome, cost, id int64) error {
	i := slices.IndexFunc(o.Tickets, func(t Ticket) bool { return t.Charge == at })
	if i < 0 {
		return nil
	}

	// The ticket must be the caller's own, a ticket in front, or the next ticket of the class.
	t := &o.Tickets[i]
	switch {
	case t.Line != id:
		return nil // of a line that is over
	case held == nil && t.Number == wire.Front:
		if !op.Returns {
			return fmt.Errorf("a caller that had no start goes before all")
		}
		held = &Ticket{at, wire.Ticket{Line: id, Number: wire.Front}}
	case held == nil:
		if t.Number != c.joined {
			return fmt.Errorf("ticket %d is given, and the next one is %d", t.Number, c.joined)
		}
		for range o.Callers {
			c.join(cost)
		}
		held = &Ticket{at, wire.Ticket{Line: id, Number: t.Number}}
	case t.Number != held.Number:
		return fmt.Errorf("ticket %d has become %d", held.Number, t.Number)
	}

	// The state of a ticket may only change to counted or to passed.
	switch {
	case t.State == counted:
		if t.Number >= c.joined {
			return fmt.Errorf("ticket %d was never given", t.Number)
		}
		if held.State != counted || held.Round != t.Round {
			c.recount(held, cost, t.Round)
		}
	case t.State == passed && held.State != passed:
		c.takeOut(held, cost)
	case t.State != held.State:
		return fmt.Errorf("ticket %d was in state %d, and is in %d", t.Number, held.State, t.State)
	}
	*held = *t
	return nil
}
