package feedback

import (
	"net/http"
	"regexp"
	"strings"
	"time"

	"github.com/fleetthrottle/throttle"
)

// Codes is a table of the codes with which an upstream refuses in a JSON body,
// whatever the status.
type Codes struct {
	// Fields say where the code is. The first that is there decides; null and
	// "" are not there. A dot leads into an object or, with a number, into an
	// array; "*" is all that is in it, of which one is enough:
	// "errcode", "error.code", "errors.0.code", "errors.*.extensions.code".
	Fields []string

	// Pattern finds the code in the field's text: what its first group
	// matches, or the whole pattern if it has no group. Defaults to nil: all
	// of the text is the code.
	Pattern *regexp.Regexp

	// Lasts says for how long each code closes the budget. Numbers, strings,
	// true and false are compared as texts, so that 88 and "88" are the same
	// code, and without regard to case. A "*" at the beginning or the end of
	// a code stands for anything; of those the longest counts, unless a code
	// without one fits. 0 makes a code a refusal that is about another budget: nothing
	// closes, End is not asked, and [First] asks nobody else.
	Lasts map[string]time.Duration

	// NotRefused are the codes of answers that are certainly no refusals: see [NotRefused].
	// Lasts counts before them where both have a code with a "*".
	NotRefused []string

	// End is asked about an answer whose code closes the budget. If it says
	// how long, that counts in place of the usual length. Defaults to nil.
	End Reader

	// Max is how many bytes are looked at. Defaults to 64 KB, which is the
	// most.
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

// usual returns what the code in a field's text means, if the answer does not say for how long; known is
// false if the text has no code of the table.
func (c Codes) usual(text string) (a throttle.Answer, known bool) {
	code, ok := fieldGroup(c.Pattern, text)
	if !ok {
		return throttle.Answer{}, false
	}

	code = folded(code)
	d, exact, known := c.lasts(code)

	no, noExact := c.notRefused(code)
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

// ending returns what end says about a refusal, or else its usual length; at least what
// the Retry-After of a 429 asks.
func ending(resp *http.Response, end Reader, usual time.Duration) time.Duration {
	if end != nil {
		if d := end(resp).Close; d > 0 {
			return orRounded(resp, min(d, throttle.MaxPenalty))
		}
	}
	return orAsked(resp, min(usual, throttle.MaxPenalty))
}
