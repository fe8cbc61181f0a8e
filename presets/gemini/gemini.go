// Package gemini is the table of limits of Google's Gemini API.
//
//	client := &http.Client{Transport: throttle.Must(throttle.New(throttle.Config{
//		Store:    redisstore.New(rdb, redisstore.Options{}),
//		Policies: gemini.Policies(gemini.Options{}),
//	}))}
//
// # Rows
//
//	gemini-requests   requests a minute, for each project and model
//	gemini-tokens     tokens sent a minute, for each project and model
//	gemini-day        requests a day of Pacific time, for each project and model
//
// The first limit that is reached refuses. What they allow depends on the project's
// tier and the model, and stands in Google AI Studio: no number is published, so a row whose
// number is not told is unlimited until an answer closes it.
//
// A request costs a quarter of its length in tokens, until the usage in its answer states the
// actual tokens. Streams have it in usageMetadata, or in OpenAI's form with
// stream_options.include_usage. A stream without usage, or a stream that is cut, costs its
// estimate.
//
// The model is read from the path ("/v1beta/models/gemini-2.5-flash:generateContent"), and
// for the endpoints in OpenAI's form from the body, as in package openai. Models whose numbers
// differ need a [throttle.Transport] each, with the same Store.
//
// A day ends at midnight of Pacific time. On a machine without a database of time zones the row
// is a window of any 24 hours.
//
// # Refusals
//
//	429, a quota of a day         gemini-day
//	429, a quota of tokens        gemini-tokens
//	any other 429                 gemini-requests
//	503, ten in a row             gemini-requests
//
// A 429 names its quota in error.details, as in GenerateRequestsPerDayPerProjectPerModel. A refusal
// lasts for its Retry-After, or for the retryDelay or metadata.quotaResetDelay in error.details, or
// as long as the message says ("Please retry in 39.237s."). If none of these is there, a day's
// quota is closed until midnight, a quota of tokens for a minute, and any other quota for a second
// (inferred). A limit on spending has no name of its own: it closes gemini-requests.
//
// # Not covered
//
// Images a minute, tokens a day (their refusal closes gemini-day), batches, Live. How many tokens
// an attached picture or a file has, before the answer tells. Models on Vertex AI.
//
// # Sources
//
// Facts as of 2026-11.
//
//   - official: the limits, their scope (project and model), midnight of Pacific time, no published numbers:
//     https://ai.google.dev/gemini-api/docs/rate-limits
//   - official: a stream is a number of answers, which have usageMetadata: https://ai.google.dev/api/generate-content
//   - observed: usageMetadata without promptTokenCount in the events before the last:
//     https://alm.pragmatismo.com.br/GeneralBots/gb/raw/commit/144c4b0b79e3ada32911f430eda31de3a6fe84fc/out.txt
//   - from common use: include_usage in OpenAI's form.
//   - observed: 429, QuotaFailure with quotaId, RetryInfo with retryDelay:
//     https://github.com/RooCodeInc/Roo-Code/issues/3883,
//     https://github.com/cline/cline/issues/4874
//   - observed: quotaResetDelay, and a message that alone says for how long:
//     https://github.com/router-for-me/CLIProxyAPI/issues/449,
//     https://github.com/google-gemini/gemini-cli/issues/12586
//   - observed: an answer in a list, and without details: https://github.com/google-gemini/gemini-cli/issues/14831,
//     https://github.com/google-gemini/gemini-cli/issues/2020
//   - observed: GenerateRequestsPerDayPerProjectPerModel, with a retryDelay that ended at midnight UTC:
//     https://dev.to/nils44344/gemini-api-429-resourceexhausted-why-your-limit-is-0-68o
//   - from common use: the host, the paths, the names of fields in bodies, where the key travels.
//   - inferred: four bytes a token; the times where nothing is said; that a 503 may have a Retry-After (RFC 9110).
package gemini

import (
	"cmp"
	"net/http"
	"regexp"
	"strings"
	"sync"
	"time"

	"github.com/fleetthrottle/throttle"
	"github.com/fleetthrottle/throttle/feedback"
	"github.com/fleetthrottle/throttle/presets/internal/caller"
	"github.com/fleetthrottle/throttle/presets/internal/llm"
	"github.com/fleetthrottle/throttle/presets/internal/tablerow"
)

// Options hold the limits of a project's tier, and identify the project. The zero value is projects
// with a key each, of an unknown tier.
type Options struct {
	// Requests is how many requests a minute each model allows. Models that differ
	// need a transport of their own: see the package documentation. Defaults to 0: not
	// told.
	Requests int

	// Tokens is how many tokens a minute may be sent to each model. Defaults to 0: not
	// told.
	Tokens int

	// PerDay is how many requests a day each model allows. Defaults to 0: not told.
	PerDay int

	// Project is the project's id: all keys of a project share its limits. Defaults to
	// "": projects are told apart by their keys, in X-Goog-Api-Key, in the parameter key, or
	// in the Authorization.
	Project string

	// Caller says for which project a request is, for a program that calls for
	// several. It replaces Project, and "" means the same. Defaults to nil.
	Caller func(*http.Request) (project string)

	// Model tells models, or groups of models that share their limits, apart. Defaults to the model
	// in the path, or to the field "model" of the body.
	Model func(*http.Request) string

	// Cost estimates the tokens that a request sends, or 0 for a request without tokens. An
	// estimate above Tokens counts as Tokens: Google, not the estimate, should refuse requests that
	// are too large. Defaults to a quarter of the body's length, at least 1.
	Cost func(*http.Request) int

	// Host is a pattern of the API's hosts, in place of the default for a fake, a
	// proxy or a server of one's own. Defaults to "generativelanguage.googleapis.com".
	Host string
}

