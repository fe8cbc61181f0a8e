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
	// without one fits. [NotRefused] makes a code certainly no refusal.
	Lasts map[string]time.Duration

	// End is asked about an answer that has a code of the table. If it says
	// how long, that counts in place of the usual length. Defaults to nil.
	End Penalty

	// Max is how many bytes are looked at. Defaults to 64 KB, which is the
	// most.
	Max int64
}

// Penalty is the [throttle.Policy.Penalty] of the table.
func (c Codes) Penalty(resp *http.Response) time.Duration {
	text, found := firstField(resp, c.Fields, atMost(c.Max, mostBytes), func(text string) (known bool) {
		_, known = c.usual(text)
		return known
	})
	if !found {
		return 0
	}
	usual, _ := c.usual(text)
	return ending(resp, c.End, usual)
}

// usual returns for how long the code in a field's text closes the budget; known is false if the text
// has no code of the table.
func (c Codes) usual(text string) (d time.Duration, known bool) {
	code, ok := fieldGroup(c.Pattern, text)
	if !ok {
		return 0, false
	}
	return c.lasts(code)
}

// lasts returns for how long a code closes the budget; known is false if the table does not have it.
func (c Codes) lasts(code string) (longest time.Duration, known bool) {
	code = folded(code)
	for pattern, d := range c.Lasts {
		switch {
		case len(pattern) != len(code) && !open(pattern):
		case !wild(strings.ToLower(pattern), code):
		case !strings.Contains(pattern, "*"):
			return d, true
		case !known || d > longest:
			longest, known = d, true
		}
	}
	return longest, known
}

// open reports whether a text has a "*" at either end: see wild.
func open(pattern string) bool {
	return pattern != "" && (pattern[0] == '*' || pattern[len(pattern)-1] == '*')
}

// ending returns what end says about a refusal, or else its usual length; at least what
// the Retry-After of a 429 asks.
func ending(resp *http.Response, end Penalty, usual time.Duration) time.Duration {
	if end != nil && usual >= 0 {
		if d := end(resp); d > 0 {
			return orRounded(resp, min(d, throttle.MaxPenalty))
		}
	}
	return orAsked(resp, min(usual, throttle.MaxPenalty))
}
