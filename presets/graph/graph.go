// Package graph is the table of limits of Microsoft Graph: mail, calendars and contacts, and what
// other services refuse.
//
//	client := &http.Client{Transport: throttle.Must(throttle.New(throttle.Config{
//		Store:    redisstore.New(rdb, redisstore.Options{}),
//		Policies: graph.Policies(graph.Options{}),
//	}))}
//
// # Rows
//
//	row                        limit         one budget for each
//	graph-app                  130,000/10s   app, over all tenants
//	graph-mailbox              10,000/10m    mailbox and app
//	graph-mailbox-concurrency  4 in flight   mailbox and app
//	graph-mailbox-upload       150 MB/5m     mailbox and app
//	graph-service              not known     service, tenant and app
//
// Requests for mail, calendars, contacts, people and photos belong to a mailbox, which the path
// names: /users/{id}, /groups/{id}, or /me. A mailbox that is called by an id and by an address
// has two budgets here. /me is told by its Authorization, which changes when a token is renewed.
//
// All other requests belong to a service: the first segment of the path behind the version or,
// under /me, /users and /groups, the segment behind the id (inferred). graph-service holds nothing
// until an answer closes it.
//
// # Refusals
//
// A 429 lasts for its Retry-After, or 10 seconds without one (inferred).
//
//	of a mailbox, that names MailboxConcurrency    graph-mailbox-concurrency
//	of a mailbox, any other                        graph-mailbox
//	any other                                      graph-service
//	503, ten in a row                              graph-service, or graph-mailbox
//
// Refused requests count, says Microsoft.
//
// # Not covered
//
// The numbers of other services: Teams has some for each method, directories count units by a
// tenant's size, files count units too. Requests within a $batch: one answers 200 whatever happens
// inside.
//
// # Sources
//
// Facts as of 2026-11.
//
//   - official: the numbers, which requests belong to a mailbox:
//     https://learn.microsoft.com/en-us/graph/throttling-limits
//   - official: 429, Retry-After, refused requests count: https://learn.microsoft.com/en-us/graph/throttling
//   - observed: MailboxConcurrency: https://github.com/magodo/terraform-provider-outlook/issues/21;
//     a different message, with Retry-After: https://learn.microsoft.com/en-us/answers/questions/1138873/
//   - from common use: the host and the paths.
//   - inferred: services by path; 10 seconds; that a request without a length uploads nothing; that a 503 may have a
//     Retry-After (RFC 9110).
package graph

import (
	"cmp"
	"net/http"
	"regexp"
	"strings"
	"time"

	"github.com/fleetthrottle/throttle"
	"github.com/fleetthrottle/throttle/feedback"
	"github.com/fleetthrottle/throttle/presets/internal/caller"
	"github.com/fleetthrottle/throttle/presets/internal/tablerow"
)

// Options are whose requests are counted together. The zero value is one app that calls one
// tenant.
type Options struct {
	// App is the id of the app's registration. Not a token: all tokens of an app share
	// its limits. Defaults to "": all programs that share the store are one app.
	App string

	// Tenant is the id of the tenant that is called. Defaults to "": there is only one.
	Tenant string

	// Caller says whose a request is, for a program that calls for several apps or
	// tenants. It replaces App and Tenant. Defaults to nil.
	Caller func(*http.Request) (app, tenant string)

	// Host is a pattern of the API's hosts, in place of the default for a national
	// cloud, a fake or a proxy. Defaults to "graph.microsoft.com".
	Host string
}

// uploads is how many bytes may be sent to a mailbox in 5 minutes.
const uploads = 150_000_000

// Policies returns the table. Its rows are plain values: change them, leave some
// out, append your own.
func Policies(o Options) []throttle.Policy {
	match := cmp.Or(o.Host, "graph.microsoft.com") + "/"
	app, tenant := caller.IDs(o.App, o.Tenant, o.Caller)
	box := throttle.Join(app, tenant, mailbox)

	return tablerow.Table([]throttle.Policy{
		{
			Name: "graph-app", Match: match, Key: app,
			Limit: throttle.SlidingWindow(130_000, 10*time.Second), Answer: feedback.LeaveOpen,
		},
		{
			Name: "graph-mailbox", Match: match, Key: box, Cost: ofMailbox,
			Limit: throttle.SlidingWindow(10_000, 10*time.Minute), Answer: tablerow.IfCharged(ofMailbox, mailboxRefused()),
		},
		{
			Name: "graph-mailbox-concurrency", Match: match, Key: box, Cost: ofMailbox,
			Limit: throttle.Concurrency(4), Answer: tablerow.IfCharged(ofMailbox, concurrencyRefused),
		},
		{
			Name: "graph-mailbox-upload", Match: match, Key: box, Cost: uploaded,
			Limit: throttle.SlidingWindow(uploads, 5*time.Minute), Answer: feedback.LeaveOpen,
		},
		{
			Name: "graph-service", Match: match, Key: throttle.Join(app, tenant, service), Cost: ofService,
			Limit: throttle.Unlimited(), Answer: tablerow.IfCharged(ofService, serviceRefused()),
		},
	})
}

