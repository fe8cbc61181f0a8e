// Package google reads the refusals of Google's APIs: whether one is about a user or about the
// project.
package google

import (
	"net/http"
	"regexp"
	"time"

	"github.com/fleetthrottle/throttle/feedback"
	"github.com/fleetthrottle/throttle/presets/internal/tablerow"
)

// refusals knows the answers that are refusals: a 429, and a 403 with one of these reasons.
var refusals = feedback.First(
	feedback.When{Status: []int{http.StatusTooManyRequests}}.Penalty(feedback.For(time.Second)),
	feedback.When{Status: []int{http.StatusForbidden}}.Penalty(reason(map[string]time.Duration{
		"userRateLimitExceeded": time.Second, "rateLimitExceeded": time.Second, "dailyLimitExceeded": time.Second,
	})),
)

func reason(lasts map[string]time.Duration) feedback.Penalty {
	return feedback.Codes{Fields: []string{"error.errors.*.reason"}, Lasts: lasts, End: wait}.Penalty
}

// named is the penalty of the messages that name a limit: "Quota exceeded for quota metric
// 'Queries' and limit 'Queries per minute per user' of service …".
func named(lasts map[string]time.Duration) feedback.Penalty {
	return feedback.Codes{
		Fields: []string{"error.message"}, Pattern: regexp.MustCompile(`limit '[^']*(per minute per user|per minute|per day)`),
		Lasts: lasts, End: wait,
	}.Penalty
}

// wait is for how long a refusal says that it lasts: "User-rate limit exceeded.  Retry after
// 2020-01-21T12:57:51.196Z".
var wait = feedback.First(feedback.RetryAfter(0), feedback.Printed{
	Fields:  []string{"error.message"},
	Pattern: regexp.MustCompile(`Retry after (\d\S+Z)`),
}.Penalty)

// ofRefusal returns p for refusals.
func ofRefusal(p feedback.Penalty) feedback.Penalty {
	return func(resp *http.Response) time.Duration {
		if refusals(resp) == 0 {
			return 0
		}
		return p(resp)
	}
}

// ProjectRefused is the penalty of the refusals that are about all users of the project together.
var ProjectRefused = ofRefusal(feedback.First(
	named(map[string]time.Duration{"per minute": time.Minute, "per day": time.Hour}),
	reason(map[string]time.Duration{"dailyLimitExceeded": time.Hour}),
))

// UserRefused is the penalty of all other refusals.
var UserRefused = ofRefusal(tablerow.WithoutDenials(feedback.First(
	named(map[string]time.Duration{"per minute per user": time.Minute, "per minute": feedback.NotRefused, "per day": feedback.NotRefused}),
	reason(map[string]time.Duration{"dailyLimitExceeded": feedback.NotRefused}),
	wait,
	feedback.For(time.Second),
)))
