// Package gitlab is the table of limits of GitLab.com's REST API: of a user and an address by the
// minute, and of endpoints with limits of their own.
//
//	client := &http.Client{Transport: throttle.Must(throttle.New(throttle.Config{
//		Store:    redisstore.New(rdb, redisstore.Options{}),
//		Policies: gitlab.Policies(gitlab.Options{}),
//	}))}
//
// # Rows
//
//	row                    limit     one budget for each     holds
//	gitlab-user            2,000/m   user                    requests with a token
//	gitlab-anonymous       500/m     address                 requests without one
//	gitlab-address         2,000/m   address                 all
//	gitlab-search          100/m     user                    …/search
//	gitlab-projects        2000/10m  user                    GET projects
//	gitlab-project         400/m     user                    GET projects/{id}
//	gitlab-groups          50/m      user                    GET groups
//	gitlab-group           400/m     user                    GET groups/{id}
//	gitlab-group-projects  600/m     user                    GET groups/{id}/projects
//	gitlab-user-lookup     300/10m   user                    GET users/{id}
//	gitlab-members         200/m     user                    GET projects/{id}/members and members/…
//	gitlab-new-issues      200/m     user                    POST projects/{id}/issues
//	gitlab-new-notes       60/m      user                    POST …/notes
//	gitlab-new-pipelines   25/m      user and project        POST projects/{id}/pipeline
//	gitlab-new-projects    200/day   user                    POST projects
//	gitlab-new-groups      200/day   user                    POST groups
//	gitlab-endpoint        none      user and endpoint       all
//	gitlab-site            none      address                 the site itself, and git
//
// An endpoint is a method and a path without its ids: a segment with a digit, or an escaped
// segment, counts as an id (inferred). A day is any 24 hours here.
//
// # Refusals
//
// A 429 with "This endpoint has been requested too many times", or with a RateLimit-Name other than
// the two below, is about one endpoint and closes gitlab-endpoint. Any other 429 closes gitlab-user
// or, without a token, gitlab-anonymous. Each lasts for its Retry-After, or a minute without one
// (inferred), because most windows have a minute. Ten 503 in a row with a Retry-After close
// gitlab-user or gitlab-anonymous. Refusals of the site or of git close gitlab-site alone.
//
// The RateLimit fields with the name throttle_authenticated_api or throttle_unauthenticated_api
// lower gitlab-user or gitlab-anonymous if other programs call with that user, or from that
// address.
//
// # Not covered
//
// Limits by plan, such as 5,000 an hour, which GitLab has announced and not yet enforced: append a
// row of your own then. Git over HTTPS and SSH, Pages, registries, raw files, runners. A
// self-managed server: its operator sets all numbers, so set [Options.Host] and
// [Options.PerMinute], and leave out the remaining rows.
//
// # Sources
//
// Facts as of 2026-11.
//
//   - official: numbers, 429, Retry-After, announced limits: https://docs.gitlab.com/user/gitlab_com/rate_limits/
//   - official: the RateLimit fields, their names, the two systems of limits, "Retry later":
//     https://docs.gitlab.com/administration/settings/user_and_ip_rate_limits/
//   - observed: the body of an endpoint's refusal, at times with the fields of a different limit and without
//     Retry-After: https://gitlab.com/gitlab-org/gitlab/-/issues/199738
//   - from common use: the host, the paths, how a token travels.
//   - inferred: that limits without a stated scope count by user; which segments are ids; that a refusal without
//     a stated time lasts a minute.
package gitlab

import (
	"cmp"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/fleetthrottle/throttle"
	"github.com/fleetthrottle/throttle/feedback"
	"github.com/fleetthrottle/throttle/presets/internal/caller"
	"github.com/fleetthrottle/throttle/presets/internal/tablerow"
)

// Options are what differs between users and servers. The zero value is one user of GitLab.com
// behind one address.
type Options struct {
	// User is any name for the user that the token belongs to. Not a token: all of a user's
	// tokens share the limits. Defaults to "": all programs that share the store are
	// one user.
	User string

	// Caller says which user a request is of, for a program that calls for several.
	// It replaces User. Defaults to nil: User.
	Caller func(*http.Request) (user string)

	// Address is any name for the address that the requests come from. Defaults to
	// "": all programs that share the store are behind one.
	Address string

	// PerMinute is how often a user may call in a minute. Defaults to 2,000.
	PerMinute int

	// Host is a pattern of the hosts that are meant: for a fake, a proxy, or a server of one's own.
	// Defaults to "gitlab.com".
	Host string
}

