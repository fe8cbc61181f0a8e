package azureopenai

import (
	"net/http"
	"regexp"
	"time"

	"github.com/fleetthrottle/throttle/feedback"
	"github.com/fleetthrottle/throttle/presets/internal/tablerow"
)

// usage is the actual cost of a request. Events of the Responses API have it in a response.
var usage = feedback.Amount{Fields: []string{"usage.total_tokens", "response.usage.total_tokens"}}

// stated is for how long a refusal says that it lasts.
var stated = feedback.First(
	tablerow.Until(feedback.Headers{Reset: "Retry-After-Ms", As: feedback.After(time.Millisecond)}),
	feedback.RetryAfter(0),
	feedback.Printed{
		Fields:  []string{"error.message"},
		Pattern: regexp.MustCompile(`(?i)retry after (\d+) seconds?`),
	}.Answer,
)

// tokens knows the refusals that are about tokens.
func tokens(lasts time.Duration) feedback.Codes {
	return feedback.Codes{
		Fields:  []string{"error.message"},
		Pattern: regexp.MustCompile(`(?i)exceeded (token) rate limit`),
		Lasts:   map[string]time.Duration{"token": lasts},
	}
}

// tokensRefused is the penalty of the refusals that are about tokens.
var tokensRefused = refused(func() feedback.Reader {
	codes := tokens(time.Minute)
	codes.End = stated
	return codes.Answer
}())

// requestsRefused is the penalty of all other refusals. A refusal about tokens is one of them if the request costs
// no tokens, as one whose body cannot be read: then the row of tokens does not hold the next request like it.
func requestsRefused(cost func(*http.Request) int) feedback.Reader {
	return feedback.First(
		refused(feedback.First(tablerow.IfCharged(cost, tokens(0).Answer), stated, feedback.For(10*time.Second))),
		tablerow.Outage(),
	)
}

func refused(p feedback.Reader) feedback.Reader {
	return feedback.When{Status: []int{http.StatusTooManyRequests}}.Then(p)
}
