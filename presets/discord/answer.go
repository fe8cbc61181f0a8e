package discord

import (
	"net/http"
	"strings"
	"time"

	"github.com/fleetthrottle/throttle/feedback"
)

var (
	tooMany = feedback.When{Status: []int{http.StatusTooManyRequests}}

	// stated is the penalty that a refusal states: in its body, or else in Retry-After.
	stated = feedback.First(
		feedback.Printed{Fields: []string{"retry_after"}, As: feedback.After(time.Second)}.Penalty,
		feedback.RetryAfter(time.Second),
	)

	// global is the penalty of the refusals that are about all requests of a bot.
	global = tooMany.Penalty(feedback.First(
		feedback.When{Header: map[string]string{"X-RateLimit-Global": "true"}}.Penalty(stated),
		feedback.When{Header: map[string]string{"X-RateLimit-Scope": "global"}}.Penalty(stated),
		feedback.Codes{
			Fields: []string{"global"},
			Lasts:  map[string]time.Duration{"true": time.Second},
			End:    stated,
		}.Penalty,
	))

	// banned is the penalty of the refusals that ban an address. They are no JSON, as Discord's own
	// answers are.
	banned = tooMany.Penalty(feedback.When{Media: []string{"text/*"}}.Penalty(feedback.RetryAfter(10 * time.Minute)))

	// left is the quota of a route.
	left = feedback.Headers{
		Remaining: "X-RateLimit-Remaining",
		Reset:     "X-RateLimit-Reset-After",
	}.Quota
)

// limited is the penalty of the refusals that are about a route: those that are neither global nor
// about an address. No global limit is an interaction's, so each refusal of one is about its route.
func limited(resp *http.Response) time.Duration {
	ofRoute := global(resp) == 0 || resp.Request != nil && senderOf(resp.Request) == interaction
	if !ofRoute || banned(resp) != 0 {
		return 0
	}
	return tooMany.Penalty(stated)(resp)
}

// refusals is a [throttle.Policy.Settle]: 1 for an answer that counts towards a ban of the address, else
// 0.
func refusals(resp *http.Response) int {
	switch resp.StatusCode {
	case http.StatusUnauthorized, http.StatusForbidden:
		return 1
	case http.StatusTooManyRequests:
		if !strings.EqualFold(resp.Header.Get("X-RateLimit-Scope"), "shared") {
			return 1
		}
	}
	return 0
}
