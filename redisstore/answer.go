package redisstore

import (
	"time"

	"github.com/fleetthrottle/throttle"
)

// perRun and perBudget are how many numbers book.lua answers for some equal
// callers of a run, those for their shadow charges left out, and for a budget.
const (
	perRun    = 5
	perBudget = 2*lives + 2
)

// An outcome is what book.lua says of one caller.
type outcome struct {
	booked bool
	holds  bool  // the seats in flights are taken
	wait   int64 // until the start, in microseconds
	mark   int64
	held   int
	paused int64 // for how long the budget at held is closed, in microseconds
	over   numbers
}

// read takes the answer to a batch apart: an outcome for each caller. What it
// says of the budgets is remembered.
func (s *Store) read(b *batch, f *form, v numbers, received time.Time) ([]outcome, error) {
	now, v := v.at(0), v.from(1)
	all := make([]outcome, 0, len(b.callers))
	for _, r := range b.runs {
		over := shadows(b.callers[r.from])
		for len(all) < r.to {
			if v.size() < perRun+over {
				return nil, errAnswer
			}
			o := outcome{
				booked: v.at(1) >= 1, holds: v.at(1) == 2, wait: v.at(2) - now, mark: v.at(2),
				held: int(v.at(3)) - 1, paused: max(0, v.at(4)-now),
			}
			many := v.at(0)
			v = v.from(perRun)
			if o.booked {
				o.over, v = v[:8*over], v.from(over)
			}
			if many < 1 || many > int64(r.to-len(all)) {
				return nil, errAnswer
			}
			s.noteHeld(b.callers[r.from].charges, &o, received)
			for range many {
				all = append(all, o)
			}
		}
	}
	if v.size() < perBudget*len(f.budgets) {
		return nil, errAnswer
	}
	for i, c := range f.budgets {
		total, last := v.at(2*lives), v.at(2*lives+1)
		ahead := time.Duration(max(0, last-now)) * time.Microsecond
		s.memory.note(f.keys[i+1], mention{c.Budget.Group, b.number, b.sent}, v, total, received.Add(ahead), keep(c))
		v = v.from(perBudget)
	}
	b.heard, v = readFlights(v, len(f.flights))
	if v.size() != 0 || len(b.heard) != len(f.flights) {
		return nil, errAnswer
	}
	return all, nil
}

// shadows counts the charges for which an answer says more.
func shadows(c *caller) (n int) {
	if c.maxWait < anyWait {
		return 0
	}
	for i := range c.charges {
		if c.charges[i].Shadow && !flies(&c.charges[i]) {
			n++
		}
	}
	return n
}

// keep is for how long starts matter to a charge.
func keep(c *throttle.Charge) time.Duration {
	if c.Limit.Kind() != throttle.Aligned {
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
	over, wait := o.over, waitOf(o.wait)
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
			c.Over, over = time.Duration(over.at(0))*time.Microsecond, over.from(1)
		}
	}
	if o.booked && o.wait < 0 {
		age += time.Duration(-o.wait) * time.Microsecond // decided when the call was made for the first time
	}
	return throttle.Grant{OK: o.booked, Wait: wait, Age: age, Mark: o.mark, Held: o.held, Paused: o.paused > 0}
}
