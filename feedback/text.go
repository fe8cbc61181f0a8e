package feedback

import (
	"bufio"
	"io"
	"net/http"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/fleetthrottle/throttle"
	"github.com/fleetthrottle/throttle/internal/jsonscan"
	"github.com/fleetthrottle/throttle/internal/peek"
)

// Text is a refusal that is recognized by a text in the body, JSON or not, such as a firewall's
// page. Put it behind a [When]. A pattern that begins with "^" reads only as many bytes as it takes
// to see the mismatch. The zero value matches nothing.
type Text struct {
	// Pattern is the text of the refusal. Defaults to nil, which matches nothing.
	Pattern *regexp.Regexp

	// Lasts is how long the refusal closes the budget. If Lasts is 0 and End reads no duration, the
	// refusal is caused by a different budget, and nothing closes.
	Lasts time.Duration

	// NotRefused says that a matching answer is certainly no refusal. Lasts is ignored then.
	NotRefused bool

	// End is called for a matching answer. A duration that it reads replaces Lasts. Defaults to
	// nil.
	End Reader

	// Max is how many bytes are looked at, at most 64 KB. Defaults to 4 KB.
	Max int64
}

// textBytes is how much of a body is searched for a text.
const textBytes = 4 << 10

// Answer is the [Reader] of the text.
func (t Text) Answer(resp *http.Response) throttle.Answer {
	_, ok := bodyGroup(t.Pattern, resp, atMost(t.Max, textBytes))
	switch {
	case !ok:
		return throttle.Answer{}
	case t.NotRefused:
		return NotRefused(resp)
	}
	return throttle.Refused(ending(resp, t.End, t.Lasts))
}

// Printed is a refusal whose length stands in the body, or in a header field.
type Printed struct {
	// Header is the header field to read in place of the body, as JSON if Fields are set. Of
	// several durations, under one path or several, the longest counts. Defaults to "": the body is
	// read.
	Header string

	// Fields are the paths of the duration, as in [Codes]: in a body, the first path that leads to a
	// value decides. Defaults to nil: Pattern is matched against the first 4 KB of the body, JSON or
	// not. If Pattern is nil and As is set, As reads these 4 KB.
	Fields []string

	// Pattern finds the length or the moment in the text: what its first
	// group matches, or the whole pattern if it has no group. Defaults to
	// nil: all of the text.
	Pattern *regexp.Regexp

	// As is the dialect of the duration. Defaults to nil: as [Headers.Reset].
	As Dialect
}

// Answer is the [Reader] of the printed duration. It says nothing if no readable duration is
// printed.
func (p Printed) Answer(resp *http.Response) throttle.Answer {
	// A header field needs no look at the body.
	if p.Header != "" {
		return refused(orRounded(resp, min(p.longest(resp), throttle.MaxPenalty)))
	}

	// Find the text in the body: a part of its beginning, or a field.
	var text string
	var found bool
	switch {
	case len(p.Fields) == 0 && p.Pattern == nil && p.As != nil:
		text, found = head(resp)
	case len(p.Fields) == 0:
		text, found = bodyGroup(p.Pattern, resp, textBytes)
	default:
		text, found = firstField(resp, p.Fields, mostBytes, func(text string) (fits bool) {
			_, fits = p.length(resp, text)
			return fits
		})
		if found {
			text, _ = fieldGroup(p.Pattern, text)
		}
	}

	if !found {
		return throttle.Answer{}
	}

	// A text without a believable duration refuses as one that states none.
	d, ok := p.As.read(resp, text)
	if !ok {
		d = 0
	}
	return refused(orRounded(resp, min(max(d, 0), throttle.MaxPenalty)))
}

