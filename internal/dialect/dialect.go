// Package dialect reads how long to wait, or until when, from what upstreams write
// into fields and bodies. For the whole library it decides what Retry-After means.
package dialect

import (
	"math"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// Most is throttle.MaxPenalty: a longer duration is read as Most.
const Most = 24 * time.Hour

// A Reader reads how long to wait from a text of an answer that was sent at a time.
// ok is false if the text does not say it, or names the past.
type Reader func(text string, sent time.Time) (d time.Duration, ok bool)

// maxDoubt is the longest duration that counts although the moment has passed by the answer's Date.
const maxDoubt = 5 * time.Minute

// Read reads a text of an answer with the header h, which was sent at own by the
// clock of this machine. A moment is compared with own and with the answer's Date, if
// it has one, and the shorter duration counts: only if both clocks are wrong is a
// budget closed for hours by mistake. A moment that has passed by the Date is over,
// unless it is at most maxDoubt after own. A moment that has passed by own counts by
// the Date alone.
func Read(r Reader, text string, h http.Header, own time.Time) (d time.Duration, ok bool) {
	d, ok = r(text, own)
	date, err := http.ParseTime(h.Get("Date"))
	if err != nil {
		return d, ok
	}

	byDate, dated := r(text, date)
	switch {
	// By this machine's clock the text names the past, or says nothing: the Date decides.
	case !ok:
		return byDate, dated

	// By the Date the text names the past.
	case !dated:
		return d, d <= maxDoubt
	}

	return min(d, byDate), true
}

// Fields reads all lines of a field, as [Read] reads one, and returns the longest duration. A
// line may be a list of numbers with parameters, "30;w=60, 5", or the same text twice, as a proxy
// joins two equal lines.
func Fields(r Reader, lines []string, h http.Header, own time.Time) (longest time.Duration, ok bool) {
	for _, line := range lines {
		line = once(line)
		if d, said := Read(r, line, h, own); said {
			longest, ok = max(longest, d), true
			continue
		}

		// The line as a whole means nothing, so it may be a list.
		for _, member := range numbers(line) {
			if d, said := Read(r, member, h, own); said {
				longest, ok = max(longest, d), true
			}
		}
	}
	return longest, ok
}

// once returns the text of a line that has it twice, with a comma between, or the line itself. A date
// has a comma of its own, so the line cannot be split at its commas.
func once(line string) string {
	for _, comma := range []string{", ", ","} {
		half := max(0, len(line)-len(comma)) / 2
		if first := line[:half]; first+comma+first == line {
			return first
		}
	}
	return line
}

// numbers returns the members of a list of numbers, without their parameters and quotes,
// or nil if a member is no number, as in a date. "1,5" is no list: it may be a decimal.
func numbers(line string) (members []string) {
	for text := range strings.SplitSeq(line, ",") {
		member, _, _ := strings.Cut(text, ";")
		member = strings.Trim(member, "\" \t")
		_, ok := Number(member)

		// A comma without a blank behind it joins only equal members.
		isMember := len(members) == 0 || strings.HasPrefix(text, " ") || member == members[0]
		if !ok || !isMember {
			return nil
		}
		members = append(members, member)
	}
	return members
}

// A number up to epochSeconds, ten years, is a length in seconds. A larger one is a
// moment, counted since 1970 in seconds or, from the other constants on, in
// milliseconds, microseconds or nanoseconds: each of these three is in 1973.
const (
	epochSeconds = 10 * 365 * 24 * 60 * 60
	epochMillis  = 1e11
	epochMicros  = 1e14
	epochNanos   = 1e17
)

// Common is the [Reader] for upstreams whose dialect is unknown. It reads a number, a date, a
// duration as Go writes it, or a length such as "5 seconds": hardly any text has two of these
// meanings.
func Common(text string, sent time.Time) (time.Duration, bool) {
	text = strings.TrimSpace(text)
	if n, ok := Number(text); ok {
		return lengthOrMoment(n, sent)
	}
	if moment, unit, ok := date(text); ok {
		return Until(moment, unit, sent)
	}

	// ParseDuration reads a sign, too, but no upstream has a use for one.
	d, err := time.ParseDuration(text)
	if err == nil && !strings.ContainsAny(text, "+-") {
		return min(d, Most), true
	}

	d, rest, ok := leadingLength(text)
	return d, ok && rest == ""
}

// lengthOrMoment reads a number: a length in seconds, or a moment since 1970 in the unit that its size tells.
func lengthOrMoment(n float64, sent time.Time) (time.Duration, bool) {
	var moment time.Time
	switch {
	case n <= epochSeconds:
		return Length(n, time.Second), true
	case n < epochMillis:
		moment = time.UnixMilli(int64(n * 1000))
	case n < epochMicros:
		moment = time.UnixMilli(int64(n))
	case n < epochNanos:
		moment = time.UnixMicro(int64(n))
	case n < math.MaxInt64:
		// A float64 holds a moment of today only to 256 nanoseconds, so round up to whole microseconds.
		moment = time.Unix(0, int64(n)).Add(time.Microsecond - 1).Truncate(time.Microsecond)
	default:
		return 0, false
	}

	return Until(moment, time.Second, sent)
}

// Number parses "120" or "2.5". It accepts no sign, exponent, hexadecimal number or infinity, and
// no number out of a float64's range, unlike [strconv.ParseFloat].
func Number(text string) (n float64, ok bool) {
	text = strings.TrimSpace(text)
	whole, fraction, decimal := strings.Cut(text, ".")
	if !digits(whole) || decimal && !digits(fraction) {
		return 0, false
	}
	n, err := strconv.ParseFloat(text, 64)
	return n, err == nil
}

// digits reports whether a text has digits alone, and at least one.
func digits(s string) bool { return s != "" && strings.Trim(s, "0123456789") == "" }

// Length returns n units, rounded up to whole nanoseconds, and at most [Most].
func Length(n float64, unit time.Duration) time.Duration {
	return time.Duration(math.Ceil(min(n*float64(unit), float64(Most))))
}

// lastYear is the last that a date is written with.
const lastYear = 9999

// Until returns the distance from sent to a moment that is written to a unit, at most [Most]. The
// moment may have been truncated to whole seconds or minutes, so a second or a minute is added,
// unless the moment has a fraction of a second. An hour or a day counts to its end if it has begun,
// and otherwise to its beginning, to which a second is added. ok is false for a moment that is over,
// or after lastYear.
func Until(moment time.Time, unit time.Duration, sent time.Time) (d time.Duration, ok bool) {
	if moment.UTC().Year() > lastYear {
		return 0, false
	}

	// The hour or the day has not begun.
	if unit > time.Minute && moment.After(sent) {
		unit = time.Second
	}
	if moment.Nanosecond() == 0 {
		moment = moment.Add(unit)
	}

	d = moment.Sub(sent)
	return min(d, Most), d > 0
}
