package github

import (
	"net/http"
	"regexp"
	"strconv"
	"time"

	"github.com/fleetthrottle/throttle"
	"github.com/fleetthrottle/throttle/feedback"
	"github.com/fleetthrottle/throttle/presets/internal/graphql"
	"github.com/fleetthrottle/throttle/presets/internal/tablerow"
)

var (
	refused = feedback.When{Status: []int{http.StatusForbidden, http.StatusTooManyRequests}}
	spent   = feedback.When{Header: map[string]string{"X-RateLimit-Remaining": "0"}}

	tooMany = feedback.When{Status: []int{http.StatusTooManyRequests}}.Then(feedback.RetryAfter(time.Second))

	// primary closes a resource of which nothing is left. The fields stand in the order in which
	// GitHub says to trust them.
	primary = refused.Then(spent.Then(feedback.First(
		feedback.RetryAfter(0),
		tablerow.Until(feedback.Headers{Reset: "X-RateLimit-Reset"}),
		feedback.For(time.Minute),
	)))

	saysSecondary = ofMessage("message")

	// refusedSecondary closes an account after a secondary refusal: the message says so, or it is not a primary refusal
	// and says when to come back, or has status 429.
	refusedSecondary = refused.Then(feedback.First(
		saysSecondary,
		spent.Then(feedback.For(0)),
		feedback.When{Header: map[string]string{"Retry-After": ""}}.Then(feedback.RetryAfter(time.Minute)),
		feedback.When{Status: []int{http.StatusTooManyRequests}}.Then(feedback.For(time.Minute)),
	))

	// succeededSecondary closes an account after a refusal of GraphQL with status 200.
	succeededSecondary = feedback.When{Status: []int{http.StatusOK}}.Then(ofMessage("message", "errors.*.message"))
)

// ofMessage returns a reader that closes an account for the Retry-After of a secondary refusal, or a minute. It recognises
// the refusal by the part of its message that has stayed the same, and by the earlier name of these refusals, which older
// Enterprise Servers still use.
func ofMessage(fields ...string) feedback.Reader {
	return feedback.Codes{
		Fields:  fields,
		Pattern: regexp.MustCompile(`(?i)secondary rate limit|abuse detection`),
		Lasts:   map[string]time.Duration{"*": time.Minute},
		End:     feedback.RetryAfter(0),
	}.Answer
}

// secondary returns a reader that closes an account after a secondary refusal.
func (o Options) secondary() feedback.Reader {
	return func(resp *http.Response) throttle.Answer {
		// GraphQL may refuse in an answer with status 200.
		if resp.Request != nil && o.isGraphQL(resp.Request) {
			if a := succeededSecondary(resp); a.Close > 0 {
				return a
			}
		}
		return refusedSecondary(resp)
	}
}

// acted reports whether a refused mutation was done in part.
func (o Options) acted(resp *http.Response) bool {
	return resp.Request != nil && o.isGraphQL(resp.Request) && graphql.Acted(resp)
}

// unchanged says what an answer has cost: with a token a 304 is free.
func unchanged(resp *http.Response) throttle.Answer {
	if resp.StatusCode == http.StatusNotModified && resp.Request != nil && resp.Request.Header.Get("Authorization") != "" {
		return throttle.Answer{}.WithCost(0)
	}
	return throttle.Answer{}
}

var remaining = feedback.Headers{
	Remaining: "X-RateLimit-Remaining",
	Reset:     "X-RateLimit-Reset",
}

// left returns the remaining points of a resource.
func (o Options) left(resp *http.Response) throttle.Answer {
	if resp.Request == nil || !o.ofResource(resp) || !o.ofCaller(resp) {
		return throttle.Answer{}
	}
	return remaining.Left(resp)
}

// ofResource reports whether an answer speaks of the resource whose budget its
// request was charged to.
func (o Options) ofResource(resp *http.Response) bool {
	name := resp.Header.Get("X-RateLimit-Resource")
	return name == "" || name == o.resource(resp.Request)
}

// ofCaller reports whether the limit in an answer can belong to the options' caller: it is within a
// factor of ten of PerHour. For requests without a token GitHub states 60 in place of 5,000. It is true for answers
// without a limit, and for resources other than core, whose limits are the same for all callers.
func (o Options) ofCaller(resp *http.Response) bool {
	limit, err := strconv.Atoi(resp.Header.Get("X-RateLimit-Limit"))
	return err != nil || o.resource(resp.Request) != "core" || limit >= o.PerHour/10 && limit/10 <= o.PerHour
}
