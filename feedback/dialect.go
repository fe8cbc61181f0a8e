package feedback

import (
	"math"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/fleetthrottle/throttle"
)

// A Dialect reads for how long, or until when, from a text. The answer was sent
// at that time; ok is false if the text does not say, or names the past.
type Dialect func(text string, sent time.Time) (d time.Duration, ok bool)

// After returns the dialect of plain numbers of a unit: with [time.Millisecond],
// "250" and "250.5".
func After(unit time.Duration) Dialect {
	return func(text string, _ time.Time) (time.Duration, bool) {
		n, ok := number(text)
		return length(n, unit), ok
	}
}

// At returns the dialect of moments in a layout of [time.Parse] and in a zone,
// unless they tell theirs; nil is UTC. A second is added for what may be cut
// off.
func At(layout string, zone *time.Location) Dialect {
	if zone == nil {
		zone = time.UTC
	}
	return func(text string, sent time.Time) (time.Duration, bool) {
		moment, err := time.ParseInLocation(layout, strings.TrimSpace(text), zone)
		if err != nil {
			return 0, false
		}
		return until(moment, sent)
	}
}

// Numbers above these are no lengths in seconds, but moments: ten years, and the
// first of the milliseconds since 1970 that is not taken for seconds, in 1973.
const (
	epochSeconds = 10 * 365 * 24 * 60 * 60
	epochMillis  = 1e11
)

// common is the dialect of whoever does not say: there is hardly a text that
// means one thing in one dialect and another in the next.
func common(text string, sent time.Time) (time.Duration, bool) {
	text = strings.TrimSpace(text)
	if n, ok := number(text); ok {
		switch {
		case n <= epochSeconds:
			return length(n, time.Second), true
		case n < epochMillis:
			return until(time.UnixMilli(int64(n*1000)), sent)
		default:
			return until(time.UnixMilli(int64(min(n, math.MaxInt64/2))), sent)
		}
	}
	if moment, err := http.ParseTime(text); err == nil {
		return until(moment, sent)
	}
	for _, layout := range []string{time.RFC3339, "2006-01-02T15:04:05Z0700"} {
		if moment, err := time.Parse(layout, text); err == nil {
			return until(moment, sent)
		}
	}
	// A sign would be read too, but no upstream has a use for one.
	d, err := time.ParseDuration(text)
	return min(d, throttle.MaxPenalty), err == nil && !strings.ContainsAny(text, "+-")
}

// number reads "120" or "2.5". What else [strconv.ParseFloat] takes (signs,
// exponents, hexadecimal, infinity) is no number here, and neither is one out of
// its range.
func number(text string) (n float64, ok bool) {
	text = strings.TrimSpace(text)
	whole, fraction, decimal := strings.Cut(text, ".")
	if !digits(whole) || decimal && !digits(fraction) {
		return 0, false
	}
	n, err := strconv.ParseFloat(text, 64)
	return n, err == nil
}

func digits(s string) bool { return s != "" && strings.Trim(s, "0123456789") == "" }

// length returns n units, rounded up to what a Duration can tell, and at most
// [throttle.MaxPenalty].
func length(n float64, unit time.Duration) time.Duration {
	return time.Duration(math.Ceil(min(n*float64(unit), float64(throttle.MaxPenalty))))
}

// lastYear is the last that a date is written with.
const lastYear = 9999

// until returns the distance to a moment, with a second for what its writer may
// have cut off, and at most [throttle.MaxPenalty].
func until(moment, sent time.Time) (d time.Duration, ok bool) {
	if moment.UTC().Year() > lastYear {
		return 0, false
	}
	d = moment.Add(time.Second).Sub(sent)
	return min(d, throttle.MaxPenalty), d > 0
}

// orCommon is the dialect, or the common one if that is nil.
func (d Dialect) orCommon() Dialect {
	if d == nil {
		return common
	}
	return d
}

// sent returns when the answer was sent: its Date, or else now.
func sent(resp *http.Response) time.Time {
	date, err := http.ParseTime(resp.Header.Get("Date"))
	if err != nil {
		return time.Now()
	}
	return date
}
