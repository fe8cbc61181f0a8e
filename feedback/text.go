package feedback

import (
	"bufio"
	"net/http"
	"regexp"
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
	// several durations the longest counts. Defaults to "": the body is read.
	Header string

	// Fields are the paths of the duration, as in [Codes]. Defaults to nil: Pattern is matched
	// against the first 4 KB of the body, JSON or not. If Pattern is nil and As is set, As reads
	// these 4 KB.
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

	d, _ := p.As.read(resp, text)
	return refused(orRounded(resp, min(max(d, 0), throttle.MaxPenalty)))
}

// longest returns the longest duration in a header field, or 0 without a readable duration.
func (p Printed) longest(resp *http.Response) (longest time.Duration) {
	// No text ends the search, so that each field with a duration is noted.
	note := func(text string) (ends bool) {
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
		firstFieldOf(jsonscan.Of([]byte(line)), p.Fields, note)
	}

	return longest
}

// head returns the first 4 KB of an answer's body; found is false if there is nothing to be looked at.
func head(resp *http.Response) (text string, found bool) {
	if !looked(resp, textBytes) {
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

// bodyGroup returns the match of the pattern's first group in an answer's body, or of the whole
// pattern if it has no group. A nil pattern matches nothing.
func bodyGroup(pattern *regexp.Regexp, resp *http.Response, max int64) (match string, ok bool) {
	if pattern == nil {
		return "", false
	}

	at := submatchIndex(pattern, resp, max)
	if at == nil {
		return "", false
	}

	// The first pair of indexes is of the whole match, the second of the first group.
	if len(at) > 2 {
		at = at[2:]
	}
	if at[0] < 0 { // the pattern matches without the group
		return "", true
	}

	head, _ := PeekBody(resp, int64(at[1])) // these bytes are there
	return string(head[at[0]:at[1]]), true
}

// submatchIndex is FindReaderSubmatchIndex of the first max bytes of an answer's body, or nil if they must not be
// looked at.
func submatchIndex(pattern *regexp.Regexp, resp *http.Response, max int64) []int {
	if !looked(resp, max) {
		return nil
	}

	// The body is not kept, so the search reads for itself.
	a, body := peek.Kept[answer](resp)
	if a == nil {
		return pattern.FindReaderSubmatchIndex(bufio.NewReader(peek.Reader(resp, max)))
	}

	a.mu.Lock()
	defer a.mu.Unlock()

	a.runes = runeReader{text: window{body, int(max)}}
	return pattern.FindReaderSubmatchIndex(&a.runes)
}
