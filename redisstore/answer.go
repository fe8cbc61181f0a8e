package redisstore

import (
	"slices"
	"time"

	"github.com/fleetthrottle/throttle"
	"github.com/fleetthrottle/throttle/redisstore/internal/history"
	"github.com/fleetthrottle/throttle/redisstore/internal/wire"
)

// perRun and perBudget are how many numbers book.lua answers for some equal
// callers of a run, those for their shadow charges left out, and for a budget.
const (
	perRun    = 5
	perBudget = perRow + perLine
	perRow    = 2*history.Generations + 2
	perLine   = 15
	perTicket = 5
)

// An outcome is what book.lua says of one caller.
type outcome struct {
	booked  bool
	holds   bool  // the seats in flights are taken
	stands  bool  // it stands in line
	again   bool  // nothing can be booked until wait is over: then ask again
	wait    int64 // until the start, in microseconds
	mark    int64
	held    int
	paused  int64 // for how long the budget at held is closed, in microseconds
	over    wire.Frame
	tickets []toldTicket
	since   time.Time // wait is told from then at the earliest; zero: since the call was sent
}

// A toldTicket is a ticket for the charge with that index.
type toldTicket struct {
	ticket
	budgetIndex int
}

// read takes the answer to a batch apart: an outcome for each caller. What it
// says of the budgets is remembered, if all of it makes sense.
func (s *Store) read(b *batch, f *form, v wire.Frame, sent, received time.Time) ([]outcome, error) {
	if v.Size() < 3 {
		return nil, wire.ErrReply
	}
	now, decided := v.At(0), v.At(1)
	group := b.callers[0].charges[0].Budget.Group
	at, since := now, time.Time{}
	last := history.Reply{Group: group, Number: b.number, Sent: b.sent, ServerTime: now, By: received}
	if decided != 0 { // by a copy that was made so much later than the first
		last.Sent, last.ServerTime, last.By = b.sent.Add(min(wire.Wait(v.At(2)), received.Sub(b.sent))), decided, time.Time{}
		at, since = history.DecidedAt(last.Sent, received, decided, now)
	}
	if decided == 0 {
		s.offsets.Observe(group, now, sent, received)
	}
	all, v := readOutcomes(b, v.From(3), at, since)
	size := perBudget * len(f.budgets)
	if all == nil || v.Size() < size {
		return nil, wire.ErrReply
	}
	heard, rest := readFlights(v.From(size), len(f.flights))
	if rest.Size() != 0 || len(heard) != len(f.flights) {
		return nil, wire.ErrReply
	}
	b.heard = heard
	for _, r := range b.runs {
		for i := r.from; i < r.to; i++ {
			if o := &all[i]; i == r.from || o.mark != all[i-1].mark {
				s.noteHeld(b.callers[r.from].charges, o, received)
			}
		}
	}
	for i, c := range f.budgets {
		if s.history.Observe(f.keys[i+1], readKnown(v, c, last, at, received), received) {
			s.announceLoss(group, f.keys[i+1])
		}
		s.queues.answered(s, f.keys[i+1], readLine(v.From(perRow)))
		v = v.From(perBudget)
	}
	return all, nil
}

// readOutcomes reads what an answer of that moment says of the callers, nil if that
// makes no sense, and returns what comes after it.
func readOutcomes(b *batch, v wire.Frame, now int64, since time.Time) (all []outcome, rest wire.Frame) {
	all = make([]outcome, 0, len(b.callers))
	for _, r := range b.runs {
		c := b.callers[r.from]
		at, count := b.written(c), len(c.charges)
		if at != nil {
			count = len(at)
		}
		over := b.shadows(c)
		for len(all) < r.to {
			if v.Size() < perRun+over {
				return nil, nil
			}
			o := outcome{
				booked: v.At(1) == 1 || v.At(1) == 2, holds: v.At(1) == 2, again: v.At(1) == 3, stands: v.At(1) == 4, wait: v.At(2) - now, mark: v.At(2),
				held: int(v.At(3)) - 1, paused: max(0, v.At(4)-now),
				since: since,
			}
			many := v.At(0)
			if many < 1 || many > int64(r.to-len(all)) || !o.sound(count) {
				return nil, nil
			}
			v = v.From(perRun)
			if o.booked {
				o.over, v = v[:8*over], v.From(over)
			}
			var last int64
			if o.stands {
				if last, v = o.readTickets(v, now, count); o.tickets == nil {
					return nil, nil
				}
			}
			o.unfold(c, at)
			for i := range many {
				all = append(all, o.nth(c, i, many, last))
			}
		}
	}
	return all, v
}

