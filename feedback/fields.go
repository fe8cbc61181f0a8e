package feedback

import (
	"bytes"
	"io"
	"net/http"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/fleetthrottle/throttle/internal/jsonscan"
	"github.com/fleetthrottle/throttle/internal/peek"
)

// scanBytes is how much of a body is read at a time: more than most refusals have.
const scanBytes = 2 << 10

// firstField returns the text of the first field that has a value, if the text fits. A search ends
// at the first field's value, or at the first byte of a body that cannot have the fields. Searches
// of one body share the parsed part of the body: see answer.
func firstField(resp *http.Response, fields []string, max int64, fits fits) (text string, ok bool) {
	if !looked(resp, max) {
		return "", false
	}

	// The body is not kept, so the search reads for itself.
	a, body := peek.Kept[answer](resp)
	if a == nil {
		return firstFieldIn(peek.Reader(resp, max), fields, fits)
	}

	a.mu.Lock()
	defer a.mu.Unlock()

	a.look(body, max)
	s := search{json: &a.scan, best: len(fields)}
	var few [fewPaths]path
	a.search(&s, paths(few[:0], fields), fits)

	return s.text, s.found
}

// firstFieldIn is firstField for the JSON text that a reader has.
func firstFieldIn(r io.Reader, fields []string, fits fits) (text string, ok bool) {
	if r == http.NoBody {
		return "", false
	}
	return firstFieldOf(jsonscan.New(r, scanBytes), fields, fits)
}

// firstFieldOf is firstField for a text of which nothing was read yet.
func firstFieldOf(json *jsonscan.Scanner, fields []string, fits fits) (text string, ok bool) {
	s := search{json: json, best: len(fields)}
	var few [fewPaths]path
	s.whole(paths(few[:0], fields), fits)
	return s.text, s.found
}

// A path leads to a field, segment by segment.
type path struct {
	rank int    // among the fields, of which the first is 0
	rest string // the segments, with dots between them; "": the path ends here
	many bool   // there was a "*": there can be more than one such field
}

// fewPaths is how many paths need no memory.
const fewPaths = 4

// paths appends the paths to fields.
func paths(to []path, fields []string) []path {
	for i, field := range fields {
		to = append(to, path{rank: i, rest: field})
	}
	return to
}

// intoArray reports whether the path leads into an array.
func (p path) intoArray() bool {
	first, _, _ := strings.Cut(p.rest, ".")
	return first == "*" || digits(first)
}

// below appends the paths that lead on into a member or an element.
func below(on, paths []path, name []byte) []path {
	for i := range paths {
		if p, leads := paths[i].into(name); leads {
			on = append(on, p)
		}
	}
	return on
}

// into returns the remaining path inside a member or an element with a name, and whether the path leads there.
func (p path) into(name []byte) (inside path, leads bool) {
	n := len(name)
	switch rest := p.rest; {
	// The path ends at the value that has this member.
	case rest == "":
		return p, false
	case rest[0] == '*' && (len(rest) == 1 || rest[1] == '.'):
		n, p.many = 1, true

	// The first segment is not the name. No segment is a name with a dot.
	case len(rest) < n || rest[:n] != string(name) || len(rest) > n && rest[n] != '.' || bytes.IndexByte(name, '.') >= 0:
		return p, false
	}

	// Cut the segment off, with the dot behind it.
	p.rest = p.rest[min(n+1, len(p.rest)):]
	return p, true
}

// A fits reports whether a search accepts a text. Searches take it as a parameter, because as a
// struct field it would be allocated.
type fits = func(text string) bool

// A search walks through a JSON value and takes the values at the end of paths. Malformed or
// truncated JSON ends the search, and the values found so far remain.
type search struct {
	json *jsonscan.Scanner

	best  int    // rank of the best field that is there
	text  string // of that field
	found bool   // it fits
	over  bool   // nothing better can come
}

// whole walks through a text from its beginning.
func (s *search) whole(paths []path, fits fits) {
	s.json.BOM()
	if first := s.json.Peek(); first == '{' || first == '[' && slices.ContainsFunc(paths, path.intoArray) {
		s.value(paths, fits)
	}
}

// value walks through the next value, and returns false at the end of the
// search. Its recursion is as deep as the paths are long, because values into
// which no path leads are skipped.
func (s *search) value(paths []path, fits fits) bool {
	if len(paths) == 0 {
		return s.json.Skip()
	}

	switch s.json.Peek() {
	case '{':
		s.json.Open()
		return s.members(paths, true, fits)
	case '[':
		s.json.Open()
		return s.elements(paths, fits)
	}

	text, ok := s.json.Scalar()
	return ok && s.scalar(paths, text, fits)
}

// scalar takes the text of a value, and returns false at the end of the search.
func (s *search) scalar(paths []path, text string, fits fits) bool {
	for _, p := range paths {
		if p.rest == "" {
			s.take(p, strings.TrimSpace(text), fits)
		}
	}
	return !s.over
}

// members walks through the members of an object, and returns false at the end of the search. first says that no
// member of the object was read yet.
func (s *search) members(paths []path, first bool, fits fits) bool {
	var few [fewPaths]path
	for ; ; first = false {
		name, more, ok := s.json.Member(first)
		if !more {
			return ok
		}
		if !s.value(below(few[:0], paths, name), fits) {
			return false
		}
	}
}

// elements walks through the elements of an array, whose names are their indexes, and returns false at the end of
// the search.
func (s *search) elements(paths []path, fits fits) bool {
	var room [20]byte
	var few [fewPaths]path
	for i := int64(0); ; i++ {
		more, ok := s.json.Element(i == 0)
		if !more {
			return ok
		}
		if !s.value(below(few[:0], paths, strconv.AppendInt(room[:0], i, 10)), fits) {
			return false
		}
	}
}

// take is called with each text at the end of a path, which is "" for null. Of a duplicate name the
// first counts.
func (s *search) take(p path, text string, fits fits) {
	again := p.rank == s.best && (s.found || !p.many)
	if text == "" || p.rank > s.best || again {
		return
	}
	s.best, s.found = p.rank, fits(text)
	if s.found {
		s.text = text
	}

	// No field of a better rank can follow.
	s.over = p.rank == 0 && (s.found || !p.many)
}

// fieldGroup returns the match of the pattern's first group in a text, or of the whole pattern if
// it has no group. A nil pattern matches the whole text.
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
