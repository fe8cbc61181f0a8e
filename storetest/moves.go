package storetest

import (
	"fmt"
	"testing/synctest"
	"time"

	"github.com/fleetthrottle/throttle"
)

// A verb is what a move does, what it is about, and what it expects.
type verb struct {
	run   func(*play, *move)
	needs string
	wants int
}

// verbs are all moves; vectors/README.md describes them.
var verbs map[string]verb

func init() {
	verbs = map[string]verb{
		"at":   {(*play).passes, "time", nothing},
		"wait": {(*play).sleeps, "time", nothing},

		"book":    {(*play).books, "charge", answers},
		"try":     {(*play).books, "charge", answers},
		"again":   {(*play).booksAgain, "caller", answers},
		"board":   {(*play).boards, "caller", nothing},
		"cancel":  {(*play).cancels, "caller", nothing},
		"release": {(*play).releases, "caller", nothing},
		"settle":  {(*play).settles, "caller number", nothing},
		"called":  {(*play).isCalled, "caller", nothing},
		"waits":   {(*play).areUncalled, "caller", nothing},

		"pause":  {(*play).pauses, "charge time", nothing},
		"refuse": {(*play).refuses, "charge", levels},
		"resume": {(*play).resumes, "charge", nothing},
		"states": {(*play).isTold, "charge number", nothing},
		"status": {(*play).looks, "charge", statuses},
		"shows":  {(*play).looks, "charge", statuses},

		"watch":   {(*play).watches, "who", guesses},
		"move":    {(*play).movesOn, "caller", answers},
		"stop":    {(*play).stops, "caller", nothing},
		"good":    {(*play).isGood, "caller", nothing},
		"bad":     {(*play).isBad, "caller", nothing},
		"useless": {(*play).isUseless, "caller", nothing},
		"quiet":   {(*play).isQuiet, "caller", nothing},
		"deaf":    {(*play).watchesDeaf, "caller", nothing},
	}
	for name, v := range lineVerbs {
		verbs[name] = v
	}
}

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
	watch   throttle.Watch
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

// duration returns the time that a move names, as a duration.
func (m *move) duration() time.Duration { return m.time.Duration }

func (p *play) passes(m *move) {
	p.at(m.time.since(p.now()))
	p.calm()
}

func (p *play) sleeps(m *move) {
	time.Sleep(m.duration())
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

// booksAgain books in place of what the callers have.
func (p *play) booksAgain(m *move) {
	p.Helper()
	for _, c := range p.of(m) {
		p.bookAgain(m, c, m.want.answers[0])
	}
}

func (p *play) bookAgain(m *move, c *caller, want answer) {
	p.Helper()
	p.amend(&c.booking, m)
	c.booking.Instead, c.booking.Turn = c.grant.Handle, c.grant.Turn
	c.booking, c.grant = p.book(c.booking)
	p.isAnswer(m, c.booking, c.grant, want)
}

// boards books again when it is called, and wants a start at once.
func (p *play) boards(m *move) {
	p.Helper()
	p.isCalled(m)
	now := moment{0, true}
	for _, c := range p.of(m) {
		p.bookAgain(m, c, answer{kind: "start", bounds: bounds{now, now}})
	}
}

func (p *play) cancels(m *move) {
	for _, c := range p.of(m) {
		if len(m.numbers) > 0 {
			c.booking.Charges[0].Cost = m.numbers[0]
		}
		p.store.Cancel(&c.booking, c.grant)
	}
	p.calm()
}

func (p *play) releases(m *move) {
	for _, c := range p.of(m) {
		p.bench.releases(c.ticket)
	}
}

func (p *play) settles(m *move) {
	p.Helper()
	for _, c := range p.of(m) {
		if c.visitor != nil {
			c.visitor.settles(m.numbers...)
		} else {
			p.settle(c.booking, c.grant, m.numbers...)
		}
	}
}

func (p *play) isCalled(m *move) {
	p.Helper()
	for _, c := range p.of(m) {
		p.called(c.ticket)
	}
}

// areUncalled wants that nobody is called, and that no visitor has begun.
func (p *play) areUncalled(m *move) {
	p.Helper()
	for _, c := range p.of(m) {
		switch {
		case c.visitor == nil:
			p.isUncalled(c.grant)
		case !c.visitor.waits():
			p.errorf("a visitor is over at %v, before its time", p.now())
		}
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

func (p *play) pauses(m *move) {
	p.Helper()
	for _, c := range m.charges {
		p.pause(c, m.duration())
	}
	p.calm()
}

func (p *play) resumes(m *move) {
	p.Helper()
	p.resume(m.charges[0])
	p.calm()
}

// refuses tells of a refusal, and compares the ceiling before and after.
func (p *play) refuses(m *move) {
	p.Helper()
	r := throttle.Refusal{Ago: m.options["ago"].Duration, Took: m.options["took"].Duration}
	if m.time != nil {
		r.Length = m.duration()
	}
	for _, c := range p.of(m) {
		r.Start = c.grant
	}
	from, to, err := p.store.Refuse(p.Context(), m.charges[0], r)
	if err != nil {
		p.fatalf("Refuse(%v, %+v) at %v: %v", m.charges[0].Budget, r, p.now(), err)
	}
	if want := m.want.levels; len(want) == 2 && (from != want[0] || to != want[1]) {
		p.errorf("refused at %v: ceiling from %v to %v, want %v", p.now(), from, to, want)
	}
}

// isTold tells the store what the upstream says.
func (p *play) isTold(m *move) {
	p.Helper()
	p.states(m.charges[0], m.numbers[0], m.options["reset"].Duration)
}

func (p *play) looks(m *move) {
	p.Helper()
	for _, c := range m.charges {
		p.isStatus(c, m.want.fields)
	}
}
