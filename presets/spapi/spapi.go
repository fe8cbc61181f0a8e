// Package spapi is the table of limits of Amazon's Selling Partner API.
//
//	client := &http.Client{Transport: throttle.Must(throttle.New(throttle.Config{
//		Store:    redisstore.New(rdb, redisstore.Options{}),
//		Policies: spapi.Policies(spapi.Options{}),
//	}))}
//
// # Rows
//
// Each operation has a token bucket for each pair of selling partner and application: requests flow
// in at a rate, up to a burst that is saved in quiet times. There is one row for each [Operation];
// [Usage] has the operations with a known usage plan:
//
//	spapi-getOrders                    1 a minute (0.0167 a second), burst 20
//	spapi-getOrder                     1 in 2 seconds, burst 30
//	spapi-getOrderItems                1 in 2 seconds, burst 30
//	spapi-createRestrictedDataToken    1 a second, burst 10
//	spapi-fulfillmentOutbound          2 a second, burst 30, for each of its operations
//
// Plans differ from partner to partner and may change: x-amzn-RateLimit-Limit states how many
// requests a second flow in. Put this rate into an Operation of your own. Several buckets may count
// one operation, and the first empty bucket refuses; so may rows.
//
// # Refusals
//
// A 429 (QuotaExceeded) closes the row of its operation alone, until the next request has flowed
// in: at the rate of x-amzn-RateLimit-Limit, or without this field at the row's rate. A Retry-After
// counts before both. Ten 503 in a row with a Retry-After close the row, too. There are no bans.
//
// # Not covered
//
// All other operations. A refusal by a limit that is shared with other
// applications says the same as any.
//
// # Sources
//
// Facts as of 2026-11. Official: buckets, header and refusal
// (https://developer-docs.amazon.com/sp-api/docs/usage-plans-and-rate-limits),
// createRestrictedDataToken
// (https://developer-docs.amazon.com/sp-api/docs/tokens-api-rate-limits),
// fulfillment outbound
// (https://developer-docs.amazon.com/sp-api/docs/fulfillment-outbound-api-rate-limits).
// Observed, in public code: orders, the body. From common use: hosts and paths.
// Inferred: how long a refusal lasts, and that it or a 503 may have a Retry-After
// (RFC 9110).
package spapi

import (
	"cmp"
	"math"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/fleetthrottle/throttle"
	"github.com/fleetthrottle/throttle/feedback"
	"github.com/fleetthrottle/throttle/presets/internal/caller"
	"github.com/fleetthrottle/throttle/presets/internal/tablerow"
)

// An Operation is a row of a usage plan.
type Operation struct {
	Name  string         // of the operation; the policy's has "spapi-" before it
	Match string         // "METHOD /PATH", as in a throttle.Policy but without a host
	Limit throttle.Limit // below one a second, make the period longer: TokenBucket(1, time.Minute, 20)

	// Key tells several operations apart that have the same plan each.
	// Defaults to nil: it is one.
	Key func(*http.Request) string
}

// Usage returns the operations whose usage plan is known here.
func Usage() []Operation {
	return []Operation{
		{
			Name: "getOrders", Match: "GET /orders/v0/orders",
			Limit: throttle.TokenBucket(1, time.Minute, 20),
		},
		{
			Name: "getOrder", Match: "GET /orders/v0/orders/{order}",
			Limit: throttle.TokenBucket(1, 2*time.Second, 30),
		},
		{
			Name: "getOrderItems", Match: "GET /orders/v0/orders/{order}/orderItems",
			Limit: throttle.TokenBucket(1, 2*time.Second, 30),
		},
		{
			Name: "createRestrictedDataToken", Match: "POST /tokens/2021-03-01/restrictedDataToken",
			Limit: throttle.TokenBucket(1, time.Second, 10),
		},
		{
			Name: "fulfillmentOutbound", Match: "/fba/outbound/2020-07-01/{operation...}", Key: outbound,
			Limit: throttle.TokenBucket(2, time.Second, 30),
		},
	}
}

// Options hold usage plans, and identify the account. The zero value is one account with the
// built-in usage plans.
type Options struct {
	// Operations are the rows. Defaults to [Usage].
	Operations []Operation

	// Account is any name for the pair of selling partner and application. Not
	// a token, which changes every hour. Defaults to "": all programs that
	// share the store are one.
	Account string

	// Caller says whose a request is, for a program that calls for several
	// pairs. It replaces Account. Defaults to nil.
	Caller func(*http.Request) (account string)

	// Host is a pattern of the API's hosts, in place of the default for a fake,
	// a proxy or a server of one's own. Defaults to "{region}.amazon.com":
	// sellingpartnerapi-eu.amazon.com and its like.
	Host string
}

// Policies returns the table of limits of the operations.
func Policies(o Options) []throttle.Policy {
	if o.Operations == nil {
		o.Operations = Usage()
	}
	o.Host = cmp.Or(o.Host, "{region}.amazon.com")
	account := caller.ID(o.Account, o.Caller)
	rows := make([]throttle.Policy, len(o.Operations))
	for i, op := range o.Operations {
		rows[i] = op.policy(o.Host, account)
	}
	return tablerow.Table(rows)
}

// policy returns the row of an operation. key is the account.
func (op Operation) policy(host string, key caller.Key) throttle.Policy {
	if op.Key != nil {
		key = throttle.Join(key, op.Key)
	}
	method, path, _ := strings.Cut(op.Match, "/")
	return throttle.Policy{
		Name: "spapi-" + op.Name, Match: method + host + "/" + path, Key: key,
		Limit: op.Limit, Answer: refused(op.Limit),
	}
}

// outbound is the method, and the path with "*" for each id. Every second segment is an id, as in
// "fulfillmentOrders/{id}/cancel".
func outbound(r *http.Request) string {
	segments := strings.Split(r.PathValue("operation"), "/")
	for i := 1; i < len(segments); i += 2 {
		segments[i] = "*"
	}
	return throttle.Method(r) + " " + strings.Join(segments, "/")
}

// refused returns a reader that closes the row of a refused operation until the next request has flowed into its empty
// bucket, and closes it after an outage.
func refused(l throttle.Limit) feedback.Reader {
	// In this time one request flows into an empty bucket.
	usual := l.Per() / time.Duration(max(l.N(), 1))
	return feedback.First(
		feedback.When{Status: []int{429}}.Then(feedback.First(
			feedback.RetryAfter(0), atRate, feedback.For(usual),
		)),
		tablerow.Outage(),
	)
}

// atRate closes the row for as long as a request takes to flow in, by the rate in the answer, and for at most
// throttle.MaxPenalty. Without a readable rate it says nothing.
func atRate(resp *http.Response) throttle.Answer {
	rate, err := strconv.ParseFloat(resp.Header.Get("x-amzn-RateLimit-Limit"), 64)
	if err != nil || !(rate > 0) || math.IsInf(rate, 1) { // NaN is not above 0
		return throttle.Answer{}
	}
	return throttle.Refused(time.Duration(math.Ceil(min(float64(time.Second)/rate, float64(throttle.MaxPenalty)))))
}
