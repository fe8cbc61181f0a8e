// Package azureopenai is the table of limits of Azure OpenAI: a deployment's requests and tokens a
// minute.
//
//	client := &http.Client{Transport: throttle.Must(throttle.New(throttle.Config{
//		Store:    redisstore.New(rdb, redisstore.Options{}),
//		Policies: azureopenai.Policies(azureopenai.Options{}),
//	}))}
//
// # Rows
//
//	azureopenai-requests  requests a second; for each resource and deployment
//	azureopenai-tokens    tokens a minute; for each resource and deployment
//
// A deployment is given tokens a minute (TPM), and requests a minute (RPM) in a proportion that
// differs between models. A row without a number is unlimited until a refusal closes it. The
// resource is the host that is called.
//
// RPM are checked over 1 or 10 seconds, so the row allows the share of a second: 10 with 600 a
// minute, rounded down. Below 60 a minute the row spaces single requests. TPM count Azure's
// estimate when a request comes, and nothing is given back: the tokens sent (a quarter of the
// body's length) and max_tokens, times best_of. A usage above the estimate replaces it, also the
// usage in a stream (stream_options.include_usage). Without max_tokens the answer is expected to have
// 1,500 tokens, and as many as the average when 64 answers of the deployment have told.
//
// The deployment is in the path, and under /openai/v1/ in the field "model" of the body,
// which is read from a copy, as in package openai. Deployments with other numbers need a
// [throttle.Transport] each, with the same Store.
//
// # Refusals
//
//	429 about the token rate limit   azureopenai-tokens
//	any other 429                    azureopenai-requests
//	503 with Retry-After, ten in a row: azureopenai-requests
//
// A refusal lasts for its Retry-After or retry-after-ms, or as long as the message says ("Please
// retry after 37 seconds"). Otherwise tokens are closed for a minute and requests for ten seconds,
// which are the windows (inferred).
//
// # Not covered
//
// The quota of a subscription, and deployments with provisioned throughput: a refusal closes the
// deployment. The x-ratelimit fields are not read: they have been seen with -1, and with
// requests left in a refusal. A policy of API Management in front, which answers 403 for its quota.
//
// # Sources
//
// Facts as of 2026-11.
//
//   - official: TPM and RPM of a deployment, what an estimate counts, 429 below the quota:
//     https://learn.microsoft.com/en-us/microsoft-cloud/dev/dev-proxy/concepts/azure-openai-429-token-rate-limit,
//     https://learn.microsoft.com/zh-cn/azure/foundry-classic/openai/how-to/quota
//   - official: windows of 1 or 10 seconds:
//     https://learn.microsoft.com/en-us/microsoft-cloud/dev/dev-proxy/concepts/llm-rate-limits;
//     with the example of 600 a minute, quoted at https://learn.microsoft.com/en-us/answers/questions/1689036/tokens-per-minute-rate-limit
//   - observed: messages of refusals: https://learn.microsoft.com/en-us/answers/questions/2140040/requests-to-the-chatcompletions-create-operation-u;
//     "call rate limit" in public code
//   - observed: odd x-ratelimit fields:
//     https://learn.microsoft.com/en-us/answers/questions/5625878/azure-openai-responses-api-x-ratelimit-headers-val,
//     https://learn.microsoft.com/en-us/answers/questions/2156987/rate-limiting-inconsistent-with-x-ratelimit-remain
//   - observed, quoted from elsewhere: retry-after-ms:
//     https://www.developersdigest.tech/errors/api/azure-openai/429-rate-limit-exceeded
//   - from common use: hosts, paths, the names of fields in bodies.
//   - inferred: four bytes a token; for how long, where nothing is said.
package azureopenai

import (
	"cmp"
	"net/http"
	"regexp"
	"strings"
	"time"

	"github.com/fleetthrottle/throttle"
	"github.com/fleetthrottle/throttle/feedback"
	"github.com/fleetthrottle/throttle/presets/internal/llm"
	"github.com/fleetthrottle/throttle/presets/internal/tablerow"
)

