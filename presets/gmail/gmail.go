// Package gmail is the table of limits of the Gmail API: quota units a minute, of each user and of
// the project.
//
//	client := &http.Client{Transport: throttle.Must(throttle.New(throttle.Config{
//		Store:    redisstore.New(rdb, redisstore.Options{}),
//		Policies: gmail.Policies(gmail.Options{}),
//	}))}
//
// # Rows
//
//	gmail-project   1,200,000 units a minute, of a project
//	gmail-user          6,000 units a minute, of each user in a project
//
// A request costs the units of its method: reading a message is 20, sending one 100. A method that
// is not in Google's table costs 100 (inferred).
//
// A user is who the path names, /users/{user}/. /users/me/ is told by its Authorization, which
// changes when a token is renewed; [Options.User] or [Options.Caller] says better.
//
// # Refusals
//
// A 429, and a 403 with the reason userRateLimitExceeded, rateLimitExceeded or
// dailyLimitExceeded. The message may name the limit.
//
//	'… per minute per user'                  gmail-user, 1m
//	'… per minute'                           gmail-project, 1m
//	'… per day', dailyLimitExceeded          gmail-project, 1h
//	any other: user rate, requests at once   gmail-user, 1s
//	503, ten in a row                        gmail-project, Retry-After
//
// Retry-After counts where there is one, and so does "Retry after 2020-01-21T12:57:51.196Z" in a
// message. Any other 403 is no refusal.
//
// # Not covered
//
// Requests within a batch. How many mails a user may send a day, which the mailbox counts and not
// the API. How many requests of a user may be in flight: not published, but refused.
//
// # Sources
//
// Facts as of 2026-11.
//
//   - official: the numbers, since when, the units:
//     https://developers.google.com/workspace/gmail/api/reference/quota
//   - official: statuses and reasons: https://developers.google.com/workspace/gmail/api/guides/handle-errors
//   - observed: messages: https://github.com/mxngls/gmail-cleaner/issues/5,
//     https://github.com/levz0r/gmail-tester/issues/23,
//     https://github.com/googleapis/google-api-dotnet-client/issues/1982
//   - from common use: the hosts and the paths.
//   - inferred: the lengths where nothing is said; what methods cost that are not in the table; that an answer may
//     have a Retry-After (RFC 9110).
package gmail

import (
	"cmp"
	"net/http"
	"strings"

	"github.com/fleetthrottle/throttle"
	"github.com/fleetthrottle/throttle/feedback"
	"github.com/fleetthrottle/throttle/presets/internal/caller"
	"github.com/fleetthrottle/throttle/presets/internal/google"
	"github.com/fleetthrottle/throttle/presets/internal/tablerow"
)

// What each user may use in a minute.
const (
	PerUser = 6_000

	// PerUserBefore is for projects from before 2026-05-01 that used the API between
	// 2025-11 and 2026-04. Their methods cost other units: see [Options.Units].
	PerUserBefore = 15_000
)

// Options hold a project's limits, and identify its users. The zero value is one project, whose
// users are identified by the path.
type Options struct {
	// PerMinute is how many units a minute the project has. Defaults to 1,200,000.
	PerMinute int

	// PerUser is how many units a minute each user of the project has. Defaults to
	// [PerUser].
	PerUser int

	// Project is the project's id. Defaults to "": all programs that share the store
	// are one project.
	Project string

	// User is the id of the user whose mailbox is called. Defaults to "": users are told
	// by the path, and "me" by the Authorization.
	User string

	// Caller says whose a request is, for a program that calls for several projects or
	// users. It replaces Project and User, and "" means the same. Defaults to nil.
	Caller func(*http.Request) (project, user string)

	// Units returns the cost of a request. Defaults to Google's table.
	Units func(*http.Request) int

	// Host is a pattern of the API's hosts, in place of the default for a fake, a proxy
	// or a server of one's own. Defaults to "gmail.googleapis.com".
	Host string
}

