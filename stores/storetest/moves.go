package storetest

import (
	"time"

	"github.com/fleetthrottle/throttle/store"
)

// passes lets time pass: for a while, or until a moment of the play.
func (p *play) passes(m *move) {
	if m.verb == "wait" {
		time.Sleep(m.time.Duration)
	} else {
		p.at(m.time.since(p.now()))
	}
	p.calm()
}

// booking returns a booking of the charges that a move names, with its words.
func (p *play) booking(m *move) store.Booking {
	k := store.Booking{Charges: m.charges, MaxWait: store.AnyWait}
	p.amend(&k, m)
	return k
}

// amend applies a move's words to a booking. Without words MaxWait and NotBefore get the values of a new booking, and the other
// fields stay.
func (p *play) amend(k *store.Booking, m *move) {
	// A caller waits for as long as it takes, unless the move has the word within, or is a try.
	k.MaxWait, k.NotBefore = store.AnyWait, 0
	if within, ok := m.options["within"]; ok || m.verb == "try" {
		k.MaxWait = within.Duration
	}
	if from, ok := m.options["from"]; ok {
		k.NotBefore = from.since(p.now()) - p.now()
	}
	if spread, ok := m.options["spread"]; ok {
		k.Spread = spread.Duration
	}
	if ahead, ok := m.options["horizon"]; ok {
		k.Horizon = ahead.Duration
	}

	switch {
	case m.words["high"]:
		k.Priority = store.PriorityHigh
	case m.words["low"]:
		k.Priority = store.PriorityLow
	}
}

// books books once for each answer, and compares the answers.
func (p *play) books(m *move) {
	p.Helper()
	p.bookEach(m)
}

// bookEach is books, and returns the callers that it made.
func (p *play) bookEach(m *move) (made []*caller) {
	p.Helper()
	for _, want := range m.want.answers {
		k, g := p.book(p.booking(m))
		p.checkAnswer(m, k, g, want)
		made = append(made, &caller{ticket: ticket{k, g}})
	}
	p.name(m, made)
	return made
}

// bookAgain books in place of a caller's present start, and compares the answer with the move's first one.
func (p *play) bookAgain(m *move, c *caller) {
	p.Helper()
	p.rebook(m, c, m.want.answers[0])
}

// rebook books in place of a caller's present start or place, and compares the answer.
func (p *play) rebook(m *move, c *caller, want answer) {
	p.Helper()
	p.amend(&c.booking, m)
	c.booking.Instead, c.booking.Turn = c.grant.Handle, c.grant.Turn
	c.booking, c.grant = p.book(c.booking)
	p.checkAnswer(m, c.booking, c.grant, want)
}

// boards books again when the caller is called, and wants a start at once.
func (p *play) boards(m *move, c *caller) {
	p.Helper()
	p.called(c.ticket)
	now := moment{0, true}
	p.rebook(m, c, answer{kind: "start", bounds: bounds{now, now}})
}

// cancel gives back a caller's start, with different costs if the move says so.
func (p *play) cancel(m *move, c *caller) {
	for i, cost := range m.numbers {
		c.booking.Charges[i].Cost = cost
	}
	p.store.Cancel(&c.booking, c.grant)
}

// release ends a caller's requests in flight.
func (p *play) release(_ *move, c *caller) { p.releases(c.ticket) }

// settles reports the true costs of a caller's start.
func (p *play) settles(m *move, c *caller) {
	p.Helper()
	if c.visitor != nil {
		c.visitor.settles(m.numbers...)
	} else {
		p.settle(c.booking, c.grant, m.numbers...)
	}
}

// checkCalled waits until a caller is called, and fails if that takes a minute.
func (p *play) checkCalled(_ *move, c *caller) {
	p.Helper()
	p.called(c.ticket)
}

// checkWaiting fails if a caller is called, or if a visitor is over.
func (p *play) checkWaiting(_ *move, c *caller) {
	p.Helper()
	if c.visitor == nil {
		p.checkUncalled(c.grant)
	} else if !c.visitor.waits() {
		p.errorf("a visitor is over at %v, before its time", p.now())
	}
}

// pauses closes a budget for the time of the move.
func (p *play) pauses(m *move, c store.Charge) {
	p.Helper()
	p.pause(c, m.time.Duration)
}

// resumes opens a budget.
func (p *play) resumes(_ *move, c store.Charge) {
	p.Helper()
	p.resume(c)
}

// refuse reports a refusal to the store, of a caller's start if the move names a caller. If the move names the ceilings before
// and after it, refuse compares them.
func (p *play) refuse(m *move, c store.Charge) {
	p.Helper()
	r := store.Refusal{Ago: m.options["ago"].Duration, Took: m.options["took"].Duration}
	if m.time != nil {
		r.Length = m.time.Duration
	}

	for _, refused := range p.of(m) {
		r.Start = refused.grant
	}

	from, to, err := p.store.Refuse(p.Context(), c, r)
	if err != nil {
		p.fatalf("Refuse(%v, %+v) at %v: %v", c.Budget, r, p.now(), err)
	}
	if want := m.want.levels; len(want) == 2 && (from != want[0] || to != want[1]) {
		p.errorf("refused at %v: ceiling from %v to %v, want %v", p.now(), from, to, want)
	}
}

// tellQuota tells the store the upstream's statement.
func (p *play) tellQuota(m *move, c store.Charge) {
	p.Helper()
	p.states(c, store.Quota{Left: m.numbers[0], Reset: m.options["reset"].Duration, Age: m.options["ago"].Duration})
}
