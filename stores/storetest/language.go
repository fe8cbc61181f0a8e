package storetest

import (
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/fleetthrottle/throttle/store"
)

// read reads a line: a budget, or moves.
func (s *scope) read(text string) {
	if loop, ok := strings.CutPrefix(text, "every "); ok {
		head, body, _ := strings.Cut(loop, ": ")
		name, list, _ := strings.Cut(head, " in ")
		for _, value := range s.sequence(strings.Fields(list)) {
			s.read(substitute(body, map[string]string{name: value}))
		}

		return
	}

	for _, part := range splitTrim(text, ";") {
		if name, limit, ok := strings.Cut(part, " = "); ok {
			s.define(strings.TrimSpace(name), limit)
		} else {
			s.move(part)
		}
	}
}

// define reads a budget: its limit and the known fields of its charges. A name that is
// defined again is the same budget under a new limit.
func (s *scope) define(name, text string) {
	parts := splitTrim(text, ",")
	limit, err := store.ParseLimit(parts[0])
	if err != nil {
		s.wrong("%q is no limit that throttle.ParseLimit reads", parts[0])
	}

	own := name
	if s.number > 0 {
		own = fmt.Sprint(s.number, " ", name)
	}

	c := charge(own, limit)
	if old, ok := s.charges[name]; ok {
		c.Budget = old.Budget
	}

	for _, part := range parts[1:] {
		words := strings.Fields(part)
		if len(words) == 2 && (words[0] == "key" || words[0] == "beside") {
			other, ok := s.charges[words[1]]
			c.Budget = other.Budget
			if !ok {
				s.wrong("%q is no budget", words[1])
			}
			if words[0] == "beside" {
				c.Budget.Key[15] = 1 // differs in the last place of the key only
			}
		} else if n := s.attribute(&c, words); n != len(words) || n == 0 {
			s.wrong("%q says nothing of a budget", part)
		}
	}

	if s.labels[name] || isWord(name) {
		s.wrong("%q is a caller, or a word of the language", name)
	}

	s.charges[name] = c
}

// attribute reads the first words' field of a charge, and returns how many words it read.
func (s *scope) attribute(c *store.Charge, words []string) int {
	value := ""
	if len(words) > 1 {
		value = words[1]
	}

	switch words[0] {
	case "shadow":
		c.Shadow = true
	case "adaptive":
		c.Adaptive = true
	case "node":
		c.Node = true
	case "jitter":
		c.Jitter = s.moment(value).Duration
		return 2
	case "pace":
		c.Pace = s.moment(value).Duration
		return 2
	case "cost":
		c.Cost = s.number64(value)
		return 2
	case "leaving":
		c.KeepFree = s.number64(value)
		return 2
	default:
		return 0
	}

	return 1
}

// move reads a move.
func (s *scope) move(text string) {
	head, want, expects := strings.Cut(text, "->")
	m := move{place: fmt.Sprintf("%s:%d: ", s.file, s.line), options: make(map[string]moment), words: make(map[string]bool), times: 1}
	if labels, rest, ok := strings.Cut(head, ": "); ok {
		m.labels, head = strings.Fields(labels), rest
	}

	words := strings.Fields(strings.ReplaceAll(head, ",", " "))
	if len(words) == 0 {
		s.wrong("no move in %q", text)
		return
	}

	m.verb = words[0]
	if _, ok := verbs[m.verb]; !ok && s.fleet {
		s.own(&m, words[1:])
		return
	}

	for words = words[1:]; len(words) > 0; {
		words = words[min(s.word(&m, words), len(words)):]
	}

	if v, ok := verbs[m.verb]; !ok {
		s.wrong("%q is no move", m.verb)
	} else {
		s.want(&m, v.wants, strings.TrimSpace(want), expects)
		s.needs(&m, v.needs)
	}

	for _, label := range m.labels {
		if _, ok := s.charges[label]; ok || isWord(label) {
			s.wrong("%q is a budget, or a word of the language", label)
		}
		s.labels[strings.TrimSuffix(label, "+")] = true
	}

	s.moves = append(s.moves, m)
}

// own reads a move that only a fleet has.
func (s *scope) own(m *move, words []string) {
	for i := 0; i < len(words); i++ {
		word := words[i]
		if c, ok := s.charges[word]; ok {
			m.own.Charges = append(m.own.Charges, c)
		} else if n, err := strconv.Atoi(word); err == nil {
			m.own.Times = append(m.own.Times, time.Duration(n))
		} else if at, err := parseMoment(word); err == nil {
			m.own.Times = append(m.own.Times, at.Duration)
		} else if word == "by" && i+1 < len(words) {
			i++
			m.program = words[i]
		} else {
			m.own.Words = append(m.own.Words, word)
		}
	}

	m.own.Place, m.own.Program = m.place, m.program
	s.moves = append(s.moves, *m)
}

// needs notes a missing part of a move.
func (s *scope) needs(m *move, needs string) {
	for _, need := range strings.Fields(needs) {
		switch {
		case need == "charge" && len(m.charges) == 0, need == "caller" && len(m.callers) == 0,
			need == "time" && m.time == nil, need == "number" && len(m.numbers) == 0,
			need == "who" && len(m.charges)+len(m.callers) == 0:
			s.wrong("%s without a %s", m.verb, need)
		}
	}
}

var several = regexp.MustCompile(`^([a-z]+)(?:\[(\d+)(\.\.)?(\d+)?\])?$`)

// word reads the first words' part of a move, and returns how many words it read.
func (s *scope) word(m *move, words []string) int {
	word := words[0]
	if len(m.charges) > 0 {
		if n := s.attribute(&m.charges[len(m.charges)-1], words); n > 0 {
			return n
		}
	}

	if c, ok := s.charges[word]; ok {
		m.charges = append(m.charges, c)
		return 1
	}

	if x := multiple.FindStringSubmatch(word); x != nil {
		m.times = s.times(x[1])
		return 1
	}

	switch parts := several.FindStringSubmatch(word); {
	case word == "by" && s.fleet && len(words) > 1:
		m.program = words[1]
		return 2
	case slices.Contains(plainWords, word):
		m.words[word] = true
	case slices.Contains(optionWords, word) && len(words) > 1:
		m.options[word] = s.moment(words[1])
		return 2
	case parts != nil && s.labels[parts[1]]:
		m.callers = append(m.callers, s.reference(parts))
	case strings.ContainsAny(word[:1], "0123456789+-") || word == "now":
		n, notNumber := number(word)
		if notNumber == nil {
			m.numbers = append(m.numbers, n)
		}

		if t, err := parseMoment(word); err == nil {
			m.time = &t
		} else if notNumber != nil {
			s.wrong("%v", err)
		}

	default:
		s.wrong("%q is neither a budget, nor a caller, nor a word of the language", word)
	}

	return 1
}

// reference reads the callers of a label: line, line[3], line[3..8], line[3..].
func (s *scope) reference(parts []string) reference {
	ref := reference{label: parts[1], last: -1}
	if parts[2] != "" {
		ref.first = s.number64(parts[2])
		ref.last = ref.first
		if parts[4] != "" {
			ref.last = s.number64(parts[4])
		} else if parts[3] != "" {
			ref.last = -1
		}
	}
	return ref
}
