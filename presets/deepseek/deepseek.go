// Package deepseek is the table of limits of DeepSeek's API: requests in flight.
//
//	client := &http.Client{Transport: throttle.Must(throttle.New(throttle.Config{
//		Store:    redisstore.New(rdb, redisstore.Options{}),
//		Policies: deepseek.Policies(deepseek.Options{}),
//	}))}
//
// # Rows
//
//	deepseek-pro     500 requests to deepseek-v4-pro in flight, for each account
//	deepseek-flash   2,500 requests to deepseek-flash in flight, for each account
//	deepseek-model   no number: for each account and model
//
// A request is in flight until its answer has been read to the end, a stream too. All keys of an
// account count together.
//
// The model is read from the request's body, as in package openai. deepseek-v4-flash is the name
// that deepseek-flash had before: both share a row. Any other name meets deepseek-model alone.
//
// # Refusals
//
//	429                     deepseek-model
//	503, ten in a row       deepseek-model
//
// A refusal lasts for its Retry-After, or a second without one: DeepSeek documents no Retry-After.
// An account with a low balance may have fewer requests in flight, and the answer states the
// number: set [Options.Pro] and [Options.Flash] to at most this number.
//
// A 402 says that the balance is spent. Waiting does not help, so it closes nothing.
//
// # Not covered
//
// The limit that each user_id has in accounts whose limits were raised. Requests and tokens in a time, of
// which some refusals speak and no page gives a number.
//
// # Sources
//
// Facts as of 2026-11.
//
//   - official: requests in flight, for each account and model, until when, user_id, 429:
//     https://api-docs.deepseek.com/quick_start/rate_limit
//   - official: 402, 429, 503: https://api-docs.deepseek.com/quick_start/error_codes
//   - observed: fewer in flight with a low balance, the text of that 429, no x-ratelimit fields:
//     https://github.com/tarigelamin1997/jobfetcher/pull/42
//   - observed: a 429 about tokens: https://github.com/esengine/DeepSeek-Reasonix/issues/2387
//   - from common use: the host, the field of the model, in both forms of the API.
//   - inferred: a second; that a 503 may have a Retry-After (RFC 9110).
package deepseek

import (
	"cmp"
	"net/http"
	"slices"
	"time"

	"github.com/fleetthrottle/throttle"
	"github.com/fleetthrottle/throttle/feedback"
	"github.com/fleetthrottle/throttle/presets/internal/caller"
	"github.com/fleetthrottle/throttle/presets/internal/llm"
	"github.com/fleetthrottle/throttle/presets/internal/tablerow"
)

// Options are what an account has been given, and whose requests are counted together. The
// zero value is one account with the documented limits.
type Options struct {
	// Pro is how many requests to deepseek-v4-pro may be in flight. Defaults to 500.
	Pro int

	// Flash is how many requests to deepseek-flash may be in flight. Defaults to 2,500.
	Flash int

	// Account is any name for the account. Not a key: all keys of an account share
	// its limits. Defaults to "": all programs that share the store are one account.
	Account string

	// Caller says for which account a request is, for a program that calls for
	// several. It replaces Account. Defaults to nil: Account.
	Caller func(*http.Request) (account string)

	// Model is the model that a request asks for. Defaults to the field "model" of the
	// body.
	Model func(*http.Request) string

	// Host is a pattern of the API's hosts, in place of the default for a fake, a
	// proxy or a server of one's own. Defaults to "api.deepseek.com".
	Host string
}

// Policies returns the table. Its rows are plain values: change them, leave some
// out, append your own.
func Policies(o Options) []throttle.Policy {
	o = o.withDefaults()
	match := "POST " + o.Host + "/"
	account := caller.ID(o.Account, o.Caller)

	return tablerow.Table([]throttle.Policy{
		{
			Name: "deepseek-pro", Match: match, Key: account,
			Limit: throttle.Concurrency(o.Pro), Cost: o.asks("deepseek-v4-pro"), Answer: feedback.LeaveOpen,
		},
		{
			Name: "deepseek-flash", Match: match, Key: account,
			Limit: throttle.Concurrency(o.Flash), Cost: o.asks("deepseek-flash", "deepseek-v4-flash"), Answer: feedback.LeaveOpen,
		},
		// This row takes the refusals, also for models without a row of their own.
		{
			Name: "deepseek-model", Match: match, Key: throttle.Join(account, o.Model),
			Limit: throttle.Unlimited(), Answer: refused(),
		},
	})
}

// withDefaults returns o with the defaults of its zero fields.
func (o Options) withDefaults() Options {
	o.Pro = cmp.Or(o.Pro, 500)
	o.Flash = cmp.Or(o.Flash, 2500)
	if o.Model == nil {
		o.Model = llm.Model
	}
	o.Host = cmp.Or(o.Host, "api.deepseek.com")
	return o
}

// asks returns the cost under the limit of a model with some names: 1 for a request to the model, and 0 for any other.
func (o *Options) asks(names ...string) func(*http.Request) int {
	return func(r *http.Request) int {
		if slices.Contains(names, o.Model(r)) {
			return 1
		}
		return 0
	}
}

// refused returns a reader that closes the row after any refusal, and after an outage.
func refused() feedback.Reader {
	return feedback.First(
		feedback.When{Status: []int{http.StatusTooManyRequests}}.Then(feedback.RetryAfter(time.Second)),
		tablerow.Outage(),
	)
}
