package feedback

import (
	"net/http"
	"strings"
	"time"

	"github.com/fleetthrottle/throttle/internal/dialect"
)

// A Dialect parses the text of a reset: a duration from now, or a moment. sent is when the answer
// was sent; ok is false if the text cannot be parsed, or names a moment in the past. A Dialect is
// called twice, with the answer's Date and with this machine's clock, and the shorter duration
// counts. It must be safe for concurrent use. Nil is the usual dialect: see [Headers.Reset].
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
// without a zone; a nil zone is UTC. A moment in whole seconds is moved a second later, and a
// moment in whole minutes a minute later, because up to that much may have been cut off. An hour or
// a day counts from its beginning, or to its end if it has begun.
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