const (
	api = "/api/v4/"

	// What GitLab calls the limits of a user and of an address.
	ofUser    = "throttle_authenticated_api"
	ofAddress = "throttle_unauthenticated_api"
)

// Policies returns the table. Its rows are plain values: change them, leave some
// out, append your own.
func Policies(o Options) []throttle.Policy {
	o = o.withDefaults()
	address := caller.Always(o.Address)
	at := o.Host + api
	rows := []throttle.Policy{
		{Name: "gitlab-user", Match: o.Host + "/api/", Key: o.Caller, Cost: authenticated,
			Limit: throttle.PerMinute(o.PerMinute), Answer: feedback.All(tablerow.IfCharged(authenticated, callerRefused()), left(ofUser))},
		{Name: "gitlab-anonymous", Match: o.Host + "/api/", Key: address, Cost: anonymous,
			Limit: throttle.PerMinute(500), Answer: feedback.All(tablerow.IfCharged(anonymous, callerRefused()), left(ofAddress))},
		{Name: "gitlab-address", Match: o.Host + "/", Key: address,
			Limit: throttle.PerMinute(2_000), Answer: feedback.LeaveOpen},
		{Name: "gitlab-site", Match: o.Host + "/", Key: address, Cost: ofSite,
			Limit: throttle.Unlimited(), Answer: tablerow.IfCharged(ofSite, feedback.First(siteRefused, tablerow.Outage()))},
		{Name: "gitlab-endpoint", Match: o.Host + "/api/", Key: throttle.Join(o.Caller, endpoint),
			Limit: throttle.Unlimited(), Answer: endpointRefused},
	}

	// Refusals close the rows above. These rows only keep to the numbers.
	for _, row := range []struct {
		name, match string
		cost        func(*http.Request) int
		limit       throttle.Limit
	}{
		{"search", "GET " + at, ending("/search"), throttle.PerMinute(100)},
		{"projects", "GET " + at + "projects", nil, throttle.SlidingWindow(2_000, 10*time.Minute)},
		{"project", "GET " + at + "projects/{id}", nil, throttle.PerMinute(400)},
		{"groups", "GET " + at + "groups", nil, throttle.PerMinute(50)},
		{"group", "GET " + at + "groups/{id}", nil, throttle.PerMinute(400)},
		{"group-projects", "GET " + at + "groups/{id}/projects", nil, throttle.PerMinute(600)},
		{"user-lookup", "GET " + at + "users/{id}", nil, throttle.SlidingWindow(300, 10*time.Minute)},
		{"members", "GET " + at + "projects/{id}/{part...}", members, throttle.PerMinute(200)},
		{"new-issues", "POST " + at + "projects/{id}/issues", nil, throttle.PerMinute(200)},
		{"new-notes", "POST " + at, ending("/notes"), throttle.PerMinute(60)},
		{"new-projects", "POST " + at + "projects", nil, throttle.SlidingWindow(200, 24*time.Hour)},
		{"new-groups", "POST " + at + "groups", nil, throttle.SlidingWindow(200, 24*time.Hour)},
	} {
		rows = append(rows, throttle.Policy{Name: "gitlab-" + row.name, Match: row.match, Key: o.Caller, Cost: row.cost,
			Limit: row.limit, Answer: feedback.LeaveOpen})
	}

	return tablerow.Table(append(rows, throttle.Policy{Name: "gitlab-new-pipelines", Match: "POST " + at + "projects/{id}/pipeline",
		Key: throttle.Join(o.Caller, throttle.PathValue("id")), Limit: throttle.PerMinute(25), Answer: feedback.LeaveOpen}))
}

// withDefaults returns o with the defaults of its zero fields. Caller is never nil in it.
func (o Options) withDefaults() Options {
	o.Host = cmp.Or(o.Host, "gitlab.com")
	o.PerMinute = cmp.Or(o.PerMinute, 2_000)
	o.Caller = caller.ID(o.User, o.Caller)
	return o
}

// authenticated is the cost of a request under the limit of a user: 1 if it has a token. Only GitLab
// knows whether the token is valid.
func authenticated(r *http.Request) int {
	for _, field := range []string{"Authorization", "Private-Token", "Job-Token", "Deploy-Token"} {
		if r.Header.Get(field) != "" {
			return 1
		}
	}

	// GitLab takes a token in the query, too.
	for _, name := range []string{"private_token", "access_token", "job_token"} {
		if throttle.Query(name)(r) != "" {
			return 1
		}
	}
	return 0
}

