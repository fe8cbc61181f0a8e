package storetest

import (
	"slices"
	"strings"
)

// What stands behind the arrow of a move.
const (
	nothing  = iota
	answers  // starts, places in line, refusals
	guesses  // the same, or nothing
	statuses // the fields of a status
	levels   // a ceiling before and after
)

// want reads a move's expectation.
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

// answers reads the expected answers to bookings.
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
			m.want.held = &c.Budget
			if !ok {
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
