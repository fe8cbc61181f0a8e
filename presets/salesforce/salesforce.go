// Package salesforce is the table of limits of Salesforce's platform APIs: what all
// programs together may call of an organization in 24 hours, and what closes it.
//
//	client := &http.Client{Transport: throttle.Must(throttle.New(throttle.Config{
//		Store:    redisstore.New(rdb, redisstore.Options{}),
//		Policies: salesforce.Policies(salesforce.Options{PerDay: 145_000}),
//	}))}
//
// # Rows
//
//	row             limit           one budget for each
//	salesforce-day  Options.PerDay  organization
//	salesforce-org  none            organization
//
// An organization's calls in 24 hours depend on its edition, its licences and its purchases. Setup
// shows the number, and each answer states it: [Options.PerDay]. Without PerDay the row holds
// nothing until an answer states the remaining calls. The versions ("/services/data/") do not
// count.
//
// An organization is a host, such as "acme.my.salesforce.com", or what [Options.Organization]
// says.
//
// # Refusals
//
// Salesforce refuses with a 403 whose errorCode is REQUEST_LIMIT_EXCEEDED, and says in
// message which limit it was:
//
//	TotalRequests                    salesforce-day, 5m
//	ConcurrentRequests, any other    salesforce-org, 5s
//	429 with Retry-After             salesforce-org
//	status 503, ten in a row         salesforce-org, Retry-After
//
// A Retry-After is obeyed, although none is documented. The 24 hours slide, so there may be room at
// any time.
//
// The second limit concerns requests that take 20 seconds or longer: 25 at once, 5 in Developer
// Edition and trials. Requests do not tell beforehand how long they will take, so the table counts
// none. If you know the long requests, append a row of your own with [throttle.Concurrency] and a
// Cost.
//
// The field Sforce-Limit-Info lowers salesforce-day, because others call with the same
// organization: its users, and other programs.
//
// # Not covered
//
// Refusals in SOAP and XML. The limits of batches of the Bulk API, and further limits that are
// counted separately. api-bursts in Sforce-Limit-Info, which Salesforce does not explain. Refusals
// inside a composite answer with status 200. Marketing Cloud, Commerce Cloud and other products
// with APIs of their own.
//
// # Sources
//
// Facts as of 2026-11.
//
//   - official: requests of 20 seconds, 25 and 5, no limit for shorter requests, which APIs count:
//     https://developer.salesforce.com/docs/platform/salesforce-app-limits-cheatsheet/guide/salesforce-app-limits-platform-api.html
//   - official: all calls of an organization in the preceding 24 hours:
//     https://help.salesforce.com/s/articleView?id=xcloud.setup_system_overview_api.htm&type=5
//   - official: Sforce-Limit-Info, the versions:
//     https://developer.salesforce.com/docs/atlas.en-us.api_rest.meta/api_rest/headers_api_usage.htm
//   - official: 403 and REQUEST_LIMIT_EXCEEDED:
//     https://developer.salesforce.com/docs/atlas.en-us.api_rest.meta/api_rest/errorcodes.htm
//   - observed: the body with TotalRequests: https://gist.github.com/rickysaltzer/4542457, the
//     text with ConcurrentRequests: https://gist.github.com/ndabAP/2ae90f3b871403d822ec2de0bcffb5b0
//   - from common use: hosts and paths.
//   - inferred: 5 minutes and 5 seconds; that a text that is new closes salesforce-org; Retry-After (RFC 9110).
package salesforce

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

// Options are what differs between organizations. The zero value is organizations with
// a host each, whose numbers are not told.
type Options struct {
	// PerDay is how many calls the organization may make in 24 hours. Organizations
	// that differ need a transport each. Defaults to 0: not told.
	PerDay int

	// Organization is the organization's id. Defaults to "": organizations are told apart
	// by their hosts.
	Organization string

	// Caller says for which organization a request is, for a program that calls for
	// several. It replaces Organization, and "" means the same. Defaults to nil:
	// Organization.
	Caller func(*http.Request) (organization string)

	// Host is a pattern of the hosts that are meant: for a fake or a proxy.
	// Defaults to "*.my.salesforce.com".
	Host string
}

// notTold is the limit of a row until an answer states the remaining calls: only a number can be
// lowered.
const notTold = 1_000_000_000

// Policies returns the table. Its rows are plain values: change them, leave some
// out, append your own.
func Policies(o Options) []throttle.Policy {
	match := cmp.Or(o.Host, "*.my.salesforce.com") + "/services/"
	organization := caller.Or(caller.ID(o.Organization, o.Caller), throttle.Host)
	return tablerow.Table([]throttle.Policy{
		{
			Name: "salesforce-day", Match: match, Key: organization, Cost: counted,
			Limit:  throttle.SlidingWindow(cmp.Or(o.PerDay, notTold), 24*time.Hour),
			Answer: feedback.All(dayRefused, left),
		},
		{
			Name: "salesforce-org", Match: match, Key: organization,
			Limit: throttle.Unlimited(), Answer: orgRefused(),
		},
	})
}

// counted is the cost of a request: the list of versions is free.
func counted(r *http.Request) int {
	if throttle.RawPath(r) == "/services/data" {
		return 0
	}
	return 1
}

// limited returns a reader that asks p about the 403s that are about a limit, and ignores all others.
func limited(p feedback.Reader) feedback.Reader {
	known := feedback.Codes{
		Fields: []string{"*.errorCode"},
		Lasts:  map[string]time.Duration{"REQUEST_LIMIT_EXCEEDED": time.Second},
	}
	return feedback.When{Status: []int{http.StatusForbidden}}.Then(func(resp *http.Response) throttle.Answer {
		// Most 403s are about rights, and not about a limit.
		if known.Answer(resp).Close <= 0 {
			return throttle.Answer{}
		}
		return p(resp)
	})
}

// total returns a reader that closes the row after a refusal about the 24 hours, for its Retry-After or else for lasts. A
// lasts of 0 closes nothing.
func total(lasts time.Duration) feedback.Reader {
	return feedback.Codes{
		Fields: []string{"*.message"},
		Lasts:  map[string]time.Duration{"*TotalRequests*": lasts},
		End:    feedback.RetryAfter(0),
	}.Answer
}

// dayRefused closes the row after a refusal about the 24 hours.
var dayRefused = limited(total(5 * time.Minute))

// orgRefused returns a reader that closes the row after a refusal that is not about the 24 hours, and after an outage.
func orgRefused() feedback.Reader {
	return feedback.First(
		limited(feedback.First(total(0), feedback.RetryAfter(5*time.Second))),
		feedback.When{Status: []int{http.StatusTooManyRequests}}.Then(feedback.RetryAfter(0)),
		tablerow.Outage(),
	)
}

// left reads the remaining calls of the 24 hours: 89,982 of "api-usage=10018/100000; api-bursts=1/750".
func left(resp *http.Response) throttle.Answer {
	for part := range strings.SplitSeq(resp.Header.Get("Sforce-Limit-Info"), ";") {
		if usage, ok := strings.CutPrefix(strings.TrimSpace(part), "api-usage="); ok {
			// A reader of fields cannot read a part of a field, so give it an answer in which the part is a field. The Age
			// tells the reader how old the answer is.
			only := *resp
			only.Header = http.Header{"Usage": {usage}, "Age": resp.Header["Age"]}
			return feedback.Headers{Used: "Usage", Per: 24 * time.Hour}.Left(&only)
		}
	}
	return throttle.Answer{}
}
