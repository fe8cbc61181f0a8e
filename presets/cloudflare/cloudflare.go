// Package cloudflare is the table of limits of Cloudflare's API.
//
//	client := &http.Client{Transport: throttle.Must(throttle.New(throttle.Config{
//		Store:    redisstore.New(rdb, redisstore.Options{}),
//		Policies: cloudflare.Policies(cloudflare.Options{}),
//	}))}
//
// # Rows
//
//	cloudflare-user      1200 in 5 minutes, of a user with all tokens and keys
//	cloudflare-address    200 a second, of an address
//	cloudflare-graphql    320 in 5 minutes, of a user
//
// A user's tokens share the limit, the dashboard included; the tokens of an account have one for
// themselves. GraphQL is charged to its own row (inferred): a query costs more the more it asks
// for, how much is not published, so 320 is the most.
//
// # Refusals
//
// A 429 lasts for its Retry-After, or without one for five minutes, for which the whole API is
// closed to a user above the limit.
//
//	of GraphQL           cloudflare-graphql
//	any other            cloudflare-user
//	503, ten in a row    the same
//
// Ratelimit and Ratelimit-Policy lower cloudflare-user if other programs call for the user; of
// several policies the smallest remaining quota counts.
//
// # Not covered
//
// Limits of single endpoints, which are in their pages. That a refusal may be about the address:
// none says so, and the user's row is the narrower of the two.
//
// # Sources
//
// Facts as of 2026-11.
//
//   - official: the numbers, five minutes, the fields, GraphQL:
//     https://developers.cloudflare.com/fundamentals/api/reference/limits/
//   - official: since when the fields: https://developers.cloudflare.com/changelog/2025-09-03-rate-limiting-improvement
//   - observed: the bodies: https://github.com/lablabs/cloudflare-exporter/issues/74,
//     https://github.com/cloudflare/workers-sdk/issues/10025
//   - from common use: the host and the paths.
//   - inferred: that GraphQL is not counted among the 1200; that a 503 may have a Retry-After (RFC 9110).
package cloudflare

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

// Options are whose requests are counted together. The zero value is users with a token each, at
// one address.
type Options struct {
	// User is the id of the user, or of the account whose tokens are used. Not a token:
	// all tokens of a user share the limit. Defaults to "": users are told apart by
	// their Authorization.
	User string

	// Caller says for which user a request is, for a program that calls for several.
	// It replaces User, and "" means the same. Defaults to nil.
	Caller func(*http.Request) (user string)

	// Address is any name for the address that the requests come from. All programs
	// behind the same gateway or NAT use the same. Defaults to "": all programs that
	// share the store are behind one address.
	Address string

	// Per5Minutes is how many calls a user may make in 5 minutes. Enterprise customers can have
	// more. Defaults to 1200.
	Per5Minutes int

	// Host is a pattern of the API's hosts, in place of the default for a fake, a proxy
	// or a server of one's own. Defaults to "api.cloudflare.com".
	Host string
}

// Policies returns the table. Its rows are plain values: change them, leave some
// out, append your own.
func Policies(o Options) []throttle.Policy {
	match := cmp.Or(o.Host, "api.cloudflare.com") + "/client/"
	user := caller.Or(caller.ID(o.User, o.Caller), throttle.Header("Authorization"))
	return tablerow.Table([]throttle.Policy{
		{
			Name: "cloudflare-user", Match: match, Key: user, Cost: other,
			Limit:  throttle.SlidingWindow(cmp.Or(o.Per5Minutes, 1200), 5*time.Minute),
			Answer: tablerow.IfCharged(other, feedback.All(feedback.First(refused, tablerow.Outage()), feedback.RateLimit{}.Left)),
		},
		// A refusal closes the row that charged the request, cloudflare-user or cloudflare-graphql: the address stays open for
		// other users.
		{
			Name: "cloudflare-address", Match: match, Key: caller.Always(o.Address),
			Limit: throttle.PerSecond(200), Answer: feedback.LeaveOpen,
		},
		{
			Name: "cloudflare-graphql", Match: match, Key: user, Cost: graphql,
			Limit: throttle.SlidingWindow(320, 5*time.Minute), Answer: tablerow.IfCharged(graphql, feedback.First(refused, tablerow.Outage())),
		},
	})
}

// graphql is a [throttle.Policy.Cost]: 1 for a request of GraphQL, and 0 for all others.
func graphql(r *http.Request) int {
	if strings.HasSuffix(throttle.RawPath(r), "/graphql") {
		return 1
	}
	return 0
}

// other is a [throttle.Policy.Cost]: 1 for a request that is not of GraphQL.
func other(r *http.Request) int { return 1 - graphql(r) }

var refused = feedback.When{Status: []int{http.StatusTooManyRequests}}.Then(feedback.RetryAfter(5 * time.Minute))
