package discord

import (
	"net/http"
	"strings"
	"time"

	"github.com/fleetthrottle/throttle"
	"github.com/fleetthrottle/throttle/feedback"
)

var (
	tooMany = feedback.When{Status: []int{http.StatusTooManyRequests}}

	// stated is the penalty that a refusal states: in its body, or in Retry-After.
	stated = feedback.First(
		feedback.Printed{Fields: []string{"retry_after"}, As: feedback.After(time.Second)}.Answer,
		feedback.RetryAfter(time.Second),
	)

	// global is the penalty of the refusals that are about all requests of a bot.
	global = tooMany.Then(feedback.First(
		feedback.When{Header: map[string]string{"X-RateLimit-Global": "true"}}.Then(stated),
		feedback.When{Header: map[string]string{"X-RateLimit-Scope": "global"}}.Then(stated),
		feedback.Codes{
			Fields: []string{"global"},
			Lasts:  map[string]time.Duration{"true": time.Second},
			End:    stated,
		}.Answer,
	))

	// banned is the penalty of the refusals that ban an address. They are no JSON, as Discord's own
	// answers are.
	banned = tooMany.Then(feedback.When{Media: []string{"text/*"}}.Then(feedback.RetryAfter(10 * time.Minute)))

	// left is the quota of a route.
	left = feedback.Headers{
		Remaining: "X-RateLimit-Remaining",
		Reset:     "X-RateLimit-Reset-After",
	}.Left
)

// limited is the penalty of the refusals of a route, which are neither global nor about an address.
// The global limit does not apply to interactions, so each refusal of an interaction is about its
// route.
func limited(resp *http.Response) throttle.Answer {
	ofRoute := global(resp).Close == 0 || resp.Request != nil && senderOf(resp.Request) == interaction
	if !ofRoute || banned(resp).Close > 0 {
		return throttle.Answer{}
	}
	return tooMany.Then(stated)(resp)
}

// refusals is a [throttle.Policy.Answer]: an answer that counts towards a ban of the address costs 1, any
// other 0.
func refusals(resp *http.Response) throttle.Answer {
	counts := 0
	switch resp.StatusCode {
	case http.StatusUnauthorized, http.StatusForbidden:
		counts = 1
	case http.StatusTooManyRequests:
		if !strings.EqualFold(resp.Header.Get("X-RateLimit-Scope"), "shared") {
			counts = 1
		}
	}
	return throttle.Answer{}.WithCost(counts)
}