// anonymous is the cost of a request under the limit of an address: 1 if it has no token.
func anonymous(r *http.Request) int { return 1 - authenticated(r) }

// ofSite is the cost of a request that is not the API's: the site itself, and git.
func ofSite(r *http.Request) int {
	if strings.HasPrefix(throttle.RawPath(r), "/api/") {
		return 0
	}
	return 1
}

// ending returns the cost of requests by the end of their path: 1 for a path with the suffix, and 0 for all others.
func ending(suffix string) func(*http.Request) int {
	return func(r *http.Request) int {
		if strings.HasSuffix(throttle.RawPath(r), suffix) {
			return 1
		}
		return 0
	}
}

// members is the cost of a request for a part of a project: 1 for its list of members, and for what is below it.
func members(r *http.Request) int {
	if part := r.PathValue("part"); part == "members" || strings.HasPrefix(part, "members/") {
		return 1
	}
	return 0
}

// endpoint is a [throttle.Policy.Key]: the method, and the path with "*" for each id, as in
// "GET /api/v4/projects/*/issues". The path is cleaned segment by segment, because a project's name
// is one escaped segment, "group%2Fproject", which throttle.RawPath would split in two.
func endpoint(r *http.Request) string {
	var segments []string // "api", "v4", "projects", id, "issues"
	for escaped := range strings.SplitSeq(r.URL.EscapedPath(), "/") {
		name, err := url.PathUnescape(escaped)
		isUnreadable := err != nil // then the segment is an id
		switch {
		case name == "..":
			segments = segments[:max(0, len(segments)-1)]
		case name == "." || name == "" && !isUnreadable:
			continue
		case len(segments) >= 2 && (isUnreadable || strings.ContainsFunc(name, ofID)):
			segments = append(segments, "*")
		default:
			segments = append(segments, name)
		}
	}

	return throttle.Method(r) + " /" + strings.Join(segments, "/")
}

// ofID reports whether a character stands only in ids and names, and not in the segments that name endpoints.
func ofID(c rune) bool {
	isLetter := 'A' <= c && c <= 'Z' || 'a' <= c && c <= 'z'
	return !isLetter && !strings.ContainsRune("_-.~", c)
}

// tooMany recognises the refusals that say that they are about one endpoint. They close the row for lasts.
func tooMany(lasts time.Duration) feedback.Codes {
	return feedback.Codes{
		Fields: []string{"message.error", "message"},
		Lasts:  map[string]time.Duration{"This endpoint has been requested too many times*": lasts},
	}
}

// siteRefused closes the row after a refusal of the site or of git.
var siteRefused = feedback.When{Status: []int{http.StatusTooManyRequests}}.Then(feedback.RetryAfter(time.Minute))

// endpointRefused closes the row after a refusal about one endpoint.
var endpointRefused = feedback.When{Status: []int{http.StatusTooManyRequests}}.Then(func() feedback.Reader {
	codes := tooMany(time.Minute)
	codes.End = feedback.RetryAfter(0)
	return feedback.First(codes.Answer, ofAnother(feedback.RetryAfter(time.Minute)))
}())

// ofAnother returns a reader that asks p about refusals that name a limit of neither a user nor an address, and ignores all
// other answers.
func ofAnother(p feedback.Reader) feedback.Reader {
	return func(resp *http.Response) throttle.Answer {
		switch resp.Header.Get("RateLimit-Name") {
		case "", ofUser, ofAddress:
			return throttle.Answer{}
		}
		return p(resp)
	}
}

// callerRefused returns a reader that closes the row after a refusal of the API that is not about one endpoint, and after
// an outage.
func callerRefused() feedback.Reader {
	return feedback.First(
		feedback.When{Status: []int{http.StatusTooManyRequests}}.Then(feedback.First(
			// These refusals close the row of the endpoint.
			tooMany(0).Answer,
			ofAnother(feedback.For(0)),
			feedback.RetryAfter(time.Minute),
		)),
		tablerow.Outage(),
	)
}

// left returns a reader of the remaining quota of the named limit: the fields state one of several
// limits.
func left(name string) feedback.Reader {
	return feedback.When{Header: map[string]string{"RateLimit-Name": name}}.Then(
		feedback.Headers{Remaining: "RateLimit-Remaining", Reset: "RateLimit-Reset"}.Left)
}
