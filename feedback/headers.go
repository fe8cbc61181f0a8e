package feedback

import (
	"net/http"
	"time"

	"github.com/fleetthrottle/throttle"
)

// Headers are the fields in which an upstream tells of one budget, in any of the
// dialects of X-RateLimit: GitHub's
//
//	feedback.Headers{Remaining: "X-RateLimit-Remaining", Reset: "X-RateLimit-Reset"}
//
// A 401 is never believed, because it speaks of somebody unknown, and neither is
// an answer out of a cache. If one header tells of several budgets in turn, say
// which by [When].
type Headers struct {
	// Remaining or, with Limit or Size, Used is the field that counts: "3",
	// used and size as in "32/40", or a list of counts with the length of
	// their windows, as in "20:1,100:120".
	Remaining, Used, Limit string

	// Size is the limit if no field tells.
	Size int

	// Reset is the field that tells when there is more: after so many seconds,
	// "2" or "2.5"; after a Go duration, "6m0s"; or at a moment, in seconds
	// or milliseconds since 1970, in ISO 8601, or as a date of HTTP.
	Reset string

	// As says how Reset is written if it is none of these.
	As Dialect

	// Per is the length of the budget's window. It finds the member of a list
	// of counts, and stands in for a Reset that is not there.
	Per time.Duration

	// Clock says that the windows begin when the time since 1970 is a
	// multiple of Per: on the minute, on the hour of UTC.
	Clock bool
}

// Quota is a [throttle.Policy.Quota].
func (h Headers) Quota(resp *http.Response) (q throttle.Quota, ok bool) {
	return throttle.Quota{}, false
}

// Penalty is a [throttle.Policy.Penalty]: once nothing is left, the budget is
// closed until there is more. If neither Remaining nor Used is set, Reset alone
// closes it. An error's Retry-After, if it can be read, wins over Reset.
func (h Headers) Penalty(resp *http.Response) time.Duration {
	return 0
}
