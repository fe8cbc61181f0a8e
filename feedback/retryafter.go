package feedback

import (
	"net/http"
	"time"

	"github.com/fleetthrottle/throttle"
)

// usualRetryAfter is for how long a refusal closes the budget that does not say, in any form that can be read,
// how long to stay away, as [throttle.RetryAfter] has it.
const usualRetryAfter = time.Second

// RetryAfter returns a reader that obeys the field Retry-After whatever the
// status, and is the fallback if the field does not say how long. It reads all
// that [Headers] reads in a Reset. "0" is a legal value that means now: nothing is
// said, and the policy's own limit alone paces what follows. A fallback of 0 says nothing either.
//
// It belongs in a [When]. Without one every answer is a refusal, successes too, and
// package retry would send each request again; with 3xx the field says when to
// follow, and with 202 when to ask again. For 429 and 503 alone there is
// [throttle.RetryAfter].
func RetryAfter(fallback time.Duration) Reader {
	return func(resp *http.Response) throttle.Answer {
		d, ok := retryAfter(resp)
		if !ok {
			d = min(fallback, throttle.MaxPenalty)
		}
		return refused(d)
	}
}

func retryAfter(resp *http.Response) (d time.Duration, ok bool) {
	return Dialect(nil).readFields(resp, valuesOf(resp.Header, "Retry-After"))
}

// asked returns what the Retry-After of a 429 asks, which no reader of a refusal may
// lose; ok is false for every other answer.
func asked(resp *http.Response) (d time.Duration, ok bool) {
	if resp == nil || resp.StatusCode != http.StatusTooManyRequests {
		return 0, false
	}
	return retryAfter(resp)
}

// orAsked returns the length of a penalty, or what the Retry-After of a 429 asks if
// that is longer. An answer that is no refusal stays none.
func orAsked(resp *http.Response, d time.Duration) time.Duration {
	if d <= 0 {
		return d
	}
	longer, _ := asked(resp)
	return max(d, longer)
}

// orRounded is orAsked for a length that the answer itself says: a Retry-After in whole
// seconds that is no more than that length rounded up says the same.
func orRounded(resp *http.Response, d time.Duration) time.Duration {
	longer, ok := asked(resp)
	if ok && d > 0 && longer%time.Second == 0 && longer-d < time.Second {
		return d
	}
	return orAsked(resp, d)
}

// UntilMidnight returns a reader that takes every answer for a refusal that ends with the day in a zone, as the window of a
// [throttle.CalendarWindow] does, also where there is no midnight, or are two; nil is
// UTC. It is never less than what the Retry-After of a 429 asks.
func UntilMidnight(zone *time.Location) Reader {
	return untilEnd(throttle.CalendarWindow(1, throttle.Day, zone))
}

// UntilFirst returns a reader that takes every answer for a refusal that ends with the month in a zone; nil is UTC.
// [throttle.MaxPenalty] cuts it short, except on the last day. It is never less than
// what the Retry-After of a 429 asks.
func UntilFirst(zone *time.Location) Reader {
	return untilEnd(throttle.CalendarWindow(1, throttle.Month, zone))
}

// untilEnd returns a reader that takes every answer for a refusal that ends with the window in which the
// answer was sent.
func untilEnd(limit throttle.Limit) Reader {
	return func(resp *http.Response) throttle.Answer {
		now := sent(resp)
		_, end := limit.Window(now)
		return refused(orAsked(resp, min(end.Sub(now), throttle.MaxPenalty)))
	}
}
