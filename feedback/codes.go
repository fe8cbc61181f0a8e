package feedback

import (
	"net/http"
	"regexp"
	"strings"
	"time"

	"github.com/fleetthrottle/throttle"
)

// Codes is a table of the codes with which an upstream refuses in a JSON body, under any status.
// The zero value knows no code.
type Codes struct {
	// Fields are the paths of the field that holds the code. The first path that leads to a value
	// decides; null and "" are no values. A dot leads into an object or, with a number, into an
	// array; "*" stands for every member or element, of which one match is enough: "errcode",
	// "error.code", "errors.0.code", "errors.*.extensions.code".
	Fields []string

	// Pattern finds the code in the field's text: the match of its first group, or of the whole
	// pattern if it has no group. Defaults to nil: the whole text is the code.
	Pattern *regexp.Regexp

	// Lasts is how long each code closes the budget. Codes are compared as texts without regard to
	// case, so 88 and "88" are the same code. A "*" at the beginning or the end of a code stands
	// for any text: an exact code counts before all patterns, and of several matching patterns the
	// longest duration counts. A duration of 0 marks a refusal caused by a different budget:
	// nothing closes, End is not called, and [First] stops.
	Lasts map[string]time.Duration

	// NotRefused are the codes of answers that are certainly no refusals: see the function
	// [NotRefused]. An exact code counts before a pattern, and Lasts counts before NotRefused.
	NotRefused []string

	// End is called for an answer whose code closes the budget. A duration that it reads replaces
	// the duration of Lasts. Defaults to nil.
	End Reader

	// Max is how many bytes of the body are read. Defaults to 64 KB, the maximum.
	Max int64
}

// Answer is the [Reader] of the table.
func (c Codes) Answer(resp *http.Response) throttle.Answer {
	text, found := firstField(resp, c.Fields, atMost(c.Max, mostBytes), func(text string) (known bool) {
		_, known = c.usual(text)
		return known
	})
	if !found {
		return throttle.Answer{}
	}

	usual, _ := c.usual(text)
	if usual.Close > 0 {
		usual.Close = ending(resp, c.End, usual.Close)
	}

	return usual
}

// usual returns the meaning of the code in a field's text without regard to End. known is false if
// the text has no code of the table.
func (c Codes) usual(text string) (a throttle.Answer, known bool) {
	code, ok := fieldGroup(c.Pattern, text)
	if !ok {
		return throttle.Answer{}, false
	}

	code = folded(code)
	d, exact, known := c.lasts(code)
	no, noExact := c.notRefused(code)

	// An exact code outranks a code with "*". Among equals a refusal outranks NotRefused.
	switch {
	case exact, known && !noExact:
		return throttle.Refused(d), true
	case no:
		return NotRefused(nil), true
	}

	return throttle.Answer{}, false
}

// lasts returns for how long a code closes the budget; known is false if Lasts does not have the code, and
// exact is true if Lasts has it without a "*".
func (c Codes) lasts(code string) (longest time.Duration, exact, known bool) {
	for pattern, d := range c.Lasts {
		switch {
		// Codes of different lengths match only by a "*".
		case len(pattern) != len(code) && !open(pattern):
		case !wild(strings.ToLower(pattern), code):
		case !strings.Contains(pattern, "*"):
			return d, true, true
		case !known || d > longest:
			longest, known = d, true
		}
	}
	return longest, false, known
}

// notRefused reports whether NotRefused has a code, and whether it has the code without a "*".
func (c Codes) notRefused(code string) (known, exact bool) {
	for _, pattern := range c.NotRefused {
		if wild(strings.ToLower(pattern), code) {
			known, exact = true, exact || !strings.Contains(pattern, "*")
		}
	}
	return known, exact
}

// open reports whether a text has a "*" at either end: see wild.
func open(pattern string) bool {
	return pattern != "" && (pattern[0] == '*' || pattern[len(pattern)-1] == '*')
}

// ending returns the duration that end reads from the answer, or the usual duration if end reads
// none, and never less than the Retry-After of a 429.
func ending(resp *http.Response, end Reader, usual time.Duration) time.Duration {
	if end != nil {
		if d := end(resp).Close; d > 0 {
			return orRounded(resp, min(d, throttle.MaxPenalty))
		}
	}
	return orAsked(resp, min(usual, throttle.MaxPenalty))
}