// outlook are the services of a mailbox, by the segment of the path that leads to them.
var outlook = map[string]bool{
	"messages": true, "mailfolders": true, "sendmail": true, "inferenceclassification": true, "mailboxsettings": true, "getmailtips": true,
	"calendar": true, "calendars": true, "calendargroups": true, "calendarview": true, "events": true, "findmeetingtimes": true,
	"contacts": true, "contactfolders": true, "people": true, "photo": true, "photos": true, "outlook": true,
	"conversations": true, "threads": true,
}

// parts returns the owner of a mailbox and the name of the service, as a path names them: "users/x" and "messages" for
// "/v1.0/users/x/messages", "me" and "events" for "/v1.0/me/events". The owner is "" for a path outside of
// mailboxes. A path that ends at its owner has "users", "groups" or "me" as service.
func parts(r *http.Request) (owner, name string) {
	segments := strings.Split(strings.ToLower(throttle.RawPath(r)), "/")[1:] // version, "users", id, …
	at := func(i int) string {
		if i < len(segments) {
			return segments[i]
		}
		return ""
	}

	switch first := at(1); first {
	case "me":
		return first, cmp.Or(at(2), first)
	case "users", "groups":
		return first + "/" + at(2), cmp.Or(at(3), first)
	default:
		return "", first
	}
}

// mailbox is a [throttle.Policy.Key].
func mailbox(r *http.Request) string {
	owner, _ := parts(r)
	if owner == "me" {
		return throttle.Header("Authorization")(r)
	}
	return owner
}

// service is a [throttle.Policy.Key].
func service(r *http.Request) string {
	_, name := parts(r)
	return name
}

// ofMailbox is a [throttle.Policy.Cost]: 1 for a request that belongs to a mailbox, and 0 for all others.
func ofMailbox(r *http.Request) int {
	if owner, name := parts(r); owner != "" && outlook[name] {
		return 1
	}
	return 0
}

// ofService is a [throttle.Policy.Cost]: 1 for a request that belongs to no mailbox.
func ofService(r *http.Request) int { return 1 - ofMailbox(r) }

// uploaded is how many bytes a request sends to a mailbox, at most uploads: Microsoft, not this table, should refuse
// requests that are too large. It is 0 for a request of unknown length.
func uploaded(r *http.Request) int {
	switch r.Method {
	case http.MethodPatch, http.MethodPost, http.MethodPut:
		return ofMailbox(r) * int(min(max(0, r.ContentLength), uploads))
	}
	return 0
}

// tooMany recognises the refusals.
var tooMany = feedback.When{Status: []int{http.StatusTooManyRequests}}

// some is how long a refusal without a length lasts.
const some = 10 * time.Second

// inFlight returns a reader of the refusals for too many requests in flight. They close the row for the duration that end
// reads, or else for lasts.
func inFlight(lasts time.Duration, end feedback.Reader) feedback.Reader {
	return tooMany.Then(feedback.Codes{
		Fields: []string{"error.message"}, Pattern: regexp.MustCompile("MailboxConcurrency"),
		Lasts: map[string]time.Duration{"MailboxConcurrency": lasts}, End: end,
	}.Answer)
}

var concurrencyRefused = inFlight(some, feedback.RetryAfter(0))

// other closes the row after any refusal.
var other = tooMany.Then(feedback.RetryAfter(some))

// mailboxRefused returns a reader that closes the row after a refusal that is not about requests in flight, and after an
// outage.
func mailboxRefused() feedback.Reader {
	return feedback.First(inFlight(0, nil), other, tablerow.Outage())
}

// serviceRefused returns a reader that closes the row after any refusal, and after an outage.
func serviceRefused() feedback.Reader { return feedback.First(other, tablerow.Outage()) }
