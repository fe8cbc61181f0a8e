// Package sheets is the table of limits of the Google Sheets API.
//
//	client := &http.Client{Transport: throttle.Must(throttle.New(throttle.Config{
//		Store:    redisstore.New(rdb, redisstore.Options{}),
//		Policies: sheets.Policies(sheets.Options{}),
//	}))}
//
// # Rows
//
//	sheets-read-project    300 a minute, of a project
//	sheets-read-user        60 a minute, of each user in a project
//	sheets-write-project   300 a minute, of a project
//	sheets-write-user       60 a minute, of each user in a project
//
// A GET is a read, and so is a POST that only names what to read, by data filters; any other
// request is a write. A batch of ranges or updates is one request. A user is who has authorized a
// request: a service account, too.
//
// # Refusals
//
// A 429, and a 403 with the reason userRateLimitExceeded, rateLimitExceeded or
// dailyLimitExceeded, of a read or a write. The message may name the limit.
//
//	'… per minute per user'            the user's row, 1m
//	'… per minute'                     the project's row, 1m
//	'… per day', dailyLimitExceeded    the project's row, 1h
//	any other                          the user's row, 1s
//	503, ten in a row                  the project's row, Retry-After
//
// A Retry-After is obeyed, although none is documented. Any other 403 is no refusal.
//
// # Not covered
//
// Requests within a batch of HTTP requests. How long a request may take.
//
// # Sources
//
// Facts as of 2026-11.
//
//   - official: the numbers, a minute, 429, a batch is one request:
//     https://developers.google.com/workspace/sheets/api/limits
//   - observed: the messages: https://github.com/AutomaApp/automa/issues/1844,
//     https://github.com/r-lib/gargle/issues/160
//   - from common use: the host and the paths; 403 and its reasons, as Google's other APIs have them.
//   - inferred: which POSTs are reads; the lengths; that an answer may have a Retry-After (RFC 9110).
package sheets

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
	// PerMinute is how many reads, and how many writes, the project has in a minute.
	// Defaults to 300.
	PerMinute int

	// PerUser is how many reads, and how many writes, each user of the project has in a
	// minute. Defaults to 60.
	PerUser int

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
	// or a server of one's own. Defaults to "sheets.googleapis.com".
	Host string
}

// Policies returns the table. Its rows are plain values: change them, leave some
// out, append your own.
func Policies(o Options) []throttle.Policy {
	match := cmp.Or(o.Host, "sheets.googleapis.com") + "/"
	ofProject, ofUser := throttle.PerMinute(cmp.Or(o.PerMinute, 300)), throttle.PerMinute(cmp.Or(o.PerUser, 60))
	project, user := caller.IDs(o.Project, o.User, o.Caller)
	userOfProject := throttle.Join(project, caller.Or(user, throttle.Header("Authorization")))

	// row returns a row that closes only for the refusals of requests that it counts.
	row := func(name string, cost func(*http.Request) int, limit throttle.Limit, key caller.Key, refused feedback.Reader) throttle.Policy {
		return throttle.Policy{
			Name: name, Match: match, Key: key, Cost: cost,
			Limit: limit, Answer: tablerow.IfCharged(cost, refused),
		}
	}

	return tablerow.Table([]throttle.Policy{
		row("sheets-read-project", reads, ofProject, project, projectRefused()),
		row("sheets-read-user", reads, ofUser, userOfProject, google.UserRefused),
		row("sheets-write-project", writes, ofProject, project, projectRefused()),
		row("sheets-write-user", writes, ofUser, userOfProject, google.UserRefused),
	})
}

// projectRefused returns a reader that closes a row of the project after a refusal about the project, and after an outage,
// which concerns all users.
func projectRefused() feedback.Reader {
	return feedback.First(google.ProjectRefused, tablerow.Outage())
}

// reads is the cost of a request under the limits of reads: 1 for a read. Some reads are a POST, because their filter is
// in the body.
func reads(r *http.Request) int {
	method, path := throttle.Method(r), throttle.RawPath(r)
	filters := strings.HasSuffix(path, ":getByDataFilter") || strings.HasSuffix(path, ":batchGetByDataFilter") ||
		strings.HasSuffix(path, "/developerMetadata:search")
	if method == http.MethodGet || method == http.MethodPost && filters {
		return 1
	}
	return 0
}

// writes is the cost of a request under the limits of writes: 1 for a request that is no read.
func writes(r *http.Request) int { return 1 - reads(r) }
