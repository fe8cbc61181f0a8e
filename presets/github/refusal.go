package github

import (
	"net/http"
	"regexp"
	"time"

	"github.com/fleetthrottle/throttle"
	"github.com/fleetthrottle/throttle/feedback"
)

var (
	refused = feedback.When{Status: []int{http.StatusForbidden, http.StatusTooManyRequests}}

	remaining = feedback.Headers{
		Remaining: "X-RateLimit-Remaining",
		Reset:     "X-RateLimit-Reset",
	}

	// saysSecondary is the part of the message that has stayed the same.
	saysSecondary = feedback.Codes{
		Fields:  []string{"message"},
		Pattern: regexp.MustCompile(`(?i)secondary rate limit`),
		Lasts:   map[string]time.Duration{"secondary rate limit": time.Minute},
		End:     feedback.RetryAfter(0),
	}.Penalty

	// secondary closes an account.
	secondary = refused.Penalty(feedback.First(
		saysSecondary,
		feedback.When{Header: map[string]string{"X-RateLimit-Remaining": "0"}}.Penalty(feedback.For(feedback.No)),
		feedback.When{Header: map[string]string{"Retry-After": ""}}.Penalty(feedback.RetryAfter(time.Minute)),
		feedback.When{Status: []int{http.StatusTooManyRequests}}.Penalty(feedback.For(time.Minute)),
	))
)

// primary closes a resource of which nothing is left.
func primary(resp *http.Response) time.Duration {
	if !own(resp) {
		return 0
	}
	return refused.Penalty(remaining.Penalty)(resp)
}

// left is what is left of a resource.
func left(resp *http.Response) (throttle.Quota, bool) {
	if !own(resp) {
		return throttle.Quota{}, false
	}
	return remaining.Quota(resp)
}

// own reports whether an answer speaks of the resource whose budget its request
// was charged to.
func own(resp *http.Response) bool {
	name := resp.Header.Get("X-RateLimit-Resource")
	return name == "" || resp.Request != nil && name == resource(resp.Request)
}
