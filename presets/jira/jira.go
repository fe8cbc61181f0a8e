// Package jira is Jira Cloud's table of limits.
//
//	client := &http.Client{Transport: throttle.Must(throttle.New(throttle.Config{
//		Store:    redisstore.New(rdb, redisstore.Options{}),
//		Policies: jira.Policies(jira.Options{}),
//	}))}
//
// # Rows
//
//	jira-quota           65,000 points in each hour of UTC, for all tenants of
//	                     the app, or a quota for each tenant
//	jira-burst-GET       100 a second, for each tenant and endpoint
//	jira-burst-POST      100 a second, for each tenant and endpoint
//	jira-burst-PUT       50 a second, for each tenant and endpoint
//	jira-burst-DELETE    50 a second, for each tenant and endpoint
//	jira-burst-PATCH     not published, for each tenant and endpoint
//	jira-issue-2s        20 writes to one issue in 2 seconds
//	jira-issue-30s       100 writes to one issue in 30 seconds
//
// A write costs a point; a read costs one, and one more for each object in the
// answer, two if it is a user. How many there will be is estimated by the query's
// maxResults, and counted once the answer is there, if it is not too long.
//
// A request with an API token, which travels as Authorization: Basic (inferred), costs no points:
// the quotas apply to Forge, Connect and OAuth 2.0 apps.
//
// # Refusals
//
// A 429 says in RateLimit-Reason which limit it is about:
//
//	jira-quota-global-based, jira-quota-tenant-based   jira-quota
//	jira-burst-based, no name or an unknown name       jira-burst-…
//	jira-per-issue-on-write                            jira-issue-…
//	status 503, ten in a row                           jira-burst-…
//
// A reason that is about no budget of the request closes jira-burst-…, too: a quota that a request with an
// API token does not have, or an issue that its path does not name.
//
// A refusal lasts for its Retry-After, or until X-RateLimit-Reset. Without both the quota is closed
// until the next hour, and any other row for a second. Beta-RateLimit lowers the quota if other
// programs use it.
//
// # Not covered
//
// The endpoints with burst limits of their own (5 to 500 a second): add a row for each that allows
// less. The limit of PATCH, which is not published.
//
// # Sources
//
// Facts as of 2026-11. Official: limits, costs, refusals, fields
// (https://developer.atlassian.com/cloud/jira/platform/rate-limiting). From common
// use: hosts and paths. Inferred: the lengths without both fields; that a 503 may
// have a Retry-After (RFC 9110); which segments of a path are ids (those with a
// digit); how many objects an answer holds.
package jira

import (
	"cmp"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/fleetthrottle/throttle"
	"github.com/fleetthrottle/throttle/feedback"
	"github.com/fleetthrottle/throttle/presets/internal/caller"
	"github.com/fleetthrottle/throttle/presets/internal/tablerow"
)

// Tier1 is the quota of an app for all its tenants together, in points an hour.
const Tier1 = 65_000

// Tier2 is the quota of an app for one tenant with a number of users, in points an hour. Some
// editions have more: see the source.
func Tier2(users int) int { return min(100_000+10*users, 500_000) }

// Where the API is, for [Options.Host].
const (
	Sites   = "{tenant}.atlassian.net"
	Gateway = "api.atlassian.com/ex/jira/{tenant}" // OAuth 2.0
)

// Options are what an app's tier changes, and whose requests are counted together. The
// zero value is one app of tier 1.
type Options struct {
	// Quota is the points an hour. Defaults to [Tier1].
	Quota int

	// PerTenant says that each tenant has that quota for itself, as in tier
	// 2. Defaults to false: all share it.
	PerTenant bool

	// App is the app's id. Defaults to "": all programs that share the store
	// are one app.
	App string

	// Caller says whose a request is, for a program that calls for several
	// apps. It replaces App. Defaults to nil.
	Caller func(*http.Request) (app string)

	// Endpoint tells endpoints apart. Defaults to the path, without the
	// segments that hold a digit.
	Endpoint func(*http.Request) string

	// Points estimates the cost of a request. Defaults to the estimate in the package
	// documentation.
	Points func(*http.Request) int

	// Host is a pattern of the API's hosts, with what of the path stands in
	// front of "/rest/", in place of the default for [Gateway], for a fake, a
	// proxy or a server of one's own. Its wildcard {tenant} tells tenants
	// apart; without one all are one. Defaults to [Sites].
	Host string

	app caller.Key
}

// Policies returns Jira Cloud's table of limits.
func Policies(o Options) []throttle.Policy {
	o.Quota = cmp.Or(o.Quota, Tier1)
	o.Host = cmp.Or(o.Host, Sites)
	o.app = caller.ID(o.App, o.Caller)
	if o.Endpoint == nil {
		o.Endpoint = endpoint
	}
	if o.Points == nil {
		o.Points = points
	}

	return tablerow.Table([]throttle.Policy{
		o.quota(),
		o.burst(http.MethodGet, throttle.PerSecond(100)),
		o.burst(http.MethodPost, throttle.PerSecond(100)),
		o.burst(http.MethodPut, throttle.PerSecond(50)),
		o.burst(http.MethodDelete, throttle.PerSecond(50)),
		o.burst(http.MethodPatch, throttle.Unlimited()),
		o.issue("jira-issue-2s", throttle.SlidingWindow(20, 2*time.Second)),
		o.issue("jira-issue-30s", throttle.SlidingWindow(100, 30*time.Second)),
	})
}

