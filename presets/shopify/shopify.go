// Package shopify is the table of limits of Shopify's Admin API: calls of REST
// and points of GraphQL, for each app and store.
//
//	client := &http.Client{Transport: throttle.Must(throttle.New(throttle.Config{
//		Store:    redisstore.New(rdb, redisstore.Options{}),
//		Policies: shopify.Policies(shopify.Options{Plan: shopify.Advanced}),
//	}))}
//
// # Rows
//
//	row              limit                one budget for each   closed by
//	shopify-rest     2/s burst 40         app and store         429, Retry-After
//	shopify-graphql  100/s burst 2000     app and store         THROTTLED
//
// Both are the buckets that Shopify itself keeps. The store is the name in
// {shop}.myshopify.com.
//
// A query costs [Options.Estimate] until its answer states the actual cost; then the difference is
// charged or given back. Each answer also states the level of its bucket, which lowers the budget
// if other programs of the same app call too.
//
// Stores with different plans need a [throttle.Transport] for each plan, because all stores meet
// all rows of their transport. They may have the same Store: their budgets differ.
//
// # Refusals
//
// REST refuses with 429 and a Retry-After, which may be a decimal, "2.0". GraphQL refuses with
// status 200 and errors whose extensions have the code THROTTLED. The answer states the points that
// the query needs, the points in the bucket, and the points that come back in a second. The row is
// closed until a query like it fits (less the time that the query then waits for its estimate), for
// cheaper queries too, which would take the points. Without these numbers it is closed for a second
// (inferred). There is no ban. Ten 503 in a row with a Retry-After close the row, too. If a
// THROTTLED answer also has data, and the request may be a mutation, the budget is closed but the
// request is not repeated: a part was executed.
//
// # Not covered
//
// Other APIs of Shopify (Storefront, Partner), and limits of single resources. An
// answer longer than 64 KB: its cost stands behind the data, where nobody looks,
// so it stays the estimate.
//
// # Sources
//
// Facts as of 2026-11.
//
//   - official: REST, the headers and the 429:
//     https://shopify.dev/docs/api/admin-rest/usage/rate-limits
//   - official: plans, points and their cost:
//     https://shopify.dev/docs/apps/build/apis/graphql-admin/rate-limits
//   - official: calls of the plans: https://shopify.dev/docs/api/usage/rate-limits
//   - observed, in public code: the body of the 429, THROTTLED, throttleStatus, and in it
//     buckets of 2,000 points for 100 a second, and of 20,000 for 1,000.
//   - observed: refusals that state the missing points:
//     https://github.com/MONEI/Shopify-api-node/issues/489
//   - from common use: actualQueryCost, hosts and paths.
//   - inferred: the sizes of the other buckets, apart from the 40 of REST. The pages also
//     say "40 requests within 60 seconds", and of calls in the largest stores once "20X"
//     and once 40 a second.
package shopify

import (
	"cmp"
	"net/http"
	"strings"
	"time"

	"github.com/fleetthrottle/throttle"
	"github.com/fleetthrottle/throttle/feedback"
	"github.com/fleetthrottle/throttle/presets/internal/caller"
	gql "github.com/fleetthrottle/throttle/presets/internal/graphql"
	"github.com/fleetthrottle/throttle/presets/internal/tablerow"
)

// A Plan is the limits of a store's plan for one app. A number that is 0 is [Standard]'s.
type Plan struct {
	Calls       int // of REST, a second
	CallBurst   int
	Points      int // of GraphQL, a second
	PointsBurst int
}

// The plans. Burst is what Shopify calls the bucket's size.
var (
	Standard   = Plan{Calls: 2, CallBurst: 40, Points: 100, PointsBurst: 2_000}
	Advanced   = Plan{Calls: 4, CallBurst: 80, Points: 200, PointsBurst: 4_000}
	Plus       = Plan{Calls: 20, CallBurst: 400, Points: 1_000, PointsBurst: 20_000}
	Enterprise = Plan{Calls: 40, CallBurst: 800, Points: 2_000, PointsBurst: 40_000}
)

// Options are what differs between accounts. The zero value is one app in stores
// of the standard plan.
type Options struct {
	// Plan of the stores. Stores of different plans need a transport for each
	// plan: see the package documentation. Defaults to [Standard].
	Plan Plan

	// App is the app's id. Defaults to "": all programs that share the store
	// are one app.
	App string

	// Caller says whose a request is, for a program that calls for several
	// apps. It replaces App. Defaults to nil.
	Caller func(*http.Request) (app string)

	// Estimate returns the likely cost of a query, in points: rather too much than too little.
	// Defaults to nil: 100.
	Estimate func(*http.Request) int

	// Host is a pattern of the API's hosts, in place of the default for a fake,
	// a proxy or a server of one's own. Its wildcard {shop} tells stores apart;
	// without one all are one. Defaults to "{shop}.myshopify.com".
	Host string
}

