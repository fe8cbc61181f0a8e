package discord

import (
	"net/http"
	"strings"
	"time"

	"github.com/fleetthrottle/throttle/feedback"
)

var (
	tooMany = feedback.When{Status: []int{http.StatusTooManyRequests}}

	// stated is for how long a refusal asks to stay away.
	stated = feedback.First(
		feedback.Printed{Fields: []string{"retry_after"}, As: feedback.After(time.Second)}.Penalty,
		feedback.RetryAfter(time.Second),
	)

	// global closes a bot.
	global = tooMany.Penalty(feedback.First(
		feedback.When{Header: map[string]string{"X-RateLimit-Global": "true"}}.Penalty(stated),
		feedback.When{Header: map[string]string{"X-RateLimit-Scope": "global"}}.Penalty(stated),
		feedback.Codes{
			Fields: []string{"global"},
			Lasts:  map[string]time.Duration{"true": time.Second},
			End:    stated,
		}.Penalty,
	))

	// banned closes an address. Discord itself answers in JSON.
	banned = tooMany.Penalty(feedback.When{Media: []string{"text/*"}}.Penalty(feedback.RetryAfter(10 * time.Minute)))

	// left is what is left of a route.
	left = feedback.Headers{
		Remaining: "X-RateLimit-Remaining",
		Reset:     "X-RateLimit-Reset-After",
	}.Quota
)

// limited closes a route, with whatever closes nothing wider.
func limited(resp *http.Response) time.Duration {
	if global(resp) != 0 || banned(resp) != 0 {
		return 0
	}
	return tooMany.Penalty(stated)(resp)
}

// refusals counts what gets an address banned.
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