var tenant = throttle.PathValue("tenant")

// match is the pattern of all URLs of the API.
func (o *Options) match() string { return o.Host + "/rest/" }

// quota returns the row of the points of an hour: of all tenants of the app together, or with PerTenant of each.
func (o *Options) quota() throttle.Policy {
	p := throttle.Policy{
		Name: "jira-quota", Match: o.match(), Key: o.app, Cost: o.cost,
		Limit: throttle.FixedWindow(o.Quota, time.Hour),
		Answer: feedback.All(
			tablerow.IfCharged(o.cost, refused(nextHour, "jira-quota-global-based", "jira-quota-tenant-based")),
			feedback.RateLimit{Prefix: "Beta-"}.Left,
			settle,
		),
	}

	if o.PerTenant {
		p.Key = throttle.Join(o.app, tenant)
	}

	return p
}

// cost is the estimate, and never more than there is at all.
func (o *Options) cost(r *http.Request) int { return min(o.Points(r), o.Quota) }

// burst returns the row of the requests of a method to one endpoint.
func (o *Options) burst(method string, limit throttle.Limit) throttle.Policy {
	return throttle.Policy{
		Name: "jira-burst-" + method, Match: method + " " + o.match(), Key: throttle.Join(o.app, tenant, o.Endpoint),
		Limit:  limit,
		Answer: o.burstRefused(),
	}
}

// issue returns a row of the writes to one issue.
func (o *Options) issue(name string, limit throttle.Limit) throttle.Policy {
	return throttle.Policy{
		Name: name, Match: o.match(), Key: throttle.Join(tenant, issue), Cost: writes,
		Limit:  limit,
		Answer: tablerow.IfCharged(writes, refused(soon, "jira-per-issue-on-write")),
	}
}

// endpoint is the default of [Options.Endpoint]: "/rest/api/3/issue/ABC-1" is
// "/rest/api/*/issue/*".
func endpoint(r *http.Request) string {
	_, path, _ := strings.Cut(throttle.RawPath(r), "/rest/")
	segments := strings.Split(path, "/")
	for i, s := range segments {
		// A segment with a digit is an id.
		if hasDigit(s) {
			segments[i] = "*"
		}
	}
	return strings.Join(segments, "/")
}

// issue is the id or the key of the issue that a path names, or "" for a path without one, such as
// "/rest/api/3/issue/bulk".
func issue(r *http.Request) string {
	_, path, _ := strings.Cut(throttle.RawPath(r), "/rest/api/")
	_, path, _ = strings.Cut(path, "/") // without the version
	rest, ok := strings.CutPrefix(path, "issue/")
	id, _, _ := strings.Cut(rest, "/")

	// Words such as bulk are no ids.
	if !ok || !hasDigit(id) {
		return ""
	}
	return id
}

func hasDigit(s string) bool { return strings.ContainsAny(s, "0123456789") }

// writes is a [throttle.Policy.Cost]: only writes to an issue count.
func writes(r *http.Request) int {
	if issue(r) == "" || reads(r) {
		return 0
	}
	return 1
}

// reads reports whether a request changes nothing.
func reads(r *http.Request) bool {
	method := throttle.Method(r)
	return method == http.MethodGet || method == http.MethodHead
}

// refused returns a reader that asks p about the 429s that give one of the reasons, and ignores all other answers.
func refused(p feedback.Reader, reasons ...string) feedback.Reader {
	return func(resp *http.Response) throttle.Answer {
		if resp.StatusCode != http.StatusTooManyRequests || !slices.Contains(reasons, reason(resp)) {
			return throttle.Answer{}
		}
		return p(resp)
	}
}

// reason returns the limit that a refusal names, or "".
func reason(resp *http.Response) string { return resp.Header.Get("RateLimit-Reason") }

var (
	// soon is for how long a limit by the second closes its budget.
	soon = feedback.First(tablerow.Until(feedback.Headers{Reset: "X-RateLimit-Reset"}), feedback.RetryAfter(time.Second))

	// nextHour is for how long a quota closes its budget.
	nextHour = feedback.Headers{Reset: "X-RateLimit-Reset", Per: time.Hour, Clock: true}.Answer
)

// burstRefused returns a reader that closes the row after a 429 that closes no other row, and after an outage.
func (o *Options) burstRefused() feedback.Reader {
	return feedback.First(
		feedback.When{Status: []int{http.StatusTooManyRequests}}.Then(func(resp *http.Response) throttle.Answer {
			// A refusal that gives its reason closes the row of that reason.
			if o.closesAnother(resp) {
				return throttle.Answer{}
			}
			return soon(resp)
		}),
		tablerow.Outage(),
	)
}

// closesAnother reports whether a refusal gives a reason that is about a different budget of the
// request.
func (o *Options) closesAnother(resp *http.Response) bool {
	if resp.Request == nil {
		return false
	}
	switch reason(resp) {
	case "jira-quota-global-based", "jira-quota-tenant-based":
		return o.cost(resp.Request) > 0
	case "jira-per-issue-on-write":
		return writes(resp.Request) > 0
	}
	return false
}