// longest returns the longest duration in the header field Header, or 0 without a readable duration.
// Unlike in a body, all paths and all lines of the field count, and not the first that has a value.
func (p Printed) longest(resp *http.Response) (longest time.Duration) {
	// note notes a duration, and says that the text does not fit: then the search for a path with a "*" goes on.
	note := func(text string) (fits bool) {
		if d, ok := p.length(resp, text); ok {
			longest = max(longest, d)
		}
		return false
	}

	for _, line := range valuesOf(resp.Header, p.Header) {
		if len(p.Fields) == 0 {
			note(line)
			continue
		}

		// One search for all paths would end at the first path that is there.
		for i := range p.Fields {
			firstFieldOf(jsonscan.Of([]byte(line)), p.Fields[i:i+1], note)
		}
	}

	return longest
}

// head returns the first 4 KB of an answer's body. found is false if the body is empty, cannot be read, or
// must not be looked at.
func head(resp *http.Response) (text string, found bool) {
	if !mayLook(resp, textBytes) {
		return "", false
	}
	body, _ := PeekBody(resp, textBytes)
	return string(body), len(body) > 0
}

// length returns the duration in a field's text. ok is false if the text has no readable duration.
func (p Printed) length(resp *http.Response, text string) (d time.Duration, ok bool) {
	text, ok = fieldGroup(p.Pattern, text)
	if !ok {
		return 0, false
	}
	return p.As.read(resp, text)
}

// bodyGroup returns the match of the pattern's first group in the first most bytes of an answer's body,
// or of the whole pattern if it has no group. The match is "" if the pattern matches without the group. ok
// is false if the pattern does not match, or is nil.
func bodyGroup(pattern *regexp.Regexp, resp *http.Response, most int64) (match string, ok bool) {
	if pattern == nil {
		return "", false
	}

	at := submatchIndex(pattern, resp, most)
	if at == nil {
		return "", false
	}

	// The first pair of indexes is of the whole match, the second of the first group.
	if len(at) > 2 {
		at = at[2:]
	}
	if at[0] < 0 {
		return "", true // the group has no part in the match
	}

	// PeekBody does not wait: the search has read these bytes.
	head, _ := PeekBody(resp, int64(at[1]))
	return string(head[at[0]:at[1]]), true
}

// submatchIndex is [regexp.Regexp.FindReaderSubmatchIndex] for the first most bytes of an answer's body. It
// returns nil, too, if the body must not be looked at.
func submatchIndex(pattern *regexp.Regexp, resp *http.Response, most int64) []int {
	if !mayLook(resp, most) {
		return nil
	}

	// Without a kept body the search reads for itself.
	a, body := peek.Kept[answer](resp)
	if a == nil {
		return pattern.FindReaderSubmatchIndex(bufio.NewReader(peek.Reader(resp, most)))
	}

	a.mu.Lock()
	defer a.mu.Unlock()

	// A reader in a needs no allocation.
	a.runes = runeReader{text: window{body, int(most)}}
	return pattern.FindReaderSubmatchIndex(&a.runes)
}

// scanBytes is how much of a body is read at a time: more than most refusals have.
const scanBytes = 2 << 10

// firstField returns the text of the first of fields that has a value, within the first most bytes of an
// answer's body. A path with a "*" may lead to several values: the first that fits counts. ok is false if
// no value is there, or if the text does not fit. Searches of one body share the parsed part of the
// body: see answer.
func firstField(resp *http.Response, fields []string, most int64, fits textTest) (text string, ok bool) {
	if !mayLook(resp, most) {
		return "", false
	}

	// Without a kept body the search reads for itself.
	a, body := peek.Kept[answer](resp)
	if a == nil {
		return firstFieldIn(peek.Reader(resp, most), fields, fits)
	}

	a.mu.Lock()
	defer a.mu.Unlock()

	a.look(body, most)
	s := search{json: &a.scan, best: len(fields)}
	var few [fewPaths]path
	a.search(&s, paths(few[:0], fields), fits)

	return s.text, s.found
}

