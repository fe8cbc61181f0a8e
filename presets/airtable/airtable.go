// Package airtable is the table of limits of Airtable's Web API.
//
//	client := &http.Client{Transport: throttle.Must(throttle.New(throttle.Config{
//		Store:    redisstore.New(rdb, redisstore.Options{}),
//		Policies: airtable.Policies(airtable.Options{}),
//	}))}
//
// # Rows
//
//	airtable-base    5 a second, to each base
//	airtable-user   50 a second, with all personal access tokens of a user or service account
//
// The base is the first segment of the path behind /v0/ that begins with "app". Requests without a
// base, such as /v0/meta/whoami, are charged to the user alone.
//
// # Refusals
//
// A 429 closes for its Retry-After, or for 30 seconds without one, as Airtable asks. It does not
// say which limit was reached.
//
//	PUBLIC_API_BILLING_LIMIT_EXCEEDED    nothing
//	to a base                            airtable-base
//	any other                            airtable-user
//	503, ten in a row                    airtable-user
//
// That a refused request to a base is about the base is inferred: its limit is the narrower one.
// A month's calls that are used up, on the smaller plans, are about money: waiting does not help,
// so the caller gets the answer, and the next one too.
//
// # Not covered
//
// The calls of a month, on the plans that bound them. A base's calls by programs outside this
// store.
//
// # Sources
//
// Facts as of 2026-11.
//
//   - official: the numbers, 429, 30 seconds, the month:
//     https://support.airtable.com/docs/managing-api-call-limits-in-airtable
//   - observed: the body: https://github.com/PipedreamHQ/pipedream/issues/10130
//   - observed, in public code: PUBLIC_API_BILLING_LIMIT_EXCEEDED, with 429.
//   - from common use: the host and the paths, that ids of bases begin with "app".
//   - inferred: which limit a refusal is about; that an answer may have a Retry-After (RFC 9110).
package airtable

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

// Options are whose requests are counted together. The zero value is users that are told by their
// tokens.
type Options struct {
	// User is the id of the user or the service account. Not a token: all tokens of a
	// user share the limit. Defaults to "": users are told apart by their
	// Authorization.
	User string

	// Caller says for which user a request is, for a program that calls for several.
	// It replaces User, and "" means the same. Defaults to nil.
	Caller func(*http.Request) (user string)

	// Host is a pattern of the API's hosts, in place of the default for a fake or a
	// proxy. Defaults to "api.airtable.com".
	Host string
}

// Policies returns the table. Its rows are plain values: change them, leave some
// out, append your own.
func Policies(o Options) []throttle.Policy {
	match := cmp.Or(o.Host, "api.airtable.com") + "/v0/"
	user := caller.Or(caller.ID(o.User, o.Caller), throttle.Header("Authorization"))
	return tablerow.Table([]throttle.Policy{
		{
			Name: "airtable-base", Match: match, Key: base, Cost: toBase,
			Limit: throttle.PerSecond(5), Answer: tablerow.IfCharged(toBase, refused),
		},
		// A refusal closes one row: the base for a request to a base, and the user for any other request.
		{
			Name: "airtable-user", Match: match, Key: user,
			Limit: throttle.PerSecond(50), Answer: feedback.First(tablerow.IfCharged(toNoBase, refused), tablerow.Outage()),
		},
	})
}

// base is a [throttle.Policy.Key]: the id of the base, or "". It is "appXyz" for "/v0/appXyz/Tasks"
// and for "/v0/meta/bases/appXyz/tables".
func base(r *http.Request) string {
	for segment := range strings.SplitSeq(strings.TrimPrefix(throttle.RawPath(r), "/v0/"), "/") {
		// The id of a base begins with "app", wherever it stands in the path.
		if strings.HasPrefix(segment, "app") {
			return segment
		}
	}
	return ""
}

// toBase is a [throttle.Policy.Cost]: 1 for a request to a base, and 0 for all others.
func toBase(r *http.Request) int { return min(1, len(base(r))) }

// toNoBase is a [throttle.Policy.Cost]: 1 for a request to no base.
func toNoBase(r *http.Request) int { return 1 - toBase(r) }

// refused closes the row after a refusal: a 429 that is not about money.
var refused = feedback.When{Status: []int{http.StatusTooManyRequests}}.Then(feedback.First(
	feedback.Codes{
		Fields:     []string{"errors.*.error", "error.type", "error"},
		NotRefused: []string{"PUBLIC_API_BILLING_LIMIT_EXCEEDED"},
	}.Answer,
	feedback.RetryAfter(30*time.Second),
))
