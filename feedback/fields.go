package feedback

import (
	"io"
	"net/http"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/fleetthrottle/throttle/internal/jsonscan"
)

// scanBytes is how much of a body is read at a time: more than most refusals have.
const scanBytes = 2 << 10

// firstField looks for fields in an answer's JSON body. The first of them that
// is there decides: it returns its text, if that fits.
//
// It looks no further than it must: the first field ends the search where it
// stands, and a body that cannot have the fields does so with its first byte.
func firstField(resp *http.Response, fields []string, max int64, fits func(text string) bool) (text string, ok bool) {
	return firstFieldIn(look(resp, max), fields, fits)
}

// firstFieldIn is firstField for the JSON text that a reader has.
func firstFieldIn(r io.Reader, fields []string, fits func(text string) bool) (text string, ok bool) {
	s := search{json: jsonscan.New(r, scanBytes), fits: fits, best: len(fields)}
	paths := make([]path, len(fields))
	for i, field := range fields {
		paths[i] = path{rank: i, rest: strings.Split(field, ".")}
	}
	s.json.BOM()
	if first := s.json.Peek(); first == '{' || first == '[' && slices.ContainsFunc(paths, path.intoArray) {
		s.value(paths)
	}
	return s.text, s.found
}

// A path leads to a field, segment by segment.
type path struct {
	rank int      // among the fields, of which the first is 0
	rest []string // of the segments
	many bool     // there was a "*": there can be more than one such field
}

func (p path) intoArray() bool { return p.rest[0] == "*" || digits(p.rest[0]) }

// below returns the paths that lead on into a member or an element.
func below(paths []path, name []byte) (on []path) {
	for _, p := range paths {
		if len(p.rest) == 0 {
			continue
		}
		if all := p.rest[0] == "*"; all || p.rest[0] == string(name) {
			on = append(on, path{p.rank, p.rest[1:], p.many || all})
		}
	}
	return on
}

// A search walks through a JSON value and takes what is at the end of paths.
// What is malformed or cut off ends it; what was found before that stays.
type search struct {
	json *jsonscan.Scanner
	fits func(string) bool

	best  int    // rank of the best field that is there
	text  string // of that field
	found bool   // it fits
	over  bool   // nothing better can come
}

// value walks through the next value, and returns false at the end of the
// search. Its recursion is as deep as the paths are long: what no path leads
// into is skipped.
func (s *search) value(paths []path) bool {
	if len(paths) == 0 {
		return s.json.Skip()
	}
	switch s.json.Peek() {
	case '{':
		return s.object(paths)
	case '[':
		return s.array(paths)
	}
	text, ok := s.json.Scalar()
	if !ok {
		return false
	}
	for _, p := range paths {
		if len(p.rest) == 0 {
			s.take(p, strings.TrimSpace(text))
		}
	}
	return !s.over
}

func (s *search) object(paths []path) bool {
	return s.json.Object(func(name []byte) bool { return s.value(below(paths, name)) })
}

func (s *search) array(paths []path) bool {
	var index []byte
	return s.json.Array(func(i int64) bool {
		index = strconv.AppendInt(index[:0], i, 10)
		return s.value(below(paths, index))
	})
}

// take is called with each text at the end of a path; that of null is "". Of a
// name that is there twice the first counts.
func (s *search) take(p path, text string) {
	again := p.rank == s.best && (s.found || !p.many)
	if text == "" || p.rank > s.best || again {
		return
	}
	s.best, s.found = p.rank, s.fits(text)
	if s.found {
		s.text = text
	}
	s.over = p.rank == 0 && (s.found || !p.many)
}

// fieldGroup returns what the pattern's first group matches in a text, or the
// whole pattern if it has no group. No pattern matches all of the text.
func fieldGroup(pattern *regexp.Regexp, text string) (match string, ok bool) {
	if pattern == nil {
		return text, true
	}
	matches := pattern.FindStringSubmatch(text)
	if matches == nil {
		return "", false
	}
	return matches[min(1, len(matches)-1)], true
}
