// Package anthropic is the table of limits of Anthropic's Claude API.
//
//	client := &http.Client{Transport: throttle.Must(throttle.New(throttle.Config{
//		Store:    redisstore.New(rdb, redisstore.Options{}),
//		Policies: anthropic.Policies(anthropic.Options{}),
//	}))}
//
// # Rows
//
//	anthropic-requests       requests a minute, for each organization and model
//	anthropic-input-tokens   tokens sent a minute, for each organization and model
//	anthropic-output-tokens  tokens written a minute, for each organization and model
//	anthropic-api            no number: all other endpoints, for each organization and endpoint
//
// The first three hold POST /v1/messages. What they allow depends on the organization's
// tier and the model, and stands in the Console. Rows whose numbers are not told hold no
// request by themselves: they live on what answers say.
//
// The API fills buckets all the time, and may enforce 60 a minute as 1 a second:
// [Options.Even]. How large the buckets are is not published, so the rows are windows.
//
// A request costs a quarter of its length in tokens sent, and max_tokens in tokens written, until
// the usage in its answer, or in the events of its stream, states the actual tokens. Tokens that
// are read from a cache are free, as for most models. After 8 answers of a model the actual tokens
// are the estimate for the next request: a share of its length as input, and at most max_tokens as
// output (see [feedback.Estimates]). A stream that is cut keeps its estimate of the output, but
// costs at least a token for each event.
//
// To know the model and max_tokens the request's body is read from a copy, as in package
// openai. Models whose numbers differ need a [throttle.Transport] each, with the same Store.
// Models of one class share their limits: set [Options.Model].
//
// # Refusals
//
//	429 about input tokens                        anthropic-input-tokens
//	429 about output tokens                       anthropic-output-tokens
//	429, enforced_spend_limit_reached             nothing
//	any other 429, and a 529 (overloaded)         anthropic-requests
//	503 with Retry-After, ten in a row            anthropic-requests
//	429 and 529 of other endpoints                anthropic-api
//
// A refusal lasts for its Retry-After, or a second without one (inferred). The month's spending
// limit (enforced_spend_limit_reached) is about money, and waiting does not help, so the caller
// gets the answer, and so does the next caller. The same holds for a 400 about usage limits and a
// 402.
//
// The anthropic-ratelimit fields lower all three budgets if other programs use the organization.
// Their reset is when the bucket will be full, and not when it has room, so the remaining tokens
// count for the time in which as many flow in again.
//
// # Not covered
//
// Limits of workspaces, of the batch queue, of long contexts and of fast mode: a refusal
// closes the model, or the endpoint. Older models whose limit counts tokens that are read from a cache.
// Models on Bedrock, Vertex and Foundry.
//
// # Sources
//
// Facts as of 2026-11.
//
//   - official: the limits, their scope, buckets, 429 and retry-after, the cache:
//     https://platform.claude.com/docs/en/api/rate-limits,
//     https://docs.claude.com/zh-CN/api/rate-limits,
//     https://support.claude.com/en/articles/8243635-our-approach-to-api-rate-limits
//   - official: statuses and shapes of errors, acceleration limits, 529:
//     https://docs.claude.com/en/api/errors
//   - official (old): tokens written are estimated by max_tokens, and corrected at the end:
//     https://docs.anthropic.com/es/api/rate-limits. A newer edition, which public code
//     quotes, says that they are counted as they are written: then less is used than is allowed.
//   - observed: the text of a 429:
//     https://github.com/OpenHands/OpenHands/issues/9259,
//     https://github.com/anthropics/claude-code/issues/71670
//   - observed, in public code: the anthropic-ratelimit fields with reset in RFC 3339, the spending limit's code.
//   - from common use: the host, the paths, the names of fields in bodies.
//   - inferred: four bytes a token; a second where nothing is said, and for a 529; that the reset of a
//     bucket is when it is full, as its algorithm has it.
package anthropic

import (
	"cmp"
	"net/http"
	"strings"

	"github.com/fleetthrottle/throttle"
	"github.com/fleetthrottle/throttle/feedback"
	"github.com/fleetthrottle/throttle/presets/internal/caller"
	"github.com/fleetthrottle/throttle/presets/internal/llm"
	"github.com/fleetthrottle/throttle/presets/internal/tablerow"
)

