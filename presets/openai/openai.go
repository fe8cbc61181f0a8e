// Package openai is OpenAI's table of limits.
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
// A request costs as many tokens as it reserves (max_tokens and its like, times
// n) or as a quarter of its length, whichever is more: OpenAI counts alike. The
// usage in the answer replaces the estimate, but does not undo what was reserved.
// Refused requests count too.
//
// To know the model and the tokens asked for, the first 32 MB of the request's
// body are read, if it is JSON, from a copy: that of [http.Request.GetBody], which
// requests made of a byte slice, a string or a bytes.Buffer have. Without it all
// models share one budget: set [Options.Model] and [Options.Cost] then. Where the
// fields stand in the body does not matter.
//
// Models whose numbers differ need a [throttle.Transport] each, because a request
// meets all rows of one. They may have the same Store: the budgets are different
// ones.
//
// # What closes what
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
// A refusal lasts as long as Retry-After says; else as the message says ("Please
// try again in 41.724s"); else for a second.
//
// The x-ratelimit fields lower both budgets if somebody else uses the project.
// Their reset tells when the bucket will be full, not when there is more, so
// what is left counts for the time in which as much flows in again.
//
// # Not covered
//
// Limits per day, on images, and those that several projects of an organisation
// share: an answer that says so closes the model for that project. Usage in
// answers that stream. Azure and Anthropic, whose limits are made otherwise.
//
// # Sources
//
// Facts as of 2026-11. Official: what is limited, the cost, the fields
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
	"time"

	"github.com/fleetthrottle/throttle"
)

// unpublished is the number of rows until an answer says what is left of them: more than
// anybody sends. It is a number, because what has none cannot be lowered.
const unpublished = 1_000_000_000

// Options are what an account's tier changes, and whose requests are counted together.
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

	// Project tells projects apart. Defaults to their keys:
	// throttle.Header("Authorization").
	Project func(*http.Request) string

	// Model tells models, or groups of models that share their limits, apart.
	// Defaults to the field "model" of the body.
	Model func(*http.Request) string

	// Cost estimates the tokens of a request; 0 for one that has none. More
	// than Tokens counts as Tokens, so that OpenAI and not an estimate refuses
	// what is too large. Defaults to what the package documentation says.
	Cost func(*http.Request) int

	// Host is a pattern of the hosts that are meant. Defaults to
	// "api.openai.com".
	Host string
}

// Policies returns OpenAI's table of limits.
func Policies(o Options) []throttle.Policy {
	if o.Project == nil {
		o.Project = throttle.Header("Authorization")
	}
	if o.Model == nil {
		o.Model = model
	}
	if o.Cost == nil {
		o.Cost = estimate
	}
	match := cmp.Or(o.Host, "api.openai.com") + "/"
	key := throttle.Join(o.Project, o.Model)
	return []throttle.Policy{
		{
			Name: "openai-requests", Match: match, Key: key,
			Limit:   o.perMinute(o.Requests),
			Penalty: requestsRefused, Quota: left("requests"),
		},
		{
			Name: "openai-tokens", Match: match, Key: key,
			Limit: o.perMinute(o.Tokens), Cost: o.cost, Settle: o.settle,
			Penalty: tokensRefused, Quota: left("tokens"),
		},
	}
}

func (o *Options) perMinute(n int) throttle.Limit {
	switch {
	case n == 0:
		return throttle.PerMinute(unpublished)
	case o.Even:
		return throttle.LeakyBucket(n, time.Minute)
	}
	return throttle.PerMinute(n)
}

// cost is what a request is estimated to cost.
func (o *Options) cost(r *http.Request) int { return o.atMost(o.Cost(r)) }

// settle returns the usage, but not less than was reserved: OpenAI does not
// give that back either.
func (o *Options) settle(resp *http.Response) int {
	used := usage.Settle(resp)
	if used < 0 || resp.Request == nil {
		return used
	}
	return max(used, o.atMost(reserved(resp.Request)))
}

func (o *Options) atMost(tokens int) int { return min(tokens, cmp.Or(o.Tokens, unpublished)) }