// Policies returns the table. Its rows are plain values: change them, leave some
// out, append your own.
func Policies(o Options) []throttle.Policy {
	o = o.withDefaults()
	match := "POST " + o.Host + "/"
	project := caller.Or(caller.ID(o.Project, o.Caller), apiKey)
	key := throttle.Join(project, o.Model)

	return tablerow.Table([]throttle.Policy{
		{
			Name: "gemini-requests", Match: match, Key: key,
			Limit: perMinute(o.Requests), Answer: requestsRefused(o.cost),
		},
		{
			Name: "gemini-tokens", Match: match, Key: key,
			Limit: perMinute(o.Tokens), Cost: o.cost, Meter: sent.Meter,
			Answer: feedback.All(quotaRefused("Tokens*", time.Minute), settle),
		},
		{
			Name: "gemini-day", Match: match, Key: key,
			Limit: day(o.PerDay), Answer: dayRefused,
		},
	})
}

// withDefaults returns o with the defaults of its zero fields.
func (o Options) withDefaults() Options {
	if o.Model == nil {
		o.Model = caller.Or(pathModel, llm.Model)
	}
	if o.Cost == nil {
		o.Cost = llm.Sent
	}
	o.Host = cmp.Or(o.Host, "generativelanguage.googleapis.com")
	return o
}

// cost is the estimated cost of a request.
func (o *Options) cost(r *http.Request) int {
	return min(o.Cost(r), cmp.Or(o.Tokens, llm.Unpublished))
}

// perMinute is a limit of n a minute, or no limit if n is 0.
func perMinute(n int) throttle.Limit {
	if n == 0 {
		return throttle.Unlimited()
	}
	return throttle.PerMinute(n)
}

// day is a limit of n a day, or no limit if n is 0.
func day(n int) throttle.Limit {
	if n == 0 {
		return throttle.Unlimited()
	}

	// Any 24 hours are the safe reading of a day without the time zone.
	zone := pacific()
	if zone == nil {
		return throttle.SlidingWindow(n, 24*time.Hour)
	}
	return throttle.CalendarWindow(n, throttle.Day, zone)
}

// apiKey is a [throttle.Policy.Key]: the credential of a request.
var apiKey = caller.Or(throttle.Header("X-Goog-Api-Key"), caller.Or(throttle.Query("key"), throttle.Header("Authorization")))

// pathModel is a [throttle.Policy.Key]: the model in a path such as
// "/v1beta/models/gemini-2.5-flash:generateContent".
func pathModel(r *http.Request) string {
	_, rest, _ := strings.Cut(throttle.RawPath(r), "/models/")
	model, _, _ := strings.Cut(rest, ":")
	return model
}

// pacific is the zone in which a day ends, or nil on a machine without zone data.
var pacific = sync.OnceValue(func() *time.Location {
	zone, err := time.LoadLocation("America/Los_Angeles")
	if err != nil {
		return nil
	}
	return zone
})

// in returns a field of an error, which some endpoints put into a list.
func in(field string) []string { return []string{"error." + field, "0.error." + field} }

// named is the quota that a refusal names: a day's of any kind, or a minute's of tokens.
var named = regexp.MustCompile(`PerDay|Tokens.*PerMinute`)

// wait closes the row for as long as a refusal says. It says nothing if the refusal states no time.
var wait = feedback.First(
	feedback.RetryAfter(0),
	feedback.Printed{Fields: in("details.*.retryDelay")}.Answer,
	feedback.Printed{Fields: in("details.*.metadata.quotaResetDelay")}.Answer,
	feedback.Printed{Fields: in("message"), As: feedback.Sentence}.Answer,
)

// tooMany recognises the refusals.
var tooMany = feedback.When{Status: []int{http.StatusTooManyRequests}}

// quotaRefused returns a reader that closes the row after a refusal that names a quota, for the time that it states or else
// for lasts. A lasts of 0 closes nothing.
func quotaRefused(quota string, lasts time.Duration) feedback.Reader {
	return tooMany.Then(feedback.Codes{
		Fields: in("details.*.violations.*.quotaId"), Pattern: named,
		Lasts: map[string]time.Duration{quota: lasts}, End: wait,
	}.Answer)
}

// dayRefused closes the row after a refusal about a day, for the time that it states or else until midnight. On a machine
// without zone data it is an hour in place of midnight.
func dayRefused(resp *http.Response) throttle.Answer {
	a := quotaRefused("PerDay", time.Hour)(resp)
	if zone := pacific(); a.Close > 0 && zone != nil && wait(resp).Close == 0 {
		return feedback.UntilMidnight(zone)(resp)
	}
	return a
}

// requestsRefused returns a reader that closes the row after a refusal that closes no other row, and after an outage. A
// refusal about tokens closes this row if the request costs no tokens, as an upload does: the row of tokens would not hold
// the next such request.
func requestsRefused(tokens func(*http.Request) int) feedback.Reader {
	return feedback.First(
		// The refusals of the day and of the tokens close rows of their own.
		quotaRefused("PerDay", 0),
		tablerow.IfCharged(tokens, quotaRefused("Tokens*", 0)),
		tooMany.Then(feedback.First(wait, feedback.For(time.Second))),
		tablerow.Outage(),
	)
}

// sent are the tokens that were sent. A stream states them in its events, or in the elements of a list.
var sent = feedback.Amount{Fields: []string{"usageMetadata.promptTokenCount", "*.usageMetadata.promptTokenCount", "usage.prompt_tokens"}}

// settle is a [throttle.Policy.Answer] of costs. It does not read an answer that streams in JSON, because the
// caller would get nothing until the first part has come: the row's Meter reads such an answer.
var settle = feedback.When{Path: []string{"*:generateContent", "*/openai/*"}}.Then(sent.Cost)