// Options are what an organization's tier changes, and whose requests are counted together.
type Options struct {
	// Requests is how many requests a minute each model allows. Models that
	// differ need a transport of their own: see the package documentation.
	// Defaults to 0: not told.
	Requests int

	// InputTokens and OutputTokens are how many tokens a minute may be sent to and
	// written by each model. Default to 0: not told.
	InputTokens, OutputTokens int

	// Even spaces requests and tokens out, because 60 a minute may be
	// enforced as 1 a second. Defaults to false: at any pace within the minute.
	Even bool

	// Organization is any name for the organization that is called for. Not a key:
	// all keys of an organization share its limits. Defaults to "": all programs that
	// share the store call for one.
	Organization string

	// Caller says for which organization a request is, for a program that calls for
	// several. It replaces Organization. Defaults to nil: Organization.
	Caller func(*http.Request) (organization string)

	// Model tells models, or classes of models that share their limits, apart.
	// Defaults to the field "model" of the body.
	Model func(*http.Request) string

	// Input and Output estimate the tokens of a request, sent and written, in place of the learned
	// estimates. An estimate above the limit of a minute counts as the limit: Anthropic, not the
	// estimate, should refuse requests that are too large. They default to a quarter of the body's
	// length, and to max_tokens, at least 1, until more is learned.
	Input, Output func(*http.Request) int

	// Host is a pattern of the hosts that are meant: for a fake, a proxy, or a server of
	// one's own. Defaults to "api.anthropic.com".
	Host string
}

const messages = "/v1/messages"

// Policies returns the table. Its rows are plain values: change them, leave some
// out, append your own.
func Policies(o Options) []throttle.Policy {
	o = o.withDefaults()
	key := throttle.Join(o.Caller, o.Model)
	sends, writes := input(key, o.Input, o.InputTokens), output(key, o.Output, o.OutputTokens)

	return tablerow.Table([]throttle.Policy{
		{
			Name: "anthropic-requests", Match: "POST " + o.Host + messages, Key: key,
			Limit:  llm.Requests(o.Requests, o.Even),
			Answer: feedback.All(requestsRefused(sends), left("requests")),
		},
		{
			Name: "anthropic-input-tokens", Match: "POST " + o.Host + messages, Key: key,
			Limit: llm.Tokens(o.InputTokens, o.Even), Cost: sends.cost, Meter: sends.usage().Meter,
			Answer: feedback.All(tokensRefused("input"), left("input-tokens"), sends.settle(inputUsed)),
		},
		{
			Name: "anthropic-output-tokens", Match: "POST " + o.Host + messages, Key: key,
			Limit: llm.Tokens(o.OutputTokens, o.Even), Cost: writes.cost, Meter: writes.usage().Meter,
			Answer: feedback.All(tokensRefused("output"), left("output-tokens"), writes.settle(written.Cost)),
		},
		{
			Name: "anthropic-api", Match: o.Host + "/", Key: throttle.Join(o.Caller, endpoint), Cost: other,
			Limit: throttle.Unlimited(), Answer: tablerow.IfCharged(other, otherRefused()),
		},
	})
}

// withDefaults returns o with the defaults of its zero fields.
func (o Options) withDefaults() Options {
	o.Host = cmp.Or(o.Host, "api.anthropic.com")
	o.Caller = caller.ID(o.Organization, o.Caller)
	if o.Model == nil {
		o.Model = llm.Model
	}
	return o
}

// other is a [throttle.Policy.Cost]: 0 for a request for a message, which other rows count, and 1 for
// all others.
func other(r *http.Request) int {
	if throttle.Method(r) == http.MethodPost && throttle.RawPath(r) == messages {
		return 0
	}
	return 1
}

// endpoint is a [throttle.Policy.Key]: the segments of the path before the first id, such as
// "/v1/files" or "/v1/messages/count_tokens".
func endpoint(r *http.Request) string {
	segments := strings.Split(throttle.RawPath(r), "/") // "", "v1", "files", id
	n := 3

	// Under messages the id comes one segment later: "", "v1", "messages", "batches", id.
	if strings.HasPrefix(throttle.RawPath(r), messages+"/") {
		n = 4
	}
	return strings.Join(segments[:min(n, len(segments))], "/")
}
