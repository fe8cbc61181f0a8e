// Package zendesk is the table of limits of Zendesk's APIs for support and for help centers.
//
//	client := &http.Client{Transport: throttle.Must(throttle.New(throttle.Config{
//		Store:    redisstore.New(rdb, redisstore.Options{}),
//		Policies: zendesk.Policies(zendesk.Options{PerMinute: zendesk.Professional}),
//	}))}
//
// # Rows
//
//	zendesk-account       the plan's limit a minute: 200 to 2500
//	zendesk-help-center   the same again, for /api/v2/help_center/
//	zendesk-ticket        30 updates of a ticket in 10 minutes, by a user
//	zendesk-updates       100 updates of tickets a minute; 300 with the add-on
//	zendesk-list          50 a minute of lists of tickets behind page 500
//	zendesk-incremental   10 incremental exports a minute; 30 with the add-on
//	zendesk-export        100 exports of searches a minute
//	zendesk-endpoint      the limits of other endpoints: holds nothing until it is closed
//
// Each is for an account, which the subdomain names.
//
// # Refusals
//
// A 429 lasts for its Retry-After, or a minute without one (inferred). X-Rate-Limit-Remaining tells
// the exhausted limit.
//
//	something is left     zendesk-endpoint, of this path
//	nothing, or no word   zendesk-account, or zendesk-help-center
//	503, ten in a row     zendesk-account, or zendesk-help-center
//
// The rows of single endpoints are not closed, because zendesk-endpoint is, and it knows the
// ticket. X-Rate-Limit-Remaining lowers zendesk-account and zendesk-help-center if other programs
// call for the account.
//
// # Not covered
//
// The numbers of other endpoints: views, users, organizations, side conversations, attachments.
// How many jobs may run, and the account's bound of 100,000 a minute on all together. Other APIs
// of Zendesk, as those for chat and sales.
//
// # Sources
//
// Facts as of 2026-11.
//
//   - official: the numbers, 429, Retry-After, the fields:
//     https://developer.zendesk.com/api-reference/introduction/rate-limits/
//   - observed: a refusal: https://support.zendesk.com/hc/en-us/community/posts/4600766234138
//   - from common use: the hosts and the paths, ".json" behind them.
//   - inferred: which limit a refusal is about; a minute; that a 503 may have a Retry-After (RFC 9110).
package zendesk

import (
	"cmp"
	"net/http"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/fleetthrottle/throttle"
	"github.com/fleetthrottle/throttle/feedback"
	"github.com/fleetthrottle/throttle/presets/internal/caller"
	"github.com/fleetthrottle/throttle/presets/internal/tablerow"
)

// What the plans allow in a minute.
const (
	Team           = 200 // Suite Team, and Support Team
	Growth         = 400
	Professional   = 400
	Enterprise     = 700
	EnterprisePlus = 2500
)

// Options are what an account has bought, and whose requests are counted together. The zero value
// is accounts of the smallest plan, and users that are told by their tokens.
type Options struct {
	// PerMinute is the plan's limit. Defaults to [Team], and to 2500 with HighVolume.
	PerMinute int

	// HighVolume says that the account has the High Volume API add-on. Defaults to
	// false.
	HighVolume bool

	// User is the id of the user who updates tickets. Defaults to "": users are told
	// apart by their Authorization.
	User string

	// Caller says for which user a request is, for a program that calls for several.
	// It replaces User, and "" means the same. Defaults to nil.
	Caller func(*http.Request) (user string)

	// Host is a pattern of the API's hosts, in place of the default for a fake, a proxy
	// or a host of one's own. Its wildcard {subdomain} tells accounts apart; without one
	// all are one. Defaults to "{subdomain}.zendesk.com".
	Host string
}

