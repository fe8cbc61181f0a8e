package storetest

import (
	"fmt"
	"slices"
	"testing/synctest"
	"time"

	"github.com/fleetthrottle/throttle"
)

// A play is one case of a vector under way.
type play struct {
	*bench
	known map[string][]*caller
	came  []*visitor
}

// A caller is somebody who asked the store: for a start or a place in line, which it may watch
// over; or a visitor that goes on by itself.
type caller struct {
	ticket
	watched throttle.Watch
	news    chan struct{}
	visitor *visitor
}

// run plays all cases on one store, one after another, each on budgets of its own and from a
// full hour on.
func (v vector) run(b *bench) {
	b.Helper()
	for i, moves := range v.cases {
		if i > 0 {
			b.place = ""
			b.at((b.now() + 2*time.Hour).Truncate(time.Hour))
			b.zero = time.Now()
		}
		p := &play{bench: b, known: make(map[string][]*caller)}
		for j := range moves {
			if b.place = moves[j].place; i > 0 {
				b.place += fmt.Sprintf("case %d: ", i+1)
			}
			verbs[moves[j].verb].run(p, &moves[j])
		}
	}
}

// of returns the callers that a move is about.
func (p *play) of(m *move) (all []*caller) {
	for _, ref := range m.callers {
		known := p.known[ref.label]
		last := ref.last
		if last < 0 {
			last = len(known) - 1
		}
		if ref.first > last || last >= len(known) {
			p.fatalf("%s has %d callers", ref.label, len(known))
		}
		all = append(all, known[ref.first:last+1]...)
	}
	if m.words["backwards"] {
		slices.Reverse(all)
	}
	return all
}

// name gives new callers their labels: one each, or one for all.
func (p *play) name(m *move, made []*caller) {
	for i, label := range m.labels {
		own := made
		if len(m.labels) > 1 {
			own = made[i : i+1]
		}
		if plus := len(label) - 1; label[plus] == '+' {
			label = label[:plus]
			own = append(p.known[label], own...)
		}
		p.known[label] = own
	}
}

func (p *play) passes(m *move) {
	if m.verb == "wait" {
		time.Sleep(m.time.Duration)
	} else {
		p.at(m.time.since(p.now()))
	}
	p.calm()
}

// calm lets visitors do what they have to do at this moment.
func (p *play) calm() {
	if len(p.came) > 0 {
		synctest.Wait()
	}
}

// booking is what a move books.
func (p *play) booking(m *move) throttle.Booking {
	k := throttle.Booking{Charges: m.charges, MaxWait: throttle.AnyWait}
	p.amend(&k, m)
	return k
}

// amend changes what a move says of a booking.
func (p *play) amend(k *throttle.Booking, m *move) {
	k.MaxWait, k.NotBefore = throttle.AnyWait, 0
	if most, ok := m.options["within"]; ok || m.verb == "try" {
		k.MaxWait = most.Duration
	}
	if from, ok := m.options["from"]; ok {
		k.NotBefore = from.since(p.now()) - p.now()
	}
	if spread, ok := m.options["spread"]; ok {
		k.Spread = spread.Duration
	}
	if horizon, ok := m.options["horizon"]; ok {
		k.Horizon = horizon.Duration
	}
	switch {
	case m.words["high"]:
		k.Priority = throttle.High
	case m.words["low"]:
		k.Priority = throttle.Low
	}
}

func (p *play) books(m *move) {
	p.Helper()
	p.bookEach(m)
}

// bookEach books once for each answer.
func (p *play) bookEach(m *move) (made []*caller) {
	p.Helper()
	for _, want := range m.want.answers {
		k, g := p.book(p.booking(m))
		p.isAnswer(m, k, g, want)
		made = append(made, &caller{ticket: ticket{k, g}})
	}
	p.name(m, made)
	return made
}

// bookAgain books in place of what a caller has.
func (p *play) bookAgain(m *move, c *caller) {
	p.Helper()
	p.rebook(m, c, m.want.answers[0])
}

func (p *play) rebook(m *move, c *caller, want answer) {
	p.Helper()
	p.amend(&c.booking, m)
	c.booking.Instead, c.booking.Turn = c.grant.Handle, c.grant.Turn
	c.booking, c.grant = p.book(c.booking)
	p.isAnswer(m, c.booking, c.grant, want)
}

// boards books again when the caller is called, and wants a start at once.
func (p *play) boards(m *move, c *caller) {
	p.Helper()
	p.called(c.ticket)
	now := moment{0, true}
	p.rebook(m, c, answer{kind: "start", bounds: bounds{now, now}})
}

// cancel gives back what a caller has, of another cost if the move says so.
func (p *play) cancel(m *move, c *caller) {
	if len(m.numbers) > 0 {
		c.booking.Charges[0].Cost = m.numbers[0]
	}
	p.store.Cancel(&c.booking, c.grant)
}

func (p *play) release(_ *move, c *caller) { p.releases(c.ticket) }

func (p *play) settles(m *move, c *caller) {
	p.Helper()
	if c.visitor != nil {
		c.visitor.settles(m.numbers...)
	} else {
		p.settle(c.booking, c.grant, m.numbers...)
	}
}

func (p *play) isCalled(_ *move, c *caller) {
	p.Helper()
	p.called(c.ticket)
}

// isWaiting wants that a caller is not called, or that a visitor has not begun.
func (p *play) isWaiting(_ *move, c *caller) {
	p.Helper()
	if c.visitor == nil {
		p.isUncalled(c.grant)
	} else if !c.visitor.waits() {
		p.errorf("a visitor is over at %v, before its time", p.now())
	}
}

func (p *play) isUncalled(g throttle.Grant) {
	p.Helper()
	select {
	case <-g.Ready:
		p.errorf("called at %v, but it is not its turn", p.now())
	default:
	}
}

func (p *play) pauses(m *move, c throttle.Charge) {
	p.Helper()
	p.pause(c, m.time.Duration)
}

func (p *play) resumes(_ *move, c throttle.Charge) {
	p.Helper()
	p.resume(c)
}

// refuse tells of a refusal, perhaps of a caller's start, and compares the ceiling before and after.
func (p *play) refuse(m *move, c throttle.Charge) {
	p.Helper()
	r := throttle.Refusal{Ago: m.options["ago"].Duration, Took: m.options["took"].Duration}
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

// isTold tells the store what the upstream says.
func (p *play) isTold(m *move, c throttle.Charge) {
	p.Helper()
	p.states(c, m.numbers[0], m.options["reset"].Duration)
}
