package storetest

import (
	"slices"
	"strings"

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
		if kind == answers && len(m.want.answers) == 0 {
			s.wrong("%q are no answers to %s", text, m.verb)
		}
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
			m.want.answers = append(m.want.answers, slices.Repeat([]answer{last}, s.times(word[1:])-1)...)
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
