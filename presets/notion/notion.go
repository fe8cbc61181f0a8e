// Package notion is Notion's table of limits.
//
//	client := &http.Client{Transport: throttle.Must(throttle.New(throttle.Config{
//		Store:    redisstore.New(rdb, redisstore.Options{}),
//		Policies: notion.Policies(notion.Options{}),
//	}))}
//
// # Rows
//
//	notion-connection   180 a minute for each connection; 600 with the larger plans
//	notion-workspace    the common limit of a workspace's connections: not published
//	notion-endpoint     the limits of some endpoints: not published
//
// A row whose limit is not published is unlimited: it never holds a request by
// itself. It is there to be closed.
//
// # Refusals
//
// A 429 says in its body, in additional_data.rate_limit_reason, which limit it
// is about, and in Retry-After for how long. Without Retry-After it is a minute,
// and an hour if the connection is blocked.
//
//	public_api_request_rate_limit         notion-connection
//	public_api_space_request_rate_limit   notion-workspace
//	public_api_endpoint_rate_limit        notion-endpoint
//	public_api_request_blocked            notion-connection
//	any other reason, or none             notion-connection
//	status 529 with Retry-After           notion-connection
//	status 503, ten in a row              notion-connection
//
// A blocked connection is not helped by waiting, says Notion. Closing it means
// that callers with a deadline are refused at once, and that one request an hour
// looks whether it still is; [throttle.Limiter.Resume] opens it sooner.
//
// # Not covered
//
// The sizes of requests. Which endpoints have limits of their own. How far a 529
// reaches: it is taken for the connection's.
//
// # Sources
//
// Facts as of 2026-11. Official: limits, refusals, reasons, 529
// (https://developers.notion.com/reference/request-limits). From common use: the
// host and the paths. Inferred: the lengths without Retry-After, that 529 and 503
// may have one (RFC 9110), which row a reason that is new closes, and that every
// second segment of a path is an id.
package notion

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

// What the plans allow each connection in a minute.
const (
	Standard   = 180
	Business   = 600
	Enterprise = 600
)

// Options hold the limits of a workspace's plan, and identify the connection. The zero value is
// connections with a token each, and the standard plan.
type Options struct {
	// PerMinute is the limit of the workspace's plan for each connection. Defaults to [Standard].
	PerMinute int

	// Connection is the id of the connection (integration). Defaults to "":
	// connections are told apart by their Authorization.
	Connection string

	// Workspace is the id of the workspace that is called. If several
	// connections belong to one, name it to have them stopped together.
	// Defaults to "": each connection has a workspace to itself.
	Workspace string

	// Caller says whose a request is, for a program that calls for several
	// connections or workspaces. It replaces Connection and Workspace, and ""
	// means the same. Defaults to nil.
	Caller func(*http.Request) (connection, workspace string)

	// Host is a pattern of the API's hosts, in place of the default for a fake,
	// a proxy or a server of one's own. Defaults to "api.notion.com".
	Host string
}

// Policies returns Notion's table of limits.
func Policies(o Options) []throttle.Policy {
	o.PerMinute = cmp.Or(o.PerMinute, Standard)
	match := cmp.Or(o.Host, "api.notion.com") + "/"
	connection, workspace := caller.IDs(o.Connection, o.Workspace, o.Caller)
	connection = caller.Or(connection, throttle.Header("Authorization"))
	workspace = caller.Or(workspace, connection)

	return tablerow.Table([]throttle.Policy{
		{
			Name: "notion-connection", Match: match, Key: connection,
			Limit: throttle.PerMinute(o.PerMinute), Answer: connectionRefused(),
		},
		// The rows of the workspace and of the endpoint hold requests only after a refusal.
		{
			Name: "notion-workspace", Match: match, Key: workspace,
			Limit: throttle.Unlimited(), Answer: refused("public_api_space_request_rate_limit"),
		},
		{
			Name: "notion-endpoint", Match: match, Key: throttle.Join(connection, endpoint),
			Limit: throttle.Unlimited(), Answer: refused("public_api_endpoint_rate_limit"),
		},
	})
}

// reason is the field in which a 429 says which limit it is about.
var reason = []string{"additional_data.rate_limit_reason"}

// refused returns a reader that closes the row after a 429 of one reason.
func refused(code string) feedback.Reader {
	return feedback.When{Status: []int{429}}.Then(feedback.Codes{
		Fields: reason,
		Lasts:  map[string]time.Duration{code: time.Minute},
		End:    feedback.RetryAfter(0),
	}.Answer)
}

// connectionRefused returns a reader that closes the row after a refusal that closes no other row, and after an outage.
func connectionRefused() feedback.Reader {
	return feedback.First(
		feedback.When{Status: []int{429}}.Then(feedback.First(
			feedback.Codes{
				Fields: reason,
				Lasts: map[string]time.Duration{
					// These two close rows of their own.
					"public_api_space_request_rate_limit": 0,
					"public_api_endpoint_rate_limit":      0,
					"public_api_request_blocked":          time.Hour,
				},
				End: feedback.RetryAfter(0),
			}.Answer,
			feedback.RetryAfter(time.Minute),
		)),
		feedback.When{Status: []int{529}}.Then(feedback.RetryAfter(0)),
		tablerow.Outage(),
	)
}

// endpoint is a [throttle.Policy.Key]: the method, and the path without its ids,
// as in "GET /v1/blocks/*/children".
func endpoint(r *http.Request) string {
	segments := strings.Split(throttle.RawPath(r), "/") // "", "v1", "blocks", id, "children"
	for i := 3; i < len(segments); i += 2 {
		segments[i] = "*"
	}
	return throttle.Method(r) + " " + strings.Join(segments, "/")
}
