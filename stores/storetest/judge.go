package storetest

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/fleetthrottle/throttle/store"
)

// checkExact fails if a grant differs from the earliest start that the definition gives, want.
func (w *world) checkExact(k store.Booking, g store.Grant, now, want int64) {
	w.Helper()
	wait := time.Duration(want-now) * tick
	ok := k.MaxWait < 0 || wait <= k.MaxWait
	if g.OK != ok || g.Wait != wait {
		w.failf("%s: OK %t, Wait %v; want %t, %v", describe(k), g.OK, g.Wait, ok, wait)
	}
	w.checkHolder(k, g, now, want)
	if g.OK {
		w.checkOver(k, g, want)
	}
}

// checkHolder checks which charge the grant says held it back. Where several
// charges rule out the moment before the start, any of them may be named.
func (w *world) checkHolder(k store.Booking, g store.Grant, now, start int64) {
	w.Helper()
	if start == soonest(k, now) {
		if g.HeldBy != -1 || g.Paused {
			w.failf("%s: nothing held it back, but Held is %d, Paused %t", describe(k), g.HeldBy, g.Paused)
		}
		return
	}

	if g.HeldBy < 0 || g.HeldBy >= len(k.Charges) || k.Charges[g.HeldBy].Shadow {
		w.failf("%s: waits %v, but Held is %d", describe(k), g.Wait, g.HeldBy)
	}

	q := w.truth.ask(k.Charges[g.HeldBy], k, now)
	switch {
	case q.allows(start - 1):
		w.failf("%s: Held is %d, which has room a moment before the start", describe(k), g.HeldBy)
	case g.Paused != (q.closed > soonest(k, now)):
		w.failf("%s: Paused %t, but charge %d is closed until %d", describe(k), g.Paused, g.HeldBy, q.closed)
	}
}

// checkOver checks the Over of shadow charges. Each must be at least the time that its charge alone
// would have added, and at most the time that all charges together would have added.
func (w *world) checkOver(k store.Booking, g store.Grant, start int64) {
	w.Helper()

	// The charges, as if none of them were a shadow.
	counted := store.Booking{Spread: k.Spread}
	for _, c := range k.Charges {
		c.Shadow = false
		counted.Charges = append(counted.Charges, c)
	}

	withAll := w.truth.earliest(counted, start)
	for i, c := range k.Charges {
		if !c.Shadow {
			continue
		}

		// A store may look at each shadow alone, or at all budgets together.
		only := store.Booking{Spread: k.Spread, Charges: counted.Charges[i : i+1]}
		alone := w.truth.earliest(only, start)

		added := overOf(g, i)
		if got := start + micros(added); got < alone || got > withAll {
			w.failf("%s: Over of charge %d is %v, want %v", describe(k), i, added, time.Duration(alone-start)*tick)
		}
	}
}

// checkLawful checks that a start breaks no limit and no penalty, and that a refusal has a reason. It
// is for runs in which a store may start later than the definition.
func (w *world) checkLawful(k store.Booking, g store.Grant, now int64) {
	w.Helper()
	start := now + micros(g.Wait)
	if ok := k.MaxWait < 0 || g.Wait <= k.MaxWait; g.OK != ok {
		w.failf("%s: OK %t with a wait of %v", describe(k), g.OK, g.Wait)
	}
	if start < soonest(k, now) {
		w.failf("%s: starts too soon, after %v", describe(k), g.Wait)
	}

	// Ask at the time of the start: limits and penalties alone count then, and no pace (see setClear).
	for _, c := range k.Charges {
		if !c.Shadow && !w.truth.ask(c, store.Booking{Spread: k.Spread}, start).allows(start) {
			w.failf("%s: %s does not allow a start after %v", describe(k), c.Budget.Policy, g.Wait)
		}
	}
}

// count checks that no interval of the history holds more than the limit. It leaves out shadows, and budgets that may hold more.
func (w *world) count() {
	w.Helper()
	if w.mood == changing {
		return // each start was checked against the limit of its time
	}
	for _, c := range w.budgets {
		if c.Shadow || w.above[c.Budget.Key] {
			continue
		}
		if text := w.truth.excess(c); text != "" {
			w.failf("%s", text)
		}
	}
}

