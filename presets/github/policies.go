package github

import (
	"cmp"
	"net/http"
	"strings"

	"github.com/fleetthrottle/throttle"
	"github.com/fleetthrottle/throttle/feedback"
	"github.com/fleetthrottle/throttle/presets/internal/caller"
	"github.com/fleetthrottle/throttle/presets/internal/tablerow"
)

// Policies returns the table. Its rows are plain values: change them, leave some
// out, append your own.
func Policies(o Options) []throttle.Policy {
	o = o.withDefaults()
	all, site := "{service}.github.com/", "github.com"

	// Tokens are asked for outside of the API, so the path of Host is not part of the site.
	if o.Host != "" {
		all = o.Host + "/"
		site, _, _ = strings.Cut(o.Host, "/")
	}

	searches, codeSearches := o.callsOf("search"), o.callsOf("code_search")

	// Searches have limits of their own, and do not count under the primary limit.
	primaryCalls := func(r *http.Request) int { return o.calls(r) - searches(r) - codeSearches(r) }
	return tablerow.Table([]throttle.Policy{
		{
			Name: "github-primary", Match: all, Key: throttle.Join(o.account, o.resource), Cost: primaryCalls,
			Limit: throttle.PerHour(o.PerHour), Answer: tablerow.IfCharged(primaryCalls, feedback.All(primary, o.left, unchanged)),
		},
		{
			Name: "github-search", Match: all, Key: o.account, Cost: searches,
			Limit: throttle.PerMinute(o.searchesPerMinute()), Answer: tablerow.IfCharged(searches, feedback.All(primary, o.left, unchanged)),
		},
		{
			Name: "github-code-search", Match: all, Key: o.account, Cost: codeSearches,
			Limit: throttle.PerMinute(10), Answer: tablerow.IfCharged(codeSearches, feedback.All(primary, o.left, unchanged)),
		},
		{
			Name: "github-in-flight", Match: all, Key: o.account, Cost: o.calls,
			Limit: throttle.Concurrency(100), Answer: tablerow.IfCharged(o.calls, feedback.Acted(feedback.First(o.secondary(), tablerow.Outage()), o.acted)),
		},
		{
			Name: "github-points", Match: all, Key: o.account, Cost: o.restPoints,
			Limit: throttle.PerMinute(900), Answer: tablerow.IfCharged(o.restPoints, o.secondary()),
		},
		{
			Name: "github-graphql-points", Match: all, Key: o.account, Cost: o.graphqlPoints,
			Limit: throttle.PerMinute(2000), Answer: tablerow.IfCharged(o.graphqlPoints, feedback.Acted(o.secondary(), o.acted)),
		},
		{
			Name: "github-content-minute", Match: all, Key: o.account, Cost: o.creations,
			Limit: throttle.PerMinute(80), Answer: feedback.LeaveOpen,
		},
		{
			Name: "github-content-hour", Match: all, Key: o.account, Cost: o.creations,
			Limit: throttle.PerHour(500), Answer: feedback.LeaveOpen,
		},
		{
			Name: "github-oauth", Match: "POST " + site + tokens,
			Limit: throttle.PerHour(2000), Answer: feedback.First(tooMany, throttle.RetryAfter), // the latter for a 503
		},
	})
}

// searchesPerMinute is the limit of all searches except of code.
func (o Options) searchesPerMinute() int {
	if o.PerHour == Anonymous {
		return 10
	}
	return 30
}

// withDefaults returns o with the defaults of its zero fields.
func (o Options) withDefaults() Options {
	o.account = caller.Or(caller.ID(o.Account, o.Caller), throttle.Header("Authorization"))

	// Accounts of different servers are different budgets.
	if o.Host != "" {
		o.account = throttle.Join(caller.Always(o.Host), o.account)
	}
	if o.Creates == nil {
		o.Creates = o.creates
	}
	o.PerHour = cmp.Or(o.PerHour, User)
	return o
}
