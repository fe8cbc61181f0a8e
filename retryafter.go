package throttle

import (
	"net/http"
	"time"

	"github.com/fleetthrottle/throttle/internal/dialect"
)

const (
	// DefaultRetryAfter is what [RetryAfter] returns for a 429 that does not say,
	// in any form that it can read, how long to stay away.
	DefaultRetryAfter = time.Second

	// MaxRetryAfter caps [RetryAfter]. Servers have sent days, and seconds
	// since 1970 in place of a delay. A [Policy.Penalty] that knows better
	// may return more, up to [MaxPenalty].
	MaxRetryAfter = time.Hour
)

// RetryAfter is the default [Policy.Penalty]: how long a 429 (Too Many
// Requests) or 503 (Service Unavailable) asks to stay away in its Retry-After
// field, at most [MaxRetryAfter]. Any other answer, and nil, is 0.
//
// The field may hold seconds, decimals too; a date of HTTP or ISO 8601; seconds or
// milliseconds since 1970; or a Go duration, "6m0s". A moment is compared with the
// answer's own Date and with the clock of this machine, and the shorter time counts,
// so that no single clock can close a budget for hours. A moment in whole seconds
// gets another second, because a fraction may have been cut off.
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
	wait, ok := dialect.Read(dialect.Common, resp.Header.Get("Retry-After"), resp.Header, SentAt(resp))
	switch {
	case ok:
		return min(wait, MaxRetryAfter)
	case limited:
		return DefaultRetryAfter
	}
	return 0
}
