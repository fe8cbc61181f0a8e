// Package google reads the refusals of Google's APIs: whether one is about a user or about the
// project.
package google

import (
	"net/http"
	"regexp"
	"time"

	"github.com/fleetthrottle/throttle"
	"github.com/fleetthrottle/throttle/feedback"
)

// refusals knows the answers that are refusals: a 429, and a 403 with one of these reasons.
var refusals = feedback.First(
	feedback.When{Status: []int{http.StatusTooManyRequests}}.Then(feedback.For(time.Second)),
	feedback.When{Status: []int{http.StatusForbidden}}.Then(reason(map[string]time.Duration{
		"userRateLimitExceeded": time.Second, "rateLimitExceeded": time.Second, "dailyLimitExceeded": time.Second,
	})),
)

// reason returns the penalty of the answers with a reason in lasts.
func reason(lasts map[string]time.Duration) feedback.Reader {
	return feedback.Codes{Fields: []string{"error.errors.*.reason"}, Lasts: lasts, End: wait}.Answer
}

// named returns the penalty of the messages that name a limit: "Quota exceeded for quota metric
// 'Queries' and limit 'Queries per minute per user' of service …". The keys of lasts are ends of such
// names.
func named(lasts map[string]time.Duration) feedback.Reader {
	return feedback.Codes{
		Fields: []string{"error.message"}, Pattern: regexp.MustCompile(`limit '[^']*(per minute per user|per minute|per day)`),
		Lasts: lasts, End: wait,
	}.Answer
}

// wait is the duration that a refusal states: "User-rate limit exceeded.  Retry after
// 2020-01-21T12:57:51.196Z".
var wait = feedback.First(feedback.RetryAfter(0), feedback.Printed{
	Fields:  []string{"error.message"},
	Pattern: regexp.MustCompile(`Retry after (\d\S+Z)`),
}.Answer)

// ofRefusal returns a reader that asks p about refusals, and ignores all other answers.
func ofRefusal(p feedback.Reader) feedback.Reader {
	return func(resp *http.Response) throttle.Answer {
		if refusals(resp).Close == 0 {
			return throttle.Answer{}
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
var UserRefused = ofRefusal(feedback.First(
	named(map[string]time.Duration{"per minute per user": time.Minute, "per minute": 0, "per day": 0}),
	reason(map[string]time.Duration{"dailyLimitExceeded": 0}),
	wait,
	feedback.For(time.Second),
))
