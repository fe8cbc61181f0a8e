package storetest

import (
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/fleetthrottle/throttle"
)

// What stands behind the arrow of a move.
const (
	nothing  = iota
	answers  // starts, places in line, refusals
	guesses  // the same, or nothing
	statuses // the fields of a status
	levels   // a ceiling before and after
)

// An expectation is what a move expects.
type expectation struct {
	answers []answer
	held    *throttle.Budget // what held back; nil: it is not said
	paused  bool
	over    *bounds // how much later the start would be if the last charge counted
	fields  []field
	levels  []float64
}

// An answer is what is expected of one booking.
type answer struct {
	kind   string // "start", "line", "full", "away", "soon"
	bounds        // of the start, or of the guess
	any    bool   // any guess will do
}

// Bounds are a time, or two between which a time lies.
type bounds struct{ low, high moment }

// A field is one number of a status, or two between which it lies.
type field struct {
	name      string
	low, high float64
}

// want reads what a move expects.
func (s *scope) want(m *move, kind int, text string, expects bool) {
	switch {
	case kind == nothing && expects:
		s.wrong("%s has no answer", m.verb)
	case text == "" && (expects || kind == answers || kind == statuses):
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
	}
}

// answers reads what is expected of bookings.
func (s *scope) answers(m *move, words []string) {
	for i := 0; i < len(words); i++ {
		next := ""
		if i+1 < len(words) {
			next = words[i+1]
		}
		switch word := words[i]; {
		case word == "paused":
			m.want.paused = true
		case word == "held":
			c, ok := s.charges[next]
			if m.want.held = &c.Budget; !ok {
				s.wrong("%q is no budget", next)
			}
			i++
		case word == "over":
			over := s.boundsOf(next)
			m.want.over = &over
			i++
		case multiple.MatchString(word) && len(m.want.answers) > 0:
			last := m.want.answers[len(m.want.answers)-1]
			m.want.answers = append(m.want.answers, slices.Repeat([]answer{last}, s.number64(word[1:])-1)...)
		default:
			m.want.answers = append(m.want.answers, s.answer(word)...)
		}
	}
	if m.times > 1 && len(m.want.answers) == 1 {
		m.want.answers = slices.Repeat(m.want.answers, m.times)
	}
}

// answer reads a word about one booking, or about several that follow each other evenly.
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
	for _, one := range s.sequence([]string{guess}) {
		all = append(all, answer{kind: kind, bounds: s.boundsOf(one)})
	}
	return all
}

// boundsOf reads a time, or two: 1s~2s.
func (s *scope) boundsOf(text string) bounds {
	low, high, ok := strings.Cut(text, "~")
	b := bounds{low: s.moment(low)}
	if b.high = b.low; ok {
		b.high = s.moment(high)
	}
	return b
}

// statusFields are the numbers of a Status; "all" is what is used or booked.
var statusFields = map[string]func(st throttle.Status) float64{
	"used":     func(st throttle.Status) float64 { return float64(st.Used) },
	"booked":   func(st throttle.Status) float64 { return float64(st.Booked) },
	"waiting":  func(st throttle.Status) float64 { return float64(st.Waiting) },
	"all":      func(st throttle.Status) float64 { return float64(st.Used + st.Booked) },
	"wait":     func(st throttle.Status) float64 { return float64(st.Wait) },
	"paused":   func(st throttle.Status) float64 { return float64(st.Paused) },
	"repeated": func(st throttle.Status) float64 { return float64(st.Repeated) },
	"ceiling":  func(st throttle.Status) float64 { return st.Ceiling },
}

// fields reads the fields of a status. A status shows all that is not named as 0, and as many
// that wait as are booked.
func (s *scope) fields(m *move, words []string) {
	if slices.Equal(words, []string{"idle"}) {
		words = nil
	}
	if len(words)%2 != 0 {
		s.wrong("a field without a value")
		return
	}
	booked := ""
	for i := 0; i < len(words); i += 2 {
		if statusFields[words[i]] == nil {
			s.wrong("%q is no field of a status", words[i])
		}
		low, high, ok := strings.Cut(words[i+1], "~")
		if !ok {
			high = low
		}
		if m.want.fields = append(m.want.fields, field{words[i], s.value(low), s.value(high)}); words[i] == "booked" {
			booked = words[i+1]
		}
	}
	if m.verb == "shows" {
		return
	}
	for name := range statusFields {
		if name == "all" || slices.ContainsFunc(m.want.fields, func(f field) bool { return f.name == name }) {
			continue
		}
		f := field{name: name}
		if name == "waiting" && booked != "" {
			f.low, f.high = s.value(booked), s.value(booked)
		}
		m.want.fields = append(m.want.fields, f)
	}
}