// excess counts the whole history of a budget, without the rules by which starts are judged one at a
// time. It returns a sentence about the first place where the limit is broken, or "".
func (l *ledger) excess(c store.Charge) string {
	if isOpen(c) {
		return ""
	}

	// A TokenBucket has a rule of its own. The starts of a LeakyBucket keep their distance. For a window, look at what counts together with
	// each start.
	stays := slices.Clone(l.stays[c.Budget.Key])
	slices.SortFunc(stays, func(a, b stay) int { return cmp.Compare(a.at, b.at) })
	if c.Limit.Kind() == store.KindTokenBucket {
		return drained(c, stays)
	}

	for i, first := range stays {
		if c.Limit.Kind() != store.KindLeakyBucket {
			if cost := together(c, stays, first); cost > c.Limit.N() {
				return fmt.Sprintf("budget %s: %d starts count together, too many for %s", c.Budget.Policy, cost, sentence(c))
			}
		} else if i > 0 && first.at < over(c, stays[i-1]) {
			return fmt.Sprintf("budget %s: two starts are %d µs apart, too close for %s",
				c.Budget.Policy, first.at-stays[i-1].at, sentence(c))
		}
	}

	return ""
}

// drained lets each start in turn arrive as late as it may, and all starts after it on time. If the upstream's
// bucket, which is full before, runs dry, drained returns a sentence that says so, and otherwise "".
func drained(c store.Charge, stays []stay) string {
	tokens, each := c.Refill()
	for _, first := range stays {
		late := first.until + micros(c.Jitter)

		// The level is in units: see flow.
		level := int64(c.Limit.Capacity()) * each
		for _, s := range stays {
			if s.until < first.until {
				continue
			}

			level -= int64(s.cost) * each
			if flown := tokens * max(0, s.at-late); level+flown < 0 {
				return fmt.Sprintf("budget %s: %d tokens are missing %d µs after another start, by %s",
					c.Budget.Policy, -(level+flown)/each, s.at-first.until, sentence(c))
			}
		}
	}

	return ""
}

// What stands behind the arrow of a move.
const (
	nothing  = iota
	answers  // starts, places in line, refusals
	guesses  // the same, or nothing
	statuses // the fields of a status
	levels   // a ceiling before and after
)

// want reads a move's expectation: text, which stands behind the arrow. kind is what the verb needs there. expects says that the move
// has an arrow.
func (s *scope) want(m *move, kind int, text string, expects bool) {
	needsText := expects || kind == answers || kind == statuses
	switch {
	case kind == nothing && expects:
		s.wrong("%s has no answer", m.verb)

	// Nothing stands behind the arrow, or the verb needs an arrow.
	case text == "" && needsText:
		s.wrong("%s says nothing of its answer", m.verb)
	case kind == statuses:
		s.fields(m, strings.Fields(text))
	case kind == levels && expects:
		for _, word := range strings.Fields(text) {
			m.want.levels = append(m.want.levels, s.value(word))
		}
		if n := len(m.want.levels); n != 2 {
			s.wrong("%d ceilings, want the one before and the one after", n)
		}

	case kind == answers || kind == guesses:
		s.answers(m, strings.Fields(text))
		if kind == answers && len(m.want.answers) == 0 {
			s.wrong("%q are no answers to %s", text, m.verb)
		}
	}
}

// answers reads the expected answers to bookings, and the words held, paused and over about all of them.
func (s *scope) answers(m *move, words []string) {
	for i := 0; i < len(words); i++ {
		next := ""
		if i+1 < len(words) {
			next = words[i+1]
		}

		// Some words take the next word with them.
		switch word := words[i]; {
		case word == "paused":
			m.want.paused = true
		case word == "held":
			c, ok := s.charges[next]
			m.want.held = &c.Budget
			if !ok {
				s.wrong("%q is no budget", next)
			}
			i++

		case word == "over":
			by := s.boundsOf(next)
			m.want.over = &by
			i++

		case multiple.MatchString(word) && len(m.want.answers) > 0:
			last := m.want.answers[len(m.want.answers)-1]
			m.want.answers = append(m.want.answers, slices.Repeat([]answer{last}, s.times(word[1:])-1)...)
		default:
			m.want.answers = append(m.want.answers, s.answer(word)...)
		}
	}

	// One answer to several callers is the answer to each of them.
	if m.times > 1 && len(m.want.answers) == 1 {
		m.want.answers = slices.Repeat(m.want.answers, m.times)
	}
}

// answer reads a word about one booking, or about several whose times follow each other evenly. The word none stands for no
// booking.
func (s *scope) answer(word string) (all []answer) {
	kind, guess, ok := strings.Cut(word, ":")
	switch {
	case !ok && (word == "line" || word == "full"):
		return []answer{{kind: word}}
	case !ok && word == "none":
		return nil
	case !ok:
		kind, guess = "start", word
	case kind != "line" && kind != "away" && kind != "soon":
		s.wrong("%q is no answer", word)
		return nil
	case guess == "*":
		return []answer{{kind: kind, any: true}}
	}

	// "1s,2s..5s" is an answer for each of its moments.
	for _, one := range s.sequence([]string{guess}) {
		all = append(all, answer{kind: kind, bounds: s.boundsOf(one)})
	}

	return all
}

