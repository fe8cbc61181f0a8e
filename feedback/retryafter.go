package feedback

import (
	"net/http"
	"time"

	"github.com/fleetthrottle/throttle"
)

// usualRetryAfter is the duration of a refusal that states no readable duration, as in
// [throttle.RetryAfter].
const usualRetryAfter = time.Second

// RetryAfter returns a reader that obeys the field Retry-After under any status, and uses fallback
// if the field states no duration. It reads all forms of [Headers.Reset]. "0" is valid and means
// now: then the answer says nothing, and the policy's own limit paces the next requests. A fallback
// of 0 says nothing either.
//
// Put it behind a [When]. Otherwise every answer is a refusal, successes too, and package retry
// would repeat each request; with 3xx the field says when to follow, and with 202 when to ask
// again. For 429 and 503 alone there is [throttle.RetryAfter].
func RetryAfter(fallback time.Duration) Reader {
	return func(resp *http.Response) throttle.Answer {
		d, ok := retryAfter(resp)
		if !ok {
			d = min(fallback, throttle.MaxPenalty)
		}
		return refused(d)
	}
}

// retryAfter reads Retry-After in the usual dialect. ok is false if it cannot be read, or has passed.
func retryAfter(resp *http.Response) (d time.Duration, ok bool) {
	return Dialect(nil).readFields(resp, valuesOf(resp.Header, "Retry-After"))
}

// asked returns the Retry-After of a 429, which no reader of a refusal may ignore. ok is false for
// every other status.
func asked(resp *http.Response) (d time.Duration, ok bool) {
	if resp == nil || resp.StatusCode != http.StatusTooManyRequests {
		return 0, false
	}
	return retryAfter(resp)
}

// orAsked returns d, or the Retry-After of a 429 if that is longer. A d of 0, for an answer that is
// no refusal, stays 0.
func orAsked(resp *http.Response, d time.Duration) time.Duration {
	if d <= 0 {
		return d
	}
	longer, _ := asked(resp)
	return max(d, longer)
}

// orRounded is orAsked for a duration out of the answer itself: a Retry-After that is this duration
// rounded up to whole seconds does not lengthen it.
func orRounded(resp *http.Response, d time.Duration) time.Duration {
	longer, ok := asked(resp)
	if ok && d > 0 && longer%time.Second == 0 && longer-d < time.Second {
		return d
	}
	return orAsked(resp, d)
}

// UntilMidnight returns a reader that takes every answer for a refusal and closes the budget until
// the day ends in zone, as the window of a [throttle.CalendarWindow] does, also on days with no
// midnight or two. A nil zone is UTC. The Retry-After of a 429 counts if it is longer.
func UntilMidnight(zone *time.Location) Reader {
	return untilEnd(throttle.CalendarWindow(1, throttle.Day, zone))
}

// UntilFirst returns a reader that takes every answer for a refusal and closes the budget until the
// month ends in zone. A nil zone is UTC. [throttle.MaxPenalty] cuts the penalty short, except on
// the last day. The Retry-After of a 429 counts if it is longer.
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