// Policies returns the table. Its rows are plain values: change them, leave some
// out, append your own.
func Policies(o Options) []throttle.Policy {
	o.Plan = o.Plan.withDefaults()
	if o.Estimate == nil {
		o.Estimate = func(*http.Request) int { return 100 }
	}

	rest := cmp.Or(o.Host, "{shop}.myshopify.com") + "/admin/"
	graphql := "POST " + rest + "api/{version}/graphql.json"
	appAndStore := throttle.Join(caller.ID(o.App, o.Caller), throttle.PathValue("shop"))
	calls, points := o.Plan.calls(), o.Plan.points()

	return tablerow.Table([]throttle.Policy{
		{
			Name: "shopify-rest", Match: rest, Key: appAndStore, Cost: restCalls,
			Limit: calls, Answer: tablerow.IfCharged(restCalls, feedback.All(feedback.First(tooMany, tablerow.Outage()), callsLeft(calls))),
		},
		{
			Name: "shopify-graphql", Match: graphql, Key: appAndStore, Cost: o.Estimate,
			Limit: points, Answer: feedback.All(feedback.Acted(o.throttled(), gql.Acted), pointsLeft, queryCost),
		},
	})
}

// withDefaults returns p with the numbers of Standard in place of zeros.
func (p Plan) withDefaults() Plan {
	return Plan{
		Calls: cmp.Or(p.Calls, Standard.Calls), CallBurst: cmp.Or(p.CallBurst, Standard.CallBurst),
		Points: cmp.Or(p.Points, Standard.Points), PointsBurst: cmp.Or(p.PointsBurst, Standard.PointsBurst),
	}
}

// calls is the limit of REST.
func (p Plan) calls() throttle.Limit {
	return throttle.TokenBucket(p.Calls, time.Second, p.CallBurst)
}

// points is the limit of GraphQL.
func (p Plan) points() throttle.Limit {
	return throttle.TokenBucket(p.Points, time.Second, p.PointsBurst)
}

// restCalls is the cost under the limit of REST, of which GraphQL is free.
func restCalls(r *http.Request) int {
	if strings.HasSuffix(throttle.RawPath(r), "/graphql.json") {
		return 0
	}
	return 1
}

var (
	// tooMany closes REST.
	tooMany = feedback.When{Status: []int{http.StatusTooManyRequests}}.Then(feedback.RetryAfter(time.Second))

	// queryCost is the actual cost of a query, which is null in a refusal.
	queryCost = feedback.Amount{Fields: []string{"extensions.cost.actualQueryCost"}}.Cost

	// What a refusal says of the points: how many the query needs, how many the bucket holds, and how many
	// come back in a second.
	pointsAsked = feedback.Amount{Fields: []string{"extensions.cost.requestedQueryCost"}}.Cost
	bucketSize  = feedback.Amount{Fields: []string{"extensions.cost.throttleStatus.maximumAvailable"}}.Cost
	restoreRate = feedback.Amount{Fields: []string{"extensions.cost.throttleStatus.restoreRate"}}.Cost

	// pointsLeft are the points that may be used within a second. Then the next points come in.
	pointsLeft = feedback.Amount{
		Fields: []string{"extensions.cost.throttleStatus.currentlyAvailable"},
		Per:    time.Second,
	}.Left
)

// throttled returns a reader that closes the row of GraphQL after a refusal: a code in the body, a 429 or an outage.
func (o Options) throttled() feedback.Reader {
	return feedback.First(
		feedback.Codes{
			Fields: []string{"errors.*.extensions.code"},
			Lasts:  map[string]time.Duration{"THROTTLED": time.Second},
			End:    feedback.First(feedback.RetryAfter(0), o.untilRestored),
		}.Answer,
		tooMany,
		tablerow.Outage(),
	)
}

// untilRestored closes the row until its bucket has the points that a refused query has asked for, or is full if it never
// has that many. It says nothing if the answer does not tell, or if no points are missing.
func (o Options) untilRestored(resp *http.Response) throttle.Answer {
	asked, _ := pointsAsked(resp).Cost()
	perSecond, _ := restoreRate(resp).Cost()
	quota, known := pointsLeft(resp).Left()

	// A query that asks for more than the bucket holds waits for a full bucket.
	if size, told := bucketSize(resp).Cost(); told {
		asked = min(asked, size)
	}
	if perSecond <= 0 || !known || asked <= quota.Left {
		return throttle.Answer{}
	}

	closed := restoring(asked-quota.Left, perSecond)

	// After a penalty the store fills its bucket from one point on, so the query will wait for its estimate, too. Close the
	// row for less by that time.
	if resp.Request != nil {
		closed -= restoring(o.Estimate(resp.Request)-1, o.Plan.Points)
	}

	return throttle.Refused(max(closed, time.Millisecond))
}

// restoring is the time in which n points come back.
func restoring(n, perSecond int) time.Duration {
	return time.Duration(float64(n) / float64(perSecond) * float64(time.Second))
}

// callsLeft returns a reader of the remaining calls: of "32/40", which states the calls in the bucket, they are 8. They
// count until the next call leaks out of the bucket.
func callsLeft(calls throttle.Limit) feedback.Reader {
	return feedback.Headers{
		Used: "X-Shopify-Shop-Api-Call-Limit",
		Per:  calls.Per() / time.Duration(calls.N()),
	}.Left
}