// checkAnswer compares the answer to a booking with a move's expectation.
func (p *play) checkAnswer(m *move, k store.Booking, g store.Grant, want answer) {
	p.Helper()
	switch want.kind {
	case "start":
		p.checkTime(k, g, want.bounds)
		p.checkHolder(m, k, g, g.Wait > k.NotBefore)
	case "full":
		if g.OK || g.Wait != 0 || g.Ready != nil {
			p.errorf("booked at %v: %+v, want a refusal that names no time", p.now(), g)
		}
		p.checkHolder(m, k, g, true)

	case "line":
		p.checkPlace(m, k, g, want)
	default:
		p.errorf("%q is no answer to a booking", want.kind)
	}

	// A shadow charge comes last.
	if m.want.over != nil {
		got, by := overOf(g, len(k.Charges)-1), *m.want.over
		if got < by.low.Duration || got > by.high.Duration {
			p.errorf("booked at %v: Over is %v, want %v to %v", p.now(), got, by.low, by.high)
		}
	}
}

// checkTime fails if the start is not at the expected time, if OK does not tell whether the caller waits that long, or if
// the grant has no handle or a place in line.
func (p *play) checkTime(k store.Booking, g store.Grant, want bounds) {
	p.Helper()
	got, ok := p.now()+g.Wait, k.MaxWait < 0 || g.Wait <= k.MaxWait
	switch low, high := want.low.since(p.now()), want.high.since(p.now()); {
	case got < low || got > high:
		p.errorf("booked at %v: OK %t, the start is at %v, want %v to %v", p.now(), g.OK, got, low, high)
	case g.OK != ok:
		p.errorf("booked at %v: OK %t with a wait of %v, want %t", p.now(), g.OK, g.Wait, ok)
	case g.OK && g.Handle.Start == 0:
		p.errorf("booked at %v: the grant has no handle", p.now())
	case g.Ready != nil:
		p.errorf("booked at %v: a start, or a refusal, that also waits in line", p.now())
	}
}

// checkHolder checks which charge is said to have held a booking back: none if the booking does not wait. Otherwise it
// must be a charge that counts and, if the move names a budget, the charge of that budget.
func (p *play) checkHolder(m *move, k store.Booking, g store.Grant, waits bool) {
	p.Helper()
	none := g.HeldBy == store.NotHeld && !g.Paused
	switch {
	case !waits && !none:
		p.errorf("booked at %v: nothing held it back, but Held is %d, Paused %t", p.now(), g.HeldBy, g.Paused)
	case waits && (g.HeldBy < 0 || g.HeldBy >= len(k.Charges) || k.Charges[g.HeldBy].Shadow):
		p.errorf("booked at %v: it has to wait %v, but Held is %d", p.now(), g.Wait, g.HeldBy)
	case waits && m.want.held != nil && (k.Charges[g.HeldBy].Budget != *m.want.held || g.Paused != m.want.paused):
		p.errorf("booked at %v: Held %d, Paused %t; want %v, %t", p.now(), g.HeldBy, g.Paused, m.want.held, m.want.paused)
	}
}

// checkPlace fails if the grant is no place in line. A place in line for a start has a guess of its wait. A place in line
// for a slot has none, because nobody knows when a request in flight ends.
func (p *play) checkPlace(m *move, k store.Booking, g store.Grant, want answer) {
	p.Helper()
	guessed := want.any || want.high.Duration > 0
	switch {
	case g.OK || g.Ready == nil:
		p.errorf("booked at %v: OK %t with a wait of %v, want a place in line", p.now(), g.OK, g.Wait)
	case guessed && g.Turn == nil:
		p.errorf("booked at %v: the place in line has no Turn", p.now())
	case guessed && !want.any && !about(g.Wait, want.high.Duration):
		p.errorf("booked at %v: a place in line with a wait of %v, want about %v", p.now(), g.Wait, want.high)
	case !guessed && g.Handle.Place == 0:
		p.errorf("booked at %v: the place in line has no handle", p.now())
	case !guessed && g.Wait != 0:
		p.errorf("booked at %v: a place in line that says to wait %v, which nobody can know", p.now(), g.Wait)
	}

	p.checkHolder(m, k, g, true)
	if !guessed {
		p.checkUncalled(g)
	}
}

// about reports whether a guess is wrong by no more than an eighth of what is wanted, and a tenth of a second.
func about(got, want time.Duration) bool { return (got - want).Abs() <= want/8+100*ms }