// Policies returns the table. Its rows are plain values: change them, leave some
// out, append your own.
func Policies(o Options) []throttle.Policy {
	match := cmp.Or(o.Host, "{subdomain}.zendesk.com") + "/api/"
	account := throttle.PathValue("subdomain")
	user := caller.Or(caller.ID(o.User, o.Caller), throttle.Header("Authorization"))
	perMinute, updates, exports := Team, 100, 10
	if o.HighVolume {
		perMinute, updates, exports = 2500, 300, 30
	}

	perMinute = cmp.Or(o.PerMinute, perMinute) // the program's own number outranks the plan

	// plan returns a row with the plan's limit, which closes for a refusal by that limit.
	plan := func(name string, cost func(*http.Request) int) throttle.Policy {
		return throttle.Policy{
			Name: name, Match: match, Key: account, Cost: cost, Limit: throttle.PerMinute(perMinute),
			Answer: tablerow.IfCharged(cost, feedback.All(planRefused(), left.Left)),
		}
	}

	// leftOpen returns a row that closes for no refusal.
	leftOpen := func(name string, cost func(*http.Request) int, limit throttle.Limit) throttle.Policy {
		return throttle.Policy{Name: name, Match: match, Key: account, Cost: cost, Limit: limit, Answer: feedback.LeaveOpen}
	}

	// Updates of a ticket are counted for each user and ticket.
	ticket := leftOpen("zendesk-ticket", endpoint(http.MethodPut, `tickets/\d+`), throttle.SlidingWindow(30, 10*time.Minute))
	ticket.Key = throttle.Join(account, user, path)

	return tablerow.Table([]throttle.Policy{
		plan("zendesk-account", func(r *http.Request) int { return 1 - ofHelpCenter(r) }),
		plan("zendesk-help-center", ofHelpCenter),
		ticket,
		leftOpen("zendesk-updates", endpoint(http.MethodPut, `tickets/\d+`), throttle.PerMinute(updates)),
		leftOpen("zendesk-list", deepList, throttle.PerMinute(50)),
		leftOpen("zendesk-incremental", endpoint(http.MethodGet, `incremental/.+`), throttle.PerMinute(exports)),
		leftOpen("zendesk-export", endpoint(http.MethodGet, `search/export`), throttle.PerMinute(100)),
		{
			Name: "zendesk-endpoint", Match: match, Key: throttle.Join(account, throttle.Method, path),
			Limit: throttle.Unlimited(), Answer: endpointRefused,
		},
	})
}

// path is a [throttle.Policy.Key]: the path, which may end in ".json".
func path(r *http.Request) string { return strings.TrimSuffix(throttle.RawPath(r), ".json") }

// endpoint returns the cost of requests to an endpoint: 1, and 0 for all others.
func endpoint(method, pattern string) func(*http.Request) int {
	whole := regexp.MustCompile(`^/api/v2/` + pattern + `$`)
	return func(r *http.Request) int {
		if throttle.Method(r) == method && whole.MatchString(path(r)) {
			return 1
		}
		return 0
	}
}

// ofHelpCenter is a [throttle.Policy.Cost]: 1 for a request to the help center, and 0 for all others.
func ofHelpCenter(r *http.Request) int {
	if strings.HasPrefix(throttle.RawPath(r), "/api/v2/help_center/") {
		return 1
	}
	return 0
}

var list = endpoint(http.MethodGet, "tickets")

// deepList is 1 for a list of tickets behind page 500.
func deepList(r *http.Request) int {
	if page, err := strconv.Atoi(r.URL.Query().Get("page")); err != nil || page <= 500 {
		return 0
	}
	return list(r)
}

// left is the remaining calls of the plan's minute.
var left = feedback.Headers{Remaining: "X-Rate-Limit-Remaining", Reset: "RateLimit-Reset", Per: time.Minute}

var tooMany = feedback.When{Status: []int{http.StatusTooManyRequests}}

// someIsLeft reports whether a refusal says that calls of the plan's minute are left: then it is about an endpoint.
func someIsLeft(resp *http.Response) bool {
	n, err := strconv.Atoi(resp.Header.Get(left.Remaining))
	return err == nil && n > 0
}

// planRefused returns a reader that closes the row after a refusal about the plan's minute, and after an outage.
func planRefused() feedback.Reader {
	return feedback.First(tooMany.Then(func(resp *http.Response) throttle.Answer {
		if someIsLeft(resp) {
			return throttle.Answer{}
		}
		return feedback.RetryAfter(time.Minute)(resp)
	}), tablerow.Outage())
}

// endpointRefused closes the row after a refusal about an endpoint.
var endpointRefused = tooMany.Then(func(resp *http.Response) throttle.Answer {
	if !someIsLeft(resp) {
		return throttle.Answer{}
	}
	return feedback.RetryAfter(time.Minute)(resp)
})
