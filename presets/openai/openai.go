// Package openai is OpenAI's table of limits.
//
//	client := &http.Client{Transport: throttle.Must(throttle.New(throttle.Config{
//		Store:    redisstore.New(rdb, redisstore.Options{}),
//		Policies: openai.Policies(openai.Options{}),
//	}))}
//
// # Rows
//
//	openai-requests   requests a minute, for each project and model
//	openai-tokens     tokens a minute, for each project and model
//
// What they allow depends on the account's tier and the model, and stands in the
// account's settings. Rows whose numbers are not told hold no request by
// themselves: they live on what answers say.
//
// A request costs as many tokens as it reserves (max_tokens and its like, times n or best_of) or as
// a quarter of its length, whichever is more: OpenAI counts alike. The usage in the answer replaces
// the estimate, but does not undo the reservation. A request that reserves nothing is expected to
// get an answer of 1,500 tokens, and after 64 answers of the same model an average answer (see
// [feedback.Estimates]). Refused requests count too.
//
// A stream states its usage in its last event, for chat completions only with
// stream_options.include_usage. A stream without usage, or a stream that is cut, costs its
// estimate, and at least a token for each event.
//
// To know the model and the tokens asked for, the first 32 MB of a JSON body are read from a copy,
// made by [http.Request.GetBody]. Requests with a byte slice, a string or a bytes.Buffer have a
// GetBody. Without it all models share one budget: set [Options.Model] and [Options.Cost] then. The
// order of the body's fields does not matter.
//
// Models with different numbers need a [throttle.Transport] each, because a request meets all rows
// of its transport. They may have the same Store: their budgets differ.
//
// # Refusals
//
//	429, error.type tokens               openai-tokens
//	429, insufficient_quota              nothing
//	any other 429                        openai-requests
//	503, ten in a row                    openai-requests
//
// insufficient_quota is about money and not about pace. Waiting does not help, and
// a budget that is closed would still be closed when the bill is paid: so the
// caller gets the answer, and the next one too.
//
// A refusal lasts for its Retry-After, or as long as the message says ("Please try again in
// 41.724s"), or for a second.
//
// The x-ratelimit fields lower both budgets if other programs use the project. Their reset is when
// the bucket will be full, and not when it has room, so the remaining tokens count for the time in
// which as many flow in again.
//
// # Not covered
//
// Limits per day, on images, and limits that several projects of an organisation share: a refusal
// by such a limit closes the model for that project. Azure and Anthropic, whose limits have a
// different form.
//
// # Sources
//
// Facts as of 2026-11. Official: the limits, the cost, the fields
// (https://developers.openai.com/api/docs/guides/rate-limits), that refused
// requests count and that a minute may be enforced second by second
// (https://help.openai.com/en/articles/5955604-how-can-i-so). Observed: the
// message (https://gitlab.com/wally-the-wobot/wally/-/issues/62), the meaning of
// reset
// (https://community.openai.com/t/how-to-get-rate-limit-reset-time-for-response-api/1268905),
// and in public code insufficient_quota. From common use: the host, the names of
// fields in bodies, the type. Inferred: four bytes a token; that a 503 may have a
// Retry-After (RFC 9110).
package openai

import (
	"cmp"
	"net/http"
	"regexp"
	"time"

	"github.com/fleetthrottle/throttle"
	"github.com/fleetthrottle/throttle/feedback"
	"github.com/fleetthrottle/throttle/presets/internal/caller"
	"github.com/fleetthrottle/throttle/presets/internal/llm"
	"github.com/fleetthrottle/throttle/presets/internal/tablerow"
)

