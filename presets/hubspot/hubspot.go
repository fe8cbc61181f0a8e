// Package hubspot is the table of limits of HubSpot's API: what an app may call in ten
// seconds, and what all apps of an account may search in a second and call in a day.
//
//	client := &http.Client{Transport: throttle.Must(throttle.New(throttle.Config{
//		Store:    redisstore.New(rdb, redisstore.Options{}),
//		Policies: hubspot.Policies(hubspot.Options{Plan: hubspot.Professional}),
//	}))}
//
// # Rows
//
//	row             limit                one budget for each  holds
//	hubspot-app     100, 190 or 250/10s  app and account      all but searches
//	hubspot-search  5/s                  account              POST /crm/…/objects/…/search
//	hubspot-day     250,000 or more      account              all
//
// An account is a HubSpot account, or portal: a customer who has installed the app. The numbers of
// its plan are in [Plan], and [Options.Increases] adds bought increases. An app of the marketplace
// ([Marketplace]) may call 110 times in ten seconds for each account, and has no day.
//
// A day ends at midnight in the account's time zone: set [Options.Zone]. Otherwise a day is any 24
// hours, which is right in every zone, except on the one day of a year that has 25.
//
// # Refusals
//
// HubSpot refuses with a 429, and names the limit in policyName or in message:
//
//	DAILY                            hubspot-day, until midnight in Zone; 1h without a Zone
//	TEN_SECONDLY_ROLLING             hubspot-app, 10s; of a search hubspot-search, 10s
//	SECONDLY, of a search            hubspot-search, 1s
//	SECONDLY, of other requests      hubspot-app, 1s
//	any other name, or no name       the same as TEN_SECONDLY_ROLLING; of a search 1s
//	status 477: the account moves    hubspot-day, Retry-After
//	status 503, ten in a row         hubspot-app, Retry-After
//
// Retry-After counts where there is one. HubSpot's page promises none for a 429.
//
// The X-HubSpot-RateLimit fields lower hubspot-app and hubspot-day if others call for the same app
// or account. Answers to searches have none of these fields, and answers to apps with OAuth lack
// the day's fields.
//
// A 423 closes nothing: other requests hold the records, for two seconds.
//
// # Not covered
//
// Forms, tracking, workflows and other hosts with limits of their own. Which endpoints do
// not count for the day. HubSpot's rule that at most 5 % of a day's requests may fail.
//
// # Sources
//
// Facts as of 2026-11.
//
//   - official, as public code quotes it in 2026-09: numbers by plan, whose they are, 110 for the marketplace,
//     midnight, the fields, 429, its body and policyName:
//     https://developers.hubspot.com/docs/developer-tooling/platform/usage-guidelines
//   - official: 190 and 250 in ten seconds, a million a day for each increase:
//     https://developers.hubspot.com/changelog/increasing-our-api-limits. It has 650,000 a day for Professional,
//     where the guidelines have 625,000: the smaller number counts.
//   - official, as public code quotes it in 2026-09: five searches a second for each account, without fields:
//     https://developers.hubspot.com/docs/api-reference/latest/crm/search-the-crm
//   - official: the path of a search: https://developers.hubspot.com/docs/api-reference/2026-03/crm/search-the-crm
//   - official, as public code quotes it in 2026-09: 423 and 477:
//     https://developers.hubspot.com/docs/api-reference/error-handling
//   - official: no day for apps with OAuth:
//     https://developers.hubspot.com/changelog/rate-limit-headers-will-now-appear-for-oauth-authenticated-calls
//   - observed, in public code: answers to searches say "You have reached your secondly limit."; SECONDLY;
//     HubSpot's own SDK waits ten seconds and one second.
//   - from common use: the host.
//   - inferred: an hour; that a search counts for the day; which row a name that is new closes.
package hubspot

import (
	"cmp"
	"net/http"
	"strings"
	"time"

	"github.com/fleetthrottle/throttle"
	"github.com/fleetthrottle/throttle/feedback"
	"github.com/fleetthrottle/throttle/presets/internal/caller"
	"github.com/fleetthrottle/throttle/presets/internal/tablerow"
)

// A Plan is what an account's subscription allows.
type Plan struct {
	PerTenSeconds int // each app
	PerDay        int // all apps of the account; 0 means no such limit
}

// The plans. The first three are for privately distributed apps. Marketplace is for apps of
// HubSpot's marketplace, under any plan of the accounts.
var (
	Free         = Plan{PerTenSeconds: 100, PerDay: 250_000} // and Starter
	Professional = Plan{PerTenSeconds: 190, PerDay: 625_000}
	Enterprise   = Plan{PerTenSeconds: 190, PerDay: 1_000_000}
	Marketplace  = Plan{PerTenSeconds: 110}
)

// Options are what differs between apps and accounts. The zero value is one app of one
// free account.
type Options struct {
	// Plan of the accounts. Accounts of different plans need a transport for each
	// plan. Defaults to [Free].
	Plan Plan

	// Increases is how many API limit increases the account has bought: HubSpot
	// sells two at most. They do not apply to [Marketplace]. Defaults to 0.
	Increases int

	// Zone is the account's time zone, in which its days end. Defaults to nil: not
	// told, so a day is any 24 hours.
	Zone *time.Location

	// App is any name for the app. Not a token, which changes. Defaults to "": all
	// programs that share the store are one app.
	App string

	// Account is the id of the HubSpot account that is called. Defaults to "": all
	// programs that share the store call one.
	Account string

	// Caller says whose a request is, for a program that calls for several apps or
	// accounts. It replaces App and Account. Defaults to nil: App and Account.
	Caller func(*http.Request) (app, account string)

	// Host is a pattern of the hosts that are meant: for a fake or a proxy.
	// Defaults to "api.hubapi.com".
	Host string
}

