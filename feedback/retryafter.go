package feedback

import (
	"net/http"
	"time"

	"github.com/fleetthrottle/throttle"
)

// RetryAfter returns a penalty that obeys the field Retry-After whatever the
// status, and is the fallback if the field does not say how long. It reads all
// that [Headers] reads in a Reset. "0" is a legal value that means now: the
// penalty is 0, and the policy's own limit alone paces what follows.
//
// It belongs in a [When]. Without one every answer is a refusal, successes too, and
// package retry would send each request again; with 3xx the field says when to
// follow, and with 202 when to ask again. For 429 and 503 alone there is
// [throttle.RetryAfter].
func RetryAfter(fallback time.Duration) Penalty {
	return func(resp *http.Response) time.Duration {
		if d, ok := retryAfter(resp); ok {
			return d
		}
		return min(fallback, throttle.MaxPenalty)
	}
}

func retryAfter(resp *http.Response) (d time.Duration, ok bool) {
	return Dialect(nil).read(resp, resp.Header.Get("Retry-After"))
}

// UntilMidnight returns a penalty that ends with the day in a zone; nil is UTC.
func UntilMidnight(zone *time.Location) Penalty {
	return untilDate(zone, func(y int, m time.Month, d int) (int, time.Month, int) { return y, m, d + 1 })
}

// UntilFirst returns a penalty that ends with the month in a zone; nil is UTC.
// [throttle.MaxPenalty] cuts it short, except on the last day.
func UntilFirst(zone *time.Location) Penalty {
	return untilDate(zone, func(y int, m time.Month, _ int) (int, time.Month, int) { return y, m + 1, 1 })
}

// untilDate returns a penalty that ends when the next date begins.
func untilDate(zone *time.Location, next func(int, time.Month, int) (int, time.Month, int)) Penalty {
	if zone == nil {
		zone = time.UTC
	}
	return func(resp *http.Response) time.Duration {
		now := sent(resp)
		year, month, day := next(now.In(zone).Date())
		return min(time.Date(year, month, day, 0, 0, 0, 0, zone).Sub(now), throttle.MaxPenalty)
	}
}