// Options are what an account's tier changes, and whose requests are counted
// together. The zero value is projects with a key each, of a tier that is not told.
type Options struct {
	// Requests is how many requests a minute each model allows. Models that
	// differ need a transport of their own: see the package documentation.
	// Defaults to 0: not told.
	Requests int

	// Tokens is how many tokens a minute each model allows. Defaults to 0:
	// not told.
	Tokens int

	// Even spaces requests and tokens out, because 60 a minute may be
	// enforced as 1 a second. Defaults to false: at any pace within the minute.
	Even bool

	// Project is the project's id. Defaults to "": projects are told apart by
	// their keys, in the Authorization.
	Project string

	// Caller says whose a request is, for a program that calls for several
	// projects. It replaces Project, and "" means the same. Defaults to nil.
	Caller func(*http.Request) (project string)

	// Model tells models, or groups of models that share their limits, apart.
	// Defaults to the field "model" of the body.
	Model func(*http.Request) string

	// Cost estimates the tokens of a request, or 0 for a request without tokens, in place of the
	// learned estimate. An estimate above Tokens counts as Tokens: OpenAI, not the estimate, should
	// refuse requests that are too large. Defaults to the estimate in the package documentation.
	Cost func(*http.Request) int

	// Host is a pattern of the API's hosts, in place of the default for a fake,
	// a proxy or a server of one's own. Defaults to "api.openai.com".
	Host string
}

// Policies returns OpenAI's table of limits.
func Policies(o Options) []throttle.Policy {
	o = o.withDefaults()
	match := o.Host + "/"
	project := caller.Or(caller.ID(o.Project, o.Caller), throttle.Header("Authorization"))
	key := throttle.Join(project, o.Model)
	tokens := llm.NewCosts(o.Tokens, o.Cost, llm.Larger, key)

	// No request costs less than it reserves: OpenAI does not give that back either.
	settled := tokens.Usage(usage, llm.Reserved)

	return tablerow.Table([]throttle.Policy{
		{
			Name: "openai-requests", Match: match, Key: key,
			Limit:  llm.Requests(o.Requests, o.Even),
			Answer: feedback.All(requestsRefused(tokens.Cost), left("requests")),
		},
		{
			Name: "openai-tokens", Match: match, Key: key,
			Limit: llm.Tokens(o.Tokens, o.Even), Cost: tokens.Cost, Meter: settled.Meter,
			Answer: feedback.All(tokensRefused, left("tokens"), settled.Settled(usage.Cost)),
		},
	})
}

// withDefaults returns o with the defaults of its zero fields.
func (o Options) withDefaults() Options {
	if o.Model == nil {
		o.Model = llm.Model
	}
	o.Host = cmp.Or(o.Host, "api.openai.com")
	return o
}

// usage is the actual cost of a request. Events of the Responses API have it in a response.
var usage = feedback.Amount{Fields: []string{"usage.total_tokens", "response.usage.total_tokens"}}

// again is when to try again: "Please try again in 1m2.5s.".
var again = feedback.Printed{
	Fields:  []string{"error.message"},
	Pattern: regexp.MustCompile(`try again in ((?:\d+(?:\.\d+)?(?:h|ms|m|s))+)`),
}

// wait closes the budget for as long as a refusal says, or for a second.
var wait = feedback.First(feedback.RetryAfter(0), again.Answer, feedback.For(time.Second))

// tokensRefused closes the row after a refusal that is about tokens.
var tokensRefused = feedback.When{Status: []int{429}}.Then(feedback.Codes{
	Fields: []string{"error.type"},
	Lasts:  map[string]time.Duration{"tokens": time.Second},
	End:    wait,
}.Answer)

// noMoney recognises the 429 that is no refusal: it comes until the bill is paid.
var noMoney = feedback.When{Status: []int{429}}.Then(feedback.Codes{
	Fields:     []string{"error.code", "error.type"},
	NotRefused: []string{"insufficient_quota"},
}.Answer)

// requestsRefused returns a reader that closes the row after a refusal that closes no other row, and after an outage. A
// refusal about tokens closes this row if the request costs no tokens, as an upload does: the row of tokens would not hold
// the next such request.
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
