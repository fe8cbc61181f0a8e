package anthropic

import (
	"net/http"
	"regexp"
	"time"

	"github.com/fleetthrottle/throttle"
	"github.com/fleetthrottle/throttle/feedback"
	"github.com/fleetthrottle/throttle/presets/internal/llm"
	"github.com/fleetthrottle/throttle/presets/internal/tablerow"
)

// overloaded is the status of an upstream that has no capacity left, for anybody.
const overloaded = 529

// wait closes the row for the Retry-After of an answer, or a second without one.
var wait = feedback.RetryAfter(time.Second)

// about is the kind of tokens that a refusal names: "… of 40,000 input tokens per minute.".
var about = regexp.MustCompile(`(?i)(input|output) tokens`)

// names returns a reader that closes the row after a refusal that names a kind of tokens: for what wait reads, or for
// nothing if lasts is 0.
func names(kind string, lasts time.Duration) feedback.Reader {
	return feedback.When{Status: []int{http.StatusTooManyRequests}}.Then(feedback.Codes{
		Fields:  []string{"error.message"},
		Pattern: about,
		Lasts:   map[string]time.Duration{kind: lasts},
		End:     wait,
	}.Answer)
}

// tokensRefused returns a reader that closes the row of a kind of tokens.
func tokensRefused(kind string) feedback.Reader { return names(kind, time.Second) }

// noMoney says of the 429 of an account that has spent its money that it is no refusal: a request that
// is repeated gets it again until the month is over.
var noMoney = feedback.When{Status: []int{http.StatusTooManyRequests}}.Then(feedback.Codes{
	Fields:     []string{"error.details.error_code"},
	NotRefused: []string{"enforced_spend_limit_reached"},
}.Answer)

// requestsRefused returns a reader that closes the row of requests after a refusal that is not about tokens, an overload
// or an outage. A refusal about input tokens closes it, too, if the message was booked with no
// input tokens, as an upload is: the row of input tokens would not hold the next such message.
func requestsRefused(sends *tokens) feedback.Reader {
	return feedback.First(
		noMoney,
		// A duration of 0: a refusal about tokens is about their row, so nothing closes here, and First stops.
		feedback.When{Status: []int{http.StatusTooManyRequests}}.Then(feedback.First(
			tablerow.IfCharged(sends.cost, names("input", 0)),
			names("output", 0),
			wait,
		)),
		feedback.When{Status: []int{overloaded}}.Then(wait),
		tablerow.Outage(),
	)
}

// otherRefused returns a reader for the row of all other endpoints: it closes the row after a refusal, an overload or an
// outage.
func otherRefused() feedback.Reader {
	return feedback.First(
		noMoney,
		feedback.When{Status: []int{http.StatusTooManyRequests, overloaded}}.Then(wait),
		tablerow.Outage(),
	)
}

// left returns the quota that reads what an answer says is left of requests or of a kind of tokens.
func left(what string) feedback.Reader {
	prefix := "anthropic-ratelimit-" + what
	return llm.Bucket{Limit: prefix + "-limit", Remaining: prefix + "-remaining", Reset: prefix + "-reset"}.Left
}

// The fields of an answer's usage. A stream states the input tokens in its first event
// (message_start), in a message, and the output tokens, sometimes with the input tokens, in its
// last (message_delta).
var (
	sent    = feedback.Amount{Fields: []string{"usage.input_tokens", "message.usage.input_tokens"}}
	cached  = feedback.Amount{Fields: []string{"usage.cache_creation_input_tokens", "message.usage.cache_creation_input_tokens"}}
	written = feedback.Amount{Fields: []string{"usage.output_tokens"}}
)

// inputUsed is a [throttle.Policy.Answer]: the cost is the input tokens plus the tokens written to
// a cache.
func inputUsed(resp *http.Response) throttle.Answer {
	n, told := sent.Cost(resp).Cost()
	if !told {
		return throttle.Answer{}
	}
	put, _ := cached.Cost(resp).Cost()
	return throttle.Answer{}.WithCost(n + put)
}

// inputTold is inputUsed for an event of a stream, or -1 for an event without the input tokens.
func inputTold(data []byte) int {
	n, ok := sent.In(data)
	if !ok {
		return -1
	}
	put, _ := cached.In(data)
	return n + put
}

// outputTold returns the tokens that were written in all, as an event of a stream states them, or -1 if
// the event does not. The first event states how many were written until then, which is not the cost.
func outputTold(data []byte) int {
	n, ok := written.In(data)
	if !ok {
		return -1
	}
	return n
}
