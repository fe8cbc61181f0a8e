package linecheck

import (
	"cmp"
	"slices"
	"time"

	"github.com/fleetthrottle/throttle/redisstore/internal/wire"
)

const (
	MinLapse = int64(wire.AskSoon/time.Microsecond) * 2 / 5 // an offer does not lapse before this time is over
	kept     = int64(5 * time.Minute / time.Microsecond)    // for how long Redis keeps a line after the last call about it
)

// A Line is what is known of one line: all states in which it may be, after the answers so far.
type Line struct {
	id      int64
	heard   int64 // when the last call was done, by the server's clock in microseconds
	horizon int64 // the largest of all operations, in microseconds
	states  []state
}

// A state is one state in which a line may be after the calls so far: docs/internals/line.md says what the words
// mean. Tickets that were given and are not among the places of a class are gone.
type state struct {
	classes [classes]class
	called  bool // the present call has looked at the line already, so that offers may have lapsed
}

const classes = 3

// A class is what waits with one priority.
type class struct {
	joined, cut int64
	waiting     int64   // the costs that count: with an offer, below the cut, and without an offer, behind it
	places      []place // tickets whose owners did not start, leave or pass, by number
	lapsedCut   int64   // the cut when offers lapsed last: tickets below it count no more
	lapsedAt    int64   // when offers lapsed last
	cutSince    int64   // when the cut moved last, or offers lapsed last
	step        int64   // how far the cut may go after a lapse, though there is no room
	lapsing     bool    // offers lapse in this call
	counted     int64   // the costs of waiters below the cut that came in this call, and wait again
}

// A place is the number of a ticket, and what its owner costs.
type place struct{ number, cost int64 }

// newState returns the state of a line in which nobody has waited yet: the first ticket has number 1.
func newState() state {
	var s state
	for k := range s.classes {
		s.classes[k] = class{joined: 1, cut: 1, lapsedCut: 1}
	}
	return s
}

func (s state) clone() state {
	for k := range s.classes {
		s.classes[k].places = slices.Clone(s.classes[k].places)
	}
	return s
}

// waiting returns the costs that wait in the classes from 1 to class.
func (s *state) waiting(class int) (sum int64) {
	for k := range class {
		sum += s.classes[k].waiting
	}
	return sum
}

// notOffered returns how much of the costs of the class's places lies behind the cut, without an offer.
func (c *class) notOffered() (sum int64) {
	for _, p := range c.places {
		sum += min(p.cost, max(0, p.number+p.cost-c.cut))
	}
	return sum
}

// offered returns how much of the waiting costs has an offer.
func (c *class) offered() int64 { return max(0, c.waiting-c.notOffered()) }

// counts returns how much of a ticket of a cost is part of c.waiting.
func (c *class) counts(t *Ticket, cost int64) int64 {
	switch {
	case t.State == counted && t.Round == c.lapsedAt:
		return cost
	case t.Number == wire.Front || t.State != counted && t.State != waits:
		return 0
	}
	return max(0, min(cost, t.Number+cost-c.lapsedCut))
}

// The states of a ticket that a reply tells: see lua/queue.lua.
const (
	waits wire.TicketState = iota
	counted
	passed
)

// join gives the next ticket to a newcomer.
func (c *class) join(cost int64) {
	c.places = append(c.places, place{c.joined, cost})
	c.joined += cost
	c.waiting += cost
}

// recount counts a ticket in full again: its owner came when its turn had come, and has to wait again.
func (c *class) recount(t *Ticket, cost, round int64) {
	missing := cost - c.counts(t, cost)
	c.waiting += missing
	c.counted += missing
	c.lapsedAt = round
}

// takeOut takes a ticket out of the line. The cut goes behind the ticket if the cut was inside it.
func (c *class) takeOut(t *Ticket, cost int64) {
	n := c.counts(t, cost)
	i, found := slices.BinarySearchFunc(c.places, t.Number, func(p place, number int64) int { return cmp.Compare(p.number, number) })
	if found {
		c.places = slices.Delete(c.places, i, i+1)
	}
	c.waiting = max(0, c.waiting-n)
	if n > 0 && t.Number != wire.Front && t.Number < c.cut {
		c.cut = max(c.cut, min(t.Number+cost, c.joined))
	}
}

// lapse has the offers lapse that nobody took: their costs count no more, and the cut may go further.
func (c *class) lapse(now int64) {
	offered := c.offered()
	c.step = max(2*c.step, offered)
	c.waiting -= offered
	c.lapsedAt, c.lapsedCut, c.cutSince, c.lapsing = now, c.cut, now, true
}

// mayLapse reports whether offers may lapse now.
func (c *class) mayLapse(now int64) bool {
	return c.offered() > 0 && now-c.cutSince > MinLapse
}
