package feedback

import (
	"net/http"
	"regexp"
	"strings"
	"time"

	"github.com/fleetthrottle/throttle"
	"github.com/fleetthrottle/throttle/internal/dialect"
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

	// End is not asked about a code that closes nothing: a duration that it reads would close the budget.
	usual, _ := c.usual(text)
	if usual.Close > 0 {
		usual.Close = ending(resp, c.End, usual.Close)
	}

	return usual
}

// usual returns the meaning that the table itself, without End, gives to the code in a field's text.
// known is false if the text has no code of the table.
func (c Codes) usual(text string) (a throttle.Answer, known bool) {
	code, ok := fieldGroup(c.Pattern, text)
	if !ok {
		return throttle.Answer{}, false
	}

	code = folded(code)
	d, refuses, refusesExact := c.lasts(code)
	notRefused, notRefusedExact := c.notRefused(code)

	// An exact code outranks a code with "*". Among equals a refusal outranks NotRefused.
	switch {
	case refusesExact, refuses && !notRefusedExact:
		return throttle.Refused(d), true
	case notRefused:
		return NotRefused(nil), true
	}

	return throttle.Answer{}, false
}

// lasts returns for how long a code, as folded returns it, closes the budget. known is false if Lasts does
// not have the code. exact is true if Lasts has it without a "*". Of several patterns the longest duration
// counts.
func (c Codes) lasts(code string) (longest time.Duration, known, exact bool) {
	for pattern, d := range c.Lasts {
		switch {
		case !wild(strings.ToLower(pattern), code):
		case !strings.Contains(pattern, "*"):
			return d, true, true
		case !known || d > longest:
			longest, known = d, true
		}
	}
	return longest, known, false
}

// notRefused reports whether NotRefused has a code, as folded returns it, and whether it has the code
// without a "*".
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

// ending returns the duration that end, which may be nil, reads from the answer, or else the usual
// duration. It is at most [throttle.MaxPenalty], and at least the Retry-After of a 429, except that
// a usual duration of 0 stays 0, and that orRounded ignores a Retry-After that is only rounded up.
func ending(resp *http.Response, end Reader, usual time.Duration) time.Duration {
	if end != nil {
		if d := end(resp).Close; d > 0 {
			return orRounded(resp, min(d, throttle.MaxPenalty))
		}
	}
	return orAsked(resp, min(usual, throttle.MaxPenalty))
}

// A Dialect parses the text of a reset: a duration from now, or a moment. sent is when the answer
// was sent; ok is false if the text cannot be parsed, or names a moment in the past. A Dialect is
// called twice, with the answer's Date and with this machine's clock, and the shorter duration
// counts. A Dialect must be safe for concurrent use. Nil is the usual dialect: see [Headers.Reset].
type Dialect func(text string, sent time.Time) (d time.Duration, ok bool)

// After returns the dialect of decimal numbers of a unit: with [time.Millisecond], "250" and
// "250.5".
func After(unit time.Duration) Dialect {
	return func(text string, _ time.Time) (time.Duration, bool) {
		n, ok := number(text)
		return length(n, unit), ok
	}
}

// At returns the dialect of moments in a layout of [time.Parse]. The zone applies to layouts
// without a zone; a nil zone is UTC. The finest unit of the layout says how much of the moment may
// have been cut off: a layout with seconds adds a second, unless the text has a fraction, and a layout
// with minutes adds a minute. A layout of hours or days means the beginning of that hour or day, to
// which a second is added, or the end if the hour or day has begun. Spaces around the text are ignored.
func At(layout string, zone *time.Location) Dialect {
	if zone == nil {
		zone = time.UTC
	}
	unit := dialect.UnitOf(layout)

	return func(text string, sent time.Time) (time.Duration, bool) {
		moment, err := time.ParseInLocation(layout, strings.TrimSpace(text), zone)
		if err != nil {
			return 0, false
		}
		return dialect.Until(moment, unit, sent)
	}
}

// Sentence is the dialect of sentences for people: "Please retry in 39.237s.", "try again in
// 2m30s", "Retry after 2020-01-21T12:57:51Z", "available in 1 hour", "请在30秒后重试". A duration or a
// moment behind words that ask to come again counts before other durations; "100 requests in 1
// minute" states a limit and is no wait. A number without a unit counts as seconds directly behind
// "retry after" or "wait". Any other text is parsed as [Headers.Reset].
func Sentence(text string, sent time.Time) (d time.Duration, ok bool) {
	return dialect.Sentence(text, sent)
}

// orCommon returns the dialect, or [dialect.Common] for nil.
func (d Dialect) orCommon() dialect.Reader {
	if d == nil {
		return dialect.Common
	}
	return dialect.Reader(d)
}

// read reads a text of an answer: see [dialect.Read].
func (d Dialect) read(resp *http.Response, text string) (time.Duration, bool) {
	return dialect.Read(d.orCommon(), text, resp.Header, SentAt(resp))
}

// readFields reads all lines of a field of an answer: see [dialect.Fields].
func (d Dialect) readFields(resp *http.Response, lines []string) (time.Duration, bool) {
	return dialect.Fields(d.orCommon(), lines, resp.Header, SentAt(resp))
}

// canRead reports whether a line of a field is a length or a moment, which may be past.
func (d Dialect) canRead(lines []string) bool {
	_, ok := dialect.Fields(d.orCommon(), lines, nil, time.Time{})
	return ok
}

// number parses a decimal number: "120" or "2.5".
func number(text string) (n float64, ok bool) { return dialect.Number(text) }

// digits reports whether a text has digits alone, and at least one.
func digits(s string) bool { return s != "" && strings.Trim(s, "0123456789") == "" }

// length returns n units, at most [throttle.MaxPenalty].
func length(n float64, unit time.Duration) time.Duration { return dialect.Length(n, unit) }

// sent returns when the answer was sent: its Date, or now if it has no valid Date.
func sent(resp *http.Response) time.Time {
	date, err := http.ParseTime(resp.Header.Get("Date"))
	if err != nil {
		return time.Now()
	}
	return date
}
