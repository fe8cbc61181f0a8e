package throttle

import (
	"math"
	"net/http"
	"strconv"
	"strings"
	"time"
)

const (
	// DefaultRetryAfter is what [RetryAfter] makes of a 429 that does not
	// say, in any form it can use, how long to stay away.
	DefaultRetryAfter = time.Second

	// MaxRetryAfter caps [RetryAfter]. Servers have sent days, and seconds
	// since 1970 in place of a delay. A [Policy.Penalty] that knows better
	// may return more, up to [MaxPenalty].
	MaxRetryAfter = time.Hour
)

// epochSeconds is the number of seconds, about ten years, above which a number
// is no delay but a time in seconds since 1970.
const epochSeconds = 10 * 365 * 24 * 60 * 60

// latestEpoch, in the year 36812, keeps absurd numbers within what an int64
// and time.Unix can take.
const latestEpoch = 1 << 40

// RetryAfter is the default [Policy.Penalty]: how long a 429 (Too Many
// Requests) or 503 (Service Unavailable) asks to stay away in its Retry-After
// field, at most [MaxRetryAfter]. Any other answer, and nil, is 0.
//
// The field may hold seconds, decimals too, or a date. A date is compared with
// the answer's own Date, so that no clock of this machine matters; only an
// answer without Date is compared with the time here. Both are cut to whole
// seconds, so one second is added.
//
// "0" is a legal value that means now: the result is 0, and the policy's own
// limit alone paces what follows. A field that is missing, cannot be read, or
// names a moment that has passed does not say when. Then a 429, which is about
// a limit, is worth [DefaultRetryAfter], so that nonsense never causes a storm
// of retries; a 503 is 0, because without a time it tells of an outage and not
// of a limit.
func RetryAfter(resp *http.Response) time.Duration {
	if resp == nil {
		return 0
	}
	limited := resp.StatusCode == http.StatusTooManyRequests
	if !limited && resp.StatusCode != http.StatusServiceUnavailable {
		return 0
	}
	wait, ok := statedWait(resp.Header)
	switch {
	case ok:
		return min(wait, MaxRetryAfter)
	case limited:
		return DefaultRetryAfter
	}
	return 0
}

// statedWait returns the wait that a Retry-After field asks for. It is never
// negative; ok is false if the field does not say.
func statedWait(h http.Header) (wait time.Duration, ok bool) {
	field := strings.TrimSpace(h.Get("Retry-After"))
	if seconds, ok := parseSeconds(field); ok {
		if seconds > epochSeconds {
			return until(time.Unix(int64(min(seconds, latestEpoch)), 0), h)
		}
		return time.Duration(math.Ceil(seconds * float64(time.Second))), true
	}
	date, err := http.ParseTime(field)
	if err != nil {
		return 0, false
	}
	return until(date, h)
}

// parseSeconds reads "120" or "2.5". What else [strconv.ParseFloat] takes
// (signs, exponents, hexadecimal, infinity) is no number of seconds.
func parseSeconds(s string) (seconds float64, ok bool) {
	whole, fraction, decimal := strings.Cut(s, ".")
	if !digits(whole) || decimal && !digits(fraction) {
		return 0, false
	}
	// The only error left is a number out of range, which is then infinite:
	// right for what it says.
	seconds, _ = strconv.ParseFloat(s, 64)
	return seconds, true
}

// until returns the distance from an answer's Date, or from now, to a moment
// given in whole seconds.
func until(moment time.Time, h http.Header) (wait time.Duration, ok bool) {
	now, err := http.ParseTime(h.Get("Date"))
	if err != nil {
		now = time.Now()
	}
	wait = moment.Add(time.Second).Sub(now)
	return max(wait, 0), wait > 0
}

func digits(s string) bool { return s != "" && numeric(s) }
