package kimi

import (
	"net/http"
	"regexp"
	"time"

	"github.com/fleetthrottle/throttle/feedback"
	"github.com/fleetthrottle/throttle/presets/internal/tablerow"
)

// about is the limit that a refusal's message names.
var about = regexp.MustCompile(`concurrency|TPM|TPD`)

// again is when to try again: "please try again after 1 seconds".
var again = feedback.Printed{
	Fields:  []string{"error.message"},
	Pattern: regexp.MustCompile(`try again after (\d+) seconds?`),
	As:      feedback.After(time.Second),
}

// wait is for how long a refusal says that it lasts.
var wait = feedback.First(feedback.RetryAfter(0), again.Penalty)

// tooMany are the refusals.
var tooMany = feedback.When{Status: []int{http.StatusTooManyRequests}}

// reached is the penalty of the refusals that name a limit.
func reached(limit string, lasts time.Duration) feedback.Penalty {
	return tooMany.Penalty(feedback.Codes{
		Fields: []string{"error.message"}, Pattern: about,
		Lasts: map[string]time.Duration{limit: lasts}, End: wait,
	}.Penalty)
}

// noMoney knows the 429 that is no refusal: it stays one until the bill is paid.
var noMoney = tooMany.Penalty(feedback.Codes{
	Fields: []string{"error.type", "error.code"},
	Lasts:  map[string]time.Duration{"exceeded_current_quota_error": feedback.NotRefused},
}.Penalty)

// requestsRefused is the penalty of all other refusals. A refusal about tokens is one of them if the request costs
// no tokens, as one whose body cannot be read: then the row of tokens does not hold the next request like it.
func requestsRefused(tokens func(*http.Request) int) feedback.Penalty {
	return feedback.First(
		noMoney,
		tablerow.WithoutDenials(feedback.First(
			reached("concurrency", feedback.NotRefused),
			tablerow.PenaltyIfCharged(tokens, reached("TPM", feedback.NotRefused)),
			tablerow.PenaltyIfCharged(tokens, reached("TPD", feedback.NotRefused)),
			tooMany.Penalty(feedback.First(wait, feedback.For(time.Second))),
		)),
		tablerow.Outage(),
	)
}
