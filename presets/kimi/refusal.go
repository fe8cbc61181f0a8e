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
var wait = feedback.First(feedback.RetryAfter(0), again.Answer)

// tooMany are the refusals.
var tooMany = feedback.When{Status: []int{http.StatusTooManyRequests}}

// reached is the penalty of the refusals that name a limit.
func reached(limit string, lasts time.Duration) feedback.Reader {
	return tooMany.Then(feedback.Codes{
		Fields: []string{"error.message"}, Pattern: about,
		Lasts: map[string]time.Duration{limit: lasts}, End: wait,
	}.Answer)
}

// noMoney knows the 429 that is no refusal: it stays one until the bill is paid.
var noMoney = tooMany.Then(feedback.Codes{
	Fields:     []string{"error.type", "error.code"},
	NotRefused: []string{"exceeded_current_quota_error"},
}.Answer)

// requestsRefused is the penalty of all other refusals. A refusal about tokens is one of them if the request costs
// no tokens, as one whose body cannot be read: then the row of tokens does not hold the next request like it.
func requestsRefused(tokens func(*http.Request) int) feedback.Reader {
	return feedback.First(
		noMoney,
		reached("concurrency", 0),
		tablerow.IfCharged(tokens, reached("TPM", 0)),
		tablerow.IfCharged(tokens, reached("TPD", 0)),
		tooMany.Then(feedback.First(wait, feedback.For(time.Second))),
		tablerow.Outage(),
	)
}
