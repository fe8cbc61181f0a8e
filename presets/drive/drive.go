// Package drive is the table of limits of the Google Drive API: quota units a minute, of each user
// and of the project.
//
//	client := &http.Client{Transport: throttle.Must(throttle.New(throttle.Config{
//		Store:    redisstore.New(rdb, redisstore.Options{}),
//		Policies: drive.Policies(drive.Options{}),
//	}))}
//
// # Rows
//
//	drive-project   1,000,000 units a minute, of a project
//	drive-user        325,000 units a minute, of each user in a project
//
// A request costs what Google's table says of its kind.
//
//	GET of one thing               5
//	GET of a list                100
//	a download, an export        200
//	any request that is no GET    50
//
// Google has 5 for all remaining requests that are no edits; which requests with methods other than
// GET this means is unclear, so all cost as much as an edit (inferred).
//
// A user is whom the access token stands for.
//
// # Refusals
//
// A 403 with the reason userRateLimitExceeded, rateLimitExceeded or dailyLimitExceeded, and a 429.
// The message may name the limit.
//
//	'… per minute per user'            drive-user, 1m
//	'… per minute'                     drive-project, 1m
//	'… per day', dailyLimitExceeded    drive-project, 1h
//	any other                          drive-user, 1s
//	503, ten in a row                  drive-project, Retry-After
//
// A Retry-After is obeyed, although none is documented. Any other 403 is no refusal: no permission,
// or no space.
//
// # Not covered
//
// Requests within a batch. What may be downloaded a day, and uploaded: that is about money and
// bytes. Bounds on sharing (sharingRateLimitExceeded).
//
// # Sources
//
// Facts as of 2026-11.
//
//   - official: the numbers, since when, the units, 403 and 429:
//     https://developers.google.com/workspace/drive/api/guides/limits
//   - official: the reasons, the body: https://developers.google.com/workspace/drive/api/guides/handle-errors
//   - official: the access token tells users apart:
//     https://developers.google.com/workspace/drive/api/guides/query-parameters
//   - from common use: the host and the paths.
//   - inferred: which requests are of which kind; the lengths; that an answer may have a Retry-After (RFC 9110).
package drive

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

// Options hold a project's limits, and identify its users. The zero value is one project, whose
// users are identified by their tokens.
type Options struct {
	// PerMinute is how many units a minute the project has. Defaults to 1,000,000.
	PerMinute int

	// PerUser is how many units a minute each user of the project has. Defaults to
	// 325,000.
	PerUser int

	// Units returns the cost of a request. Projects from before 2026-05-01 that used the API
	// between 2025-11 and 2026-04 count requests: 1 each, and 12,000 a minute for the project and
	// for each user. Defaults to Google's table.
	Units func(*http.Request) int

	// Project is the project's id. Defaults to "": all programs that share the store
	// are one project.
	Project string

	// User is the id of the user or the service account that authorizes the requests.
	// Defaults to "": users are told apart by their Authorization, which changes when a
	// token is renewed.
	User string

	// Caller says whose a request is, for a program that calls for several projects or
	// users. It replaces Project and User, and "" means the same. Defaults to nil.
	Caller func(*http.Request) (project, user string)

	// Host is a pattern of the API's hosts, in place of the default for a fake, a proxy
	// or a server of one's own. Defaults to "www.googleapis.com".
	Host string
}

// Policies returns the table. Its rows are plain values: change them, leave some
// out, append your own.
func Policies(o Options) []throttle.Policy {
	o = o.withDefaults()
	match := o.Host + "/"
	project, user := caller.IDs(o.Project, o.User, o.Caller)
	user = caller.Or(user, throttle.Header("Authorization"))

	return tablerow.Table([]throttle.Policy{
		{
			Name: "drive-project", Match: match, Key: project, Cost: o.cost(o.PerMinute), Limit: throttle.PerMinute(o.PerMinute),
			Answer: tablerow.IfCharged(ofDrive, feedback.First(google.ProjectRefused, tablerow.Outage())),
		},
		{
			Name: "drive-user", Match: match, Key: throttle.Join(project, user), Cost: o.cost(o.PerUser), Limit: throttle.PerMinute(o.PerUser),
			Answer: tablerow.IfCharged(ofDrive, google.UserRefused),
		},
	})
}

// withDefaults returns o with the defaults of its zero fields.
func (o Options) withDefaults() Options {
	o.PerMinute = cmp.Or(o.PerMinute, 1_000_000)
	o.PerUser = cmp.Or(o.PerUser, 325_000)
	o.Host = cmp.Or(o.Host, "www.googleapis.com")
	if o.Units == nil {
		o.Units = units
	}
	return o
}

// cost is the cost of a request, at most a minute's units, and 0 for the host's other APIs.
func (o *Options) cost(most int) func(*http.Request) int {
	return func(r *http.Request) int {
		if ofDrive(r) == 0 {
			return 0
		}

		// A cost above the limit would never fit.
		return min(o.Units(r), most)
	}
}

// ofDrive is 1 for a request to Drive's API, and 0 for the host's other APIs.
func ofDrive(r *http.Request) int {
	if called(r) == nil {
		return 0
	}
	return 1
}

// called are the segments of the path behind the version, "files" and "x" of
// "/upload/drive/v3/files/x", or nil for a path of any other API.
func called(r *http.Request) []string {
	path := strings.TrimPrefix(throttle.RawPath(r), "/upload")
	segments := strings.Split(path, "/") // "", "drive", version, …

	// The host serves further APIs, which have limits of their own.
	if len(segments) < 4 || segments[1] != "drive" {
		return nil
	}
	return segments[3:]
}

// lists are the names of the collections: a GET of one lists its members.
var lists = map[string]bool{
	"accessproposals": true, "apps": true, "approvals": true, "changes": true, "comments": true, "drives": true, "files": true,
	"permissions": true, "replies": true, "revisions": true, "teamdrives": true,
}

// units is the default of [Options.Units], for paths of Drive: cost leaves out all others.
func units(r *http.Request) int {
	// Collections and ids alternate in a path, so a path of odd length ends with a collection.
	segments := called(r)
	last := segments[len(segments)-1]
	switch {
	case last == "download" || last == "export" || r.URL.Query().Get("alt") == "media":
		return 200
	case throttle.Method(r) != http.MethodGet:
		return 50
	case len(segments)%2 == 1 && lists[last], last == "listLabels":
		return 100
	}
	return 5
}