// value reads a number or a time.
func (s *scope) value(text string) float64 {
	if f, err := strconv.ParseFloat(text, 64); err == nil {
		return f
	}
	return float64(s.moment(text).Duration)
}

// isStatus compares a status with what a move expects.
func (p *play) isStatus(m *move, c throttle.Charge) {
	p.Helper()
	st, err := p.store.Status(p.Context(), c)
	if err != nil {
		p.fatalf("Status(%v) at %v: %v", c.Budget, p.now(), err)
	}
	if st.Limit != c.Limit {
		p.errorf("status at %v: the limit is %v, want %v", p.now(), st.Limit, c.Limit)
	}
	for _, f := range m.want.fields {
		if got := statusFields[f.name](st); got < f.low || got > f.high {
			p.errorf("status at %v: %s is %v, want %v to %v, in %+v", p.now(), f.name, got, f.low, f.high, st)
		}
	}
}

// isAnswer compares the answer to a booking with what a move expects.
func (p *play) isAnswer(m *move, k throttle.Booking, g throttle.Grant, want answer) {
	p.Helper()
	switch want.kind {
	case "start":
		p.isTime(k, g, want.bounds)
		p.isHolder(m, k, g, g.Wait > k.NotBefore)
	case "full":
		if g.OK || g.Wait != 0 || g.Ready != nil {
			p.errorf("booked at %v: %+v, want a refusal that names no time", p.now(), g)
		}
		p.isHolder(m, k, g, true)
	case "line":
		p.isPlace(m, k, g, want)
	default:
		p.errorf("%q is no answer to a booking", want.kind)
	}
	if m.want.over != nil {
		got, over := overOf(g, len(k.Charges)-1), *m.want.over
		if got < over.low.Duration || got > over.high.Duration {
			p.errorf("booked at %v: Over is %v, want %v to %v", p.now(), got, over.low, over.high)
		}
	}
}

// isTime wants a start at some time, or to be told of it if that is too long to wait.
func (p *play) isTime(k throttle.Booking, g throttle.Grant, want bounds) {
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

// isHolder checks which charge is said to have held a booking back: none if it does not
// wait longer than it wants to.
func (p *play) isHolder(m *move, k throttle.Booking, g throttle.Grant, waits bool) {
	p.Helper()
	none := g.Held == throttle.NotHeld && !g.Paused
	switch {
	case !waits && !none:
		p.errorf("booked at %v: nothing held it back, but Held is %d, Paused %t", p.now(), g.Held, g.Paused)
	case waits && (g.Held < 0 || g.Held >= len(k.Charges) || k.Charges[g.Held].Shadow):
		p.errorf("booked at %v: it has to wait %v, but Held is %d", p.now(), g.Wait, g.Held)
	case waits && m.want.held != nil && (k.Charges[g.Held].Budget != *m.want.held || g.Paused != m.want.paused):
		p.errorf("booked at %v: Held %d, Paused %t; want %v, %t", p.now(), g.Held, g.Paused, m.want.held, m.want.paused)
	}
}

// isPlace wants a place in line. When there will be room in flight nobody can know; of a
// line for a start the wait is guessed.
func (p *play) isPlace(m *move, k throttle.Booking, g throttle.Grant, want answer) {
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
	p.isHolder(m, k, g, true)
	if !guessed {
		p.isUncalled(g)
	}
}

// about allows for a guess: an eighth, and a tenth of a second.
func about(got, want time.Duration) bool { return (got - want).Abs() <= want/8+100*ms }

// overOf is how much later the start would have been if the i-th charge counted.
func overOf(g throttle.Grant, i int) time.Duration {
	if g.Over == nil {
		return 0
	}
	return g.Over[i]
}