// sound reports whether an outcome can be that of so many charges: a start that
// was booked lies after the epoch, and some call ago at most.
func (o *outcome) sound(charges int) bool {
	return o.held >= -1 && o.held < charges &&
		(!o.booked || o.mark > 0 && o.wait > -wire.Micros(throttle.Farthest))
}

// shadows counts the charges for which an answer says more.
func (b *batch) shadows(c *caller) (n int) {
	if c.maxWait < anyWait {
		return 0
	}
	for i := range c.charges {
		if ch := &c.charges[i]; ch.Shadow && !flies(ch) && !b.leavesOut(c, ch) {
			n++
		}
	}
	return n
}

// keep is for how long starts matter to a charge.
func keep(c *throttle.Charge) time.Duration {
	if c.Limit.Kind() != throttle.KindFixedWindow {
		return c.Span()
	}
	// Two windows, because the next one may be longer.
	start, end := c.Limit.Window(time.Now())
	_, end = c.Limit.Window(end)
	return end.Sub(start)
}

// grant is the outcome as callers know it. Shadow charges are told how much
// later they would have started.
func (o *outcome) grant(charges []throttle.Charge, age time.Duration) throttle.Grant {
	over, wait := o.over, wire.Wait(o.wait)
	for i := range charges {
		c := &charges[i]
		c.Over = 0
		if flies(c) {
			if o.booked && !o.holds {
				wait = max(wait, time.Microsecond) // only who need not wait holds
			}
			continue
		}
		if c.Shadow && o.booked {
			c.Over, over = wire.Wait(over.At(0)), over.From(1)
		}
	}
	if !o.since.IsZero() {
		age = max(age, time.Since(o.since))
	}
	if o.booked && o.wait < 0 {
		age += time.Duration(-o.wait) * time.Microsecond // decided when the call was made for the first time
	}
	return throttle.Grant{OK: o.booked, Wait: wait, Age: age, Mark: o.mark, Held: o.held, Paused: o.paused > 0}
}

// readTickets reads when the last of some callers in line will have its turn, and the
// tickets of the first. There are none if that makes no sense.
func (o *outcome) readTickets(v wire.Frame, now int64, charges int) (last int64, rest wire.Frame) {
	if v.Size() < 2 || v.At(1) < 1 || v.At(1) > int64(charges) || v.Size() < 2+perTicket*int(v.At(1)) {
		return 0, nil
	}
	last, count := v.At(0)-now, v.At(1)
	v = v.From(2)
	tickets := make([]toldTicket, 0, count)
	holds := false
	for range count {
		k := int(v.At(0)) - 1
		if k < 0 || k >= charges {
			return 0, nil
		}
		holds = holds || k == o.held
		tickets = append(tickets, toldTicket{ticket{line: v.At(1), number: v.At(2), state: v.At(3), round: v.At(4)}, k})
		v = v.From(perTicket)
	}
	if holds {
		o.tickets = tickets
	}
	return last, v
}

// nth is the outcome of one of so many equal callers that were answered together.
func (o outcome) nth(c *caller, i, many, last int64) outcome {
	if !o.stands || many == 1 {
		return o
	}
	o.wait += (last - o.wait) * i / (many - 1)
	k := slices.IndexFunc(o.tickets, func(t toldTicket) bool { return t.budgetIndex == o.held })
	o.tickets = []toldTicket{o.tickets[k]} // there is one: see readTickets
	o.tickets[0].number += i * costOf(&c.charges[o.held])
	return o
}

// readLine reads what an answer says of the line of one budget.
func readLine(v wire.Frame) lineNews {
	n := lineNews{line: v.At(0), waiting: v.At(1), hurry: v.At(2)}
	for k := range n.cuts {
		n.cuts[k], n.joined[k] = v.At(3+k), v.At(6+k)
		n.first[k], n.last[k] = wire.Wait(v.At(9+k)), wire.Wait(v.At(12+k))
	}
	return n
}