// Policies returns the table. Its rows are plain values: change them, leave some
// out, append your own.
func Policies(o Options) []throttle.Policy {
	match := cmp.Or(o.Host, "api.hubapi.com") + "/"
	app, account := caller.IDs(o.App, o.Account, o.Caller)
	plan := o.plan()
	day := throttle.Policy{Name: "hubspot-day", Match: match, Key: account, Limit: throttle.Unlimited(), Answer: dayRefused(o.Zone)}

	// Without a number the day holds requests only after a refusal.
	if plan.PerDay > 0 {
		day.Limit, day.Answer = plan.day(o.Zone), feedback.All(day.Answer, left("Daily-Remaining", 24*time.Hour))
	}

	return tablerow.Table([]throttle.Policy{
		{
			Name: "hubspot-app", Match: match, Key: throttle.Join(app, account), Cost: other,
			Limit:  throttle.SlidingWindow(plan.PerTenSeconds, window),
			Answer: tablerow.IfCharged(other, feedback.All(appRefused(), left("Remaining", window))),
		},
		{
			Name: "hubspot-search", Match: "POST " + match + "crm/", Key: account, Cost: search,
			Limit: throttle.PerSecond(5), Answer: tablerow.IfCharged(search, searchRefused),
		},
		day,
	})
}

// plan returns the account's plan with its increases.
func (o Options) plan() Plan {
	p := cmp.Or(o.Plan, Free)

	// Increases raise the limits of an account, and not the limits of marketplace apps.
	if o.Increases > 0 && p != Marketplace {
		p.PerTenSeconds = 250
		p.PerDay += o.Increases * 1_000_000
	}
	return p
}

// day is the limit of a day: of a calendar day in zone, or of any 24 hours if zone is nil.
func (p Plan) day(zone *time.Location) throttle.Limit {
	if zone == nil {
		return throttle.SlidingWindow(p.PerDay, 24*time.Hour)
	}
	return throttle.CalendarWindow(p.PerDay, throttle.Day, zone)
}

// search is the cost of a request that searches: "/crm/v3/objects/contacts/search",
// "/crm/objects/2026-03/contacts/search".
func search(r *http.Request) int {
	path := throttle.RawPath(r)
	if throttle.Method(r) == http.MethodPost && strings.HasPrefix(path, "/crm/") &&
		strings.Contains(path, "/objects/") && strings.HasSuffix(path, "/search") {
		return 1
	}
	return 0
}

// other is the cost of a request under an app's ten seconds: 1, or 0 for a search, which does not count there.
func other(r *http.Request) int { return 1 - search(r) }

// window is the window in which an app's requests are counted.
const window = 10 * time.Second

// said returns a reader that closes the row after a 429 that names one of some limits, for what end reads or else for the
// limit's time in lasts.
func said(lasts map[string]time.Duration, end feedback.Reader) feedback.Reader {
	return feedback.When{Status: []int{http.StatusTooManyRequests}}.Then(feedback.Codes{
		Fields: []string{"policyName", "message"}, Lasts: lasts, End: end,
	}.Answer)
}

// refused returns a reader that closes the row after a 429 that is not about the day. A 429 without a known reason closes
// it for its Retry-After or, without one, for otherwise.
func refused(otherwise time.Duration) feedback.Reader {
	return feedback.First(
		// The day closes a row of its own.
		said(map[string]time.Duration{
			"DAILY": 0, "*daily limit*": 0,
			"TEN_SECONDLY_ROLLING": window, "*ten_secondly_rolling limit*": window,
			"SECONDLY": time.Second, "*your secondly limit*": time.Second,
		}, feedback.RetryAfter(0)),
		feedback.When{Status: []int{http.StatusTooManyRequests}}.Then(feedback.RetryAfter(otherwise)),
	)
}

var searchRefused = refused(time.Second)

// appRefused returns a reader that closes the row of an app after a refusal of a request that does not search, and after an
// outage.
func appRefused() feedback.Reader {
	return feedback.First(refused(window), tablerow.Outage())
}

// moving is the status of an account that HubSpot is moving.
const moving = 477

// dayRefused returns a reader that closes the row of an account, and so all its apps, after a refusal about the day or a
// move of the account. A refusal about the day that states no time lasts until midnight in zone, or for an hour if zone is
// nil. A move without a Retry-After closes nothing.
func dayRefused(zone *time.Location) feedback.Reader {
	end := feedback.RetryAfter(0)
	if zone != nil {
		end = feedback.First(end, feedback.UntilMidnight(zone))
	}
	return feedback.First(
		said(map[string]time.Duration{"DAILY": time.Hour, "*daily limit*": time.Hour}, end),
		feedback.When{Status: []int{moving}}.Then(feedback.RetryAfter(0)),
	)
}

// left returns a reader of the requests that remain in a window of length per.
func left(of string, per time.Duration) feedback.Reader {
	return feedback.Headers{Remaining: "X-HubSpot-RateLimit-" + of, Per: per}.Left
}