// Options are what deployments differ in. The zero value holds nothing until a
// refusal.
type Options struct {
	// Requests is how many requests a minute each deployment takes (RPM). Defaults to
	// 0: not told.
	Requests int

	// Tokens is how many tokens a minute each deployment takes (TPM). Defaults to
	// 0: not told.
	Tokens int

	// Deployment tells the deployments of a resource apart. Defaults to the name in the path, or
	// the field "model" of the body.
	Deployment func(*http.Request) string

	// Cost estimates the tokens of a request, or 0 for a request without tokens. An estimate above
	// Tokens counts as Tokens: Azure, not the estimate, should refuse requests that are too large.
	// Defaults to the estimate in the package documentation.
	Cost func(*http.Request) int

	// Host is a pattern of the API's hosts: of a fake, a proxy, or of resources under a different
	// domain, such as "*.cognitiveservices.azure.com". Defaults to "*.openai.azure.com".
	Host string
}

// Policies returns the table. Its rows are plain values: change them, leave some
// out, append your own.
func Policies(o Options) []throttle.Policy {
	if o.Deployment == nil {
		o.Deployment = deployment
	}

	match := cmp.Or(o.Host, "*.openai.azure.com") + "/openai/"
	key := throttle.Join(throttle.Host, o.Deployment)
	tokens := llm.NewCosts(o.Tokens, o.Cost, llm.Sum, key)

	// No request costs less than it sends and reserves (Known): Azure gives nothing back.
	settled := tokens.Usage(usage, tokens.Known)

	// Without the numbers of the deployment the rows hold requests only after a refusal.
	perRequest, perToken := throttle.Unlimited(), throttle.Unlimited()
	if o.Requests > 0 {
		perRequest = llm.Evenly(o.Requests)
	}
	if o.Tokens > 0 {
		perToken = throttle.PerMinute(o.Tokens)
	}

	return tablerow.Table([]throttle.Policy{
		{Name: "azureopenai-requests", Match: match, Key: key,
			Limit: perRequest, Answer: requestsRefused(tokens.Cost)},
		{Name: "azureopenai-tokens", Match: match, Key: key,
			Limit: perToken, Cost: tokens.Cost, Meter: settled.Meter,
			Answer: feedback.All(tokensRefused, settled.Settled(usage.Cost))},
	})
}

// deployment is the default of [Options.Deployment].
func deployment(r *http.Request) string {
	if rest, ok := strings.CutPrefix(throttle.RawPath(r), "/openai/deployments/"); ok {
		name, _, _ := strings.Cut(rest, "/")
		return name
	}
	return llm.Model(r)
}

// usage is the actual cost of a request. Events of the Responses API have it in a response.
var usage = feedback.Amount{Fields: []string{"usage.total_tokens", "response.usage.total_tokens"}}

// stated closes the row for as long as a refusal says. It says nothing if the refusal states no time.
var stated = feedback.First(
	tablerow.Until(feedback.Headers{Reset: "Retry-After-Ms", As: feedback.After(time.Millisecond)}),
	feedback.RetryAfter(0),
	feedback.Printed{
		Fields:  []string{"error.message"},
		Pattern: regexp.MustCompile(`(?i)retry after (\d+) seconds?`),
	}.Answer,
)

// aboutTokens recognises the refusals that are about tokens. They close the row for lasts.
func aboutTokens(lasts time.Duration) feedback.Codes {
	return feedback.Codes{
		Fields:  []string{"error.message"},
		Pattern: regexp.MustCompile(`(?i)exceeded (token) rate limit`),
		Lasts:   map[string]time.Duration{"token": lasts},
	}
}

// tokensRefused closes the row after a refusal that is about tokens.
var tokensRefused = refused(func() feedback.Reader {
	codes := aboutTokens(time.Minute)
	codes.End = stated
	return codes.Answer
}())

// requestsRefused returns a reader that closes the row after a refusal that closes no other row, and after an outage. A
// refusal about tokens closes this row if the request costs no tokens, as an upload does: the row of tokens would not hold
// the next such request.
func requestsRefused(cost func(*http.Request) int) feedback.Reader {
	return feedback.First(
		refused(feedback.First(tablerow.IfCharged(cost, aboutTokens(0).Answer), stated, feedback.For(10*time.Second))),
		tablerow.Outage(),
	)
}

// refused returns a reader that asks p about 429s, and ignores all other answers.
func refused(p feedback.Reader) feedback.Reader {
	return feedback.When{Status: []int{http.StatusTooManyRequests}}.Then(p)
}