// Policies returns the table. Its rows are plain values: change them, leave some
// out, append your own.
func Policies(o Options) []throttle.Policy {
	o = o.withDefaults()
	match := o.Host + "/"
	project, user := caller.IDs(o.Project, o.User, o.Caller)

	return tablerow.Table([]throttle.Policy{
		{
			Name: "gmail-project", Match: match, Key: project, Cost: atMost(o.PerMinute, o.Units),
			Limit: throttle.PerMinute(o.PerMinute), Answer: feedback.First(google.ProjectRefused, tablerow.Outage()),
		},
		{
			Name: "gmail-user", Match: match, Key: throttle.Join(project, caller.Or(user, ofPath)), Cost: atMost(o.PerUser, o.Units),
			Limit: throttle.PerMinute(o.PerUser), Answer: google.UserRefused,
		},
	})
}

// withDefaults returns o with the defaults of its zero fields.
func (o Options) withDefaults() Options {
	o.PerMinute = cmp.Or(o.PerMinute, 1_200_000)
	o.PerUser = cmp.Or(o.PerUser, PerUser)
	o.Host = cmp.Or(o.Host, "gmail.googleapis.com")
	if o.Units == nil {
		o.Units = units
	}
	return o
}

// atMost returns a cost function: the cost by cost, but at most n, because a cost above the limit would never fit.
func atMost(n int, cost func(*http.Request) int) func(*http.Request) int {
	return func(r *http.Request) int { return min(cost(r), n) }
}

// ofPath is a [throttle.Policy.Key]: the user that the path names.
func ofPath(r *http.Request) string {
	if user := called(r)[0]; user != "" && user != "me" {
		return strings.ToLower(user)
	}
	return throttle.Header("Authorization")(r)
}

// dear is the cost of a method outside the table: as much as the dearest.
const dear = 100

// costs is Google's table. A "*" stands for an id.
var costs = map[string]int{
	"GET drafts": 5, "POST drafts": 10, "GET drafts/*": 20, "PUT drafts/*": 15, "DELETE drafts/*": 10, "POST drafts/send": 100,
	"GET history": 2,
	"GET labels":  1, "POST labels": 5, "GET labels/*": 1, "PUT labels/*": 5, "PATCH labels/*": 5, "DELETE labels/*": 5,
	"GET messages": 5, "POST messages": 25, "GET messages/*": 20, "DELETE messages/*": 20,
	"POST messages/batchDelete": 50, "POST messages/batchModify": 50, "POST messages/import": 25, "POST messages/send": 100,
	"POST messages/*/modify": 10, "POST messages/*/trash": 20, "POST messages/*/untrash": 5, "GET messages/*/attachments/*": 20,
	"GET profile": 1,
	"GET threads": 10, "GET threads/*": 40, "DELETE threads/*": 20,
	"POST threads/*/modify": 10, "POST threads/*/trash": 20, "POST threads/*/untrash": 10,
	"POST stop": 50, "POST watch": 100,
}

// actions are the segments that stand in the place of an id and are no ids.
var actions = map[string]bool{"batchDelete": true, "batchModify": true, "import": true, "send": true}

// called are the segments of the path from the user on: of
// "/upload/gmail/v1/users/me/messages/send" "me", "messages" and "send".
func called(r *http.Request) []string {
	_, rest, _ := strings.Cut(throttle.RawPath(r), "/users/")
	return strings.Split(rest, "/")
}

// units is the default of [Options.Units]: the cost in Google's table, or dear for a method outside the table.
func units(r *http.Request) int {
	method, segments := throttle.Method(r), called(r)[1:]
	if len(segments) > 1 && segments[0] == "settings" {
		return setting(method, segments[1])
	}

	// Every second segment is an id or an action. The table has "*" for each id.
	for i := 1; i < len(segments); i += 2 {
		if !actions[segments[i]] {
			segments[i] = "*"
		}
	}

	if n, ok := costs[method+" "+strings.Join(segments, "/")]; ok {
		return n
	}
	return dear
}

// setting is the cost of a method for settings.
func setting(method, name string) int {
	switch {
	case method == http.MethodGet:
		return 1
	case method == http.MethodDelete:
		return 5
	case name == "delegates", name == "forwardingAddresses", name == "sendAs", name == "pop":
		return dear
	}
	return 5
}
