package openai

import (
	"net/http"
	"regexp"
	"time"

	"github.com/fleetthrottle/throttle/feedback"
	"github.com/fleetthrottle/throttle/presets/internal/llm"
	"github.com/fleetthrottle/throttle/presets/internal/tablerow"
)

// usage is the actual cost of a request. Events of the Responses API have it in a response.
var usage = feedback.Amount{Fields: []string{"usage.total_tokens", "response.usage.total_tokens"}}

// again is when to try again: "Please try again in 1m2.5s.".
var again = feedback.Printed{
	Fields:  []string{"error.message"},
	Pattern: regexp.MustCompile(`try again in ((?:\d+(?:\.\d+)?(?:h|ms|m|s))+)`),
}

// wait is for how long a refusal closes its budget.
var wait = feedback.First(feedback.RetryAfter(0), again.Answer, feedback.For(time.Second))

// tokensRefused is the penalty of the refusals that are about tokens.
var tokensRefused = feedback.When{Status: []int{429}}.Then(feedback.Codes{
	Fields: []string{"error.type"},
	Lasts:  map[string]time.Duration{"tokens": time.Second},
	End:    wait,
}.Answer)

// noMoney knows the 429 that is no refusal: it stays one until the bill is paid.
var noMoney = feedback.When{Status: []int{429}}.Then(feedback.Codes{
	Fields:     []string{"error.code", "error.type"},
	NotRefused: []string{"insufficient_quota"},
}.Answer)

// requestsRefused is the penalty of all other refusals. A refusal about tokens is one of them if the request costs
// no tokens, as one whose body cannot be read: then the row of tokens does not hold the next request like it.
func requestsRefused(tokens func(*http.Request) int) feedback.Reader {
	return feedback.First(
		noMoney,
		feedback.When{Status: []int{429}}.Then(feedback.First(
			tablerow.IfCharged(tokens, feedback.Codes{
				Fields: []string{"error.type"},
				Lasts:  map[string]time.Duration{"tokens": 0},
			}.Answer),
			wait,
		)),
		tablerow.Outage(),
	)
}

// left returns a reader of the remaining requests or tokens.
func left(what string) feedback.Reader {
	return llm.Bucket{
		Limit:     "x-ratelimit-limit-" + what,
		Remaining: "x-ratelimit-remaining-" + what,
		Reset:     "x-ratelimit-reset-" + what,
	}.Left
}