// firstFieldIn is firstField for the JSON text that a reader has.
func firstFieldIn(r io.Reader, fields []string, fits textTest) (text string, ok bool) {
	if r == http.NoBody {
		return "", false
	}
	return firstFieldOf(jsonscan.New(r, scanBytes), fields, fits)
}

// firstFieldOf is firstField for a text of which nothing was read yet.
func firstFieldOf(json *jsonscan.Scanner, fields []string, fits textTest) (text string, ok bool) {
	s := search{json: json, best: len(fields)}
	var few [fewPaths]path
	s.whole(paths(few[:0], fields), fits)
	return s.text, s.found
}

// A path leads to a field, segment by segment.
type path struct {
	rank int    // among the fields, of which the first is 0
	rest string // the remaining segments, with dots between them, or "" at the end of the path
	many bool   // the path has a "*", so it can lead to more than one value
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

// below appends to inside what remains of the paths that lead on into a member or an element.
func below(inside, paths []path, name []byte) []path {
	for i := range paths {
		if p, leads := paths[i].into(name); leads {
			inside = append(inside, p)
		}
	}
	return inside
}

// into returns the remaining path inside a member or an element with a name, and whether the path leads there.
func (p path) into(name []byte) (inside path, leads bool) {
	// The path ends at the value that has this member.
	if p.rest == "" {
		return p, false
	}

	// A "*" leads into every member and element. A name with a dot is no segment.
	segment, rest, _ := strings.Cut(p.rest, ".")
	isAny := segment == "*"
	if !isAny && segment != string(name) {
		return p, false
	}

	p.rest, p.many = rest, p.many || isAny
	return p, true
}

// A textTest reports whether a search accepts a text. Searches take it as a parameter, because as a
// struct field it would be allocated.
type textTest = func(text string) bool

// A search walks through a JSON value and takes the values at the end of paths. Malformed or
// truncated JSON ends the search, and the values found so far remain.
type search struct {
	json *jsonscan.Scanner

	best  int    // rank of the best field that is there
	text  string // the text of the best field
	found bool   // the text fits
	over  bool   // nothing better can come
}

// whole walks through a text from its beginning. It leaves a text that is no object, or an array into which
// no path leads, at its first byte.
func (s *search) whole(paths []path, fits textTest) {
	s.json.BOM()
	first := s.json.Peek()
	leadsIntoArray := first == '[' && slices.ContainsFunc(paths, path.intoArray)
	if first == '{' || leadsIntoArray {
		s.value(paths, fits)
	}
}

// value walks through the next value, and returns false at the end of the
// search. Its recursion is as deep as the paths are long, because values into
// which no path leads are skipped.
func (s *search) value(paths []path, fits textTest) bool {
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

// scalar calls take with the text of a value, for each of the paths that end there, and returns false at the
// end of the search.
func (s *search) scalar(paths []path, text string, fits textTest) bool {
	for _, p := range paths {
		if p.rest == "" {
			s.take(p, strings.TrimSpace(text), fits)
		}
	}
	return !s.over
}

// members walks through the members of an object, and returns false at the end of the search. first says that no
// member of the object was read yet.
func (s *search) members(paths []path, first bool, fits textTest) bool {
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
func (s *search) elements(paths []path, fits textTest) bool {
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

// take notes the text at the end of a path, if it is better than the text so far. Null and "" are no
// values, and have the text "". Of a duplicate name the first counts.
func (s *search) take(p path, text string, fits textTest) {
	// A further text of the best field counts only if its path has a "*", and no text of the field has fit so far.
	decided := p.rank == s.best && (s.found || !p.many)
	if text == "" || p.rank > s.best || decided {
		return
	}
	s.best, s.found = p.rank, fits(text)
	if s.found {
		s.text = text
	}

	// The first field has the best rank, so nothing better can follow.
	s.over = p.rank == 0 && (s.found || !p.many)
}

// fieldGroup returns the match of the pattern's first group in a text, or of the whole pattern if
// it has no group. A nil pattern matches the whole text. ok is false if the pattern does not match.
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
