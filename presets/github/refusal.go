package github

import (
	"net/http"
	"regexp"
	"strconv"
	"time"

	"github.com/fleetthrottle/throttle"
	"github.com/fleetthrottle/throttle/feedback"
	"github.com/fleetthrottle/throttle/presets/internal/own"
)

var (
	refused = feedback.When{Status: []int{http.StatusForbidden, http.StatusTooManyRequests}}
	spent   = feedback.When{Header: map[string]string{"X-RateLimit-Remaining": "0"}}

	// primary closes a resource of which nothing is left, by GitHub's order of
	// trust.
	primary = refused.Penalty(spent.Penalty(feedback.First(
		feedback.RetryAfter(0),
		feedback.Headers{Reset: "X-RateLimit-Reset"}.Penalty,
		feedback.For(time.Minute),
	)))

	// saysSecondary is the part of the message that has stayed the same.
	saysSecondary = feedback.Codes{
		Fields:  []string{"message"},
		Pattern: regexp.MustCompile(`(?i)secondary rate limit`),
		Lasts:   map[string]time.Duration{"secondary rate limit": time.Minute},
		End:     feedback.RetryAfter(0),
	}.Penalty

	// secondary closes an account.
	secondary = own.Refusals(refused.Penalty(feedback.First(
		saysSecondary,
		spent.Penalty(feedback.For(feedback.No)),
		feedback.When{Header: map[string]string{"Retry-After": ""}}.Penalty(feedback.RetryAfter(time.Minute)),
		feedback.When{Status: []int{http.StatusTooManyRequests}}.Penalty(feedback.For(time.Minute)),
	)))
)

var remaining = feedback.Headers{
	Remaining: "X-RateLimit-Remaining",
	Reset:     "X-RateLimit-Reset",
}

// left is what is left of a resource.
func (o Options) left(resp *http.Response) (throttle.Quota, bool) {
	if resp.Request == nil || !ofResource(resp) || !o.ofCaller(resp) {
		return throttle.Quota{}, false
	}
	return remaining.Quota(resp)
}

// ofResource reports whether an answer speaks of the resource whose budget its
// request was charged to.
func ofResource(resp *http.Response) bool {
	name := resp.Header.Get("X-RateLimit-Resource")
	return name == "" || name == resource(resp.Request)
}

// ofCaller reports whether an answer speaks of somebody who may have PerHour: 60
// in place of 5,000 is what a caller without a token has. The other resources are
// small for everybody.
func (o Options) ofCaller(resp *http.Response) bool {
	limit, err := strconv.Atoi(resp.Header.Get("X-RateLimit-Limit"))
	return err != nil || resource(resp.Request) != "core" || limit >= o.PerHour/10 && limit/10 <= o.PerHour
}
