// Package github is the table of limits of GitHub's REST and GraphQL APIs: the primary limit of an
// hour, and the secondary limits, of which GitHub says nothing until they are exceeded.
//
//	client := &http.Client{Transport: throttle.Must(throttle.New(throttle.Config{
//		Store:    redisstore.New(rdb, redisstore.Options{}),
//		Policies: github.Policies(github.Options{}),
//	}))}
//
// # Rows
//
//	row                    limit          one budget for each    closed by
//	github-primary         PerHour/h      account and resource   remaining 0
//	github-search          30/m           account, searches      the same, of a search
//	github-code-search     10/m           account, /search/code  the same, of a search of code
//	github-in-flight       100 in flight  account                a secondary refusal
//	github-points          900/m          account, REST          the same, to REST
//	github-graphql-points  2,000/m        account, GraphQL       the same, to GraphQL
//	github-content-minute  80/m           account, creations
//	github-content-hour    500/h          account, creations
//	github-oauth           2,000/h        token requests         429 and Retry-After
//
// REST: GET, HEAD and OPTIONS cost a point, other methods five. GraphQL: a query costs a point, a
// mutation five. A request whose body cannot be read, because its GetBody is nil, counts as a
// mutation.
//
// Under the primary limit GitHub counts resources separately: core, search, code_search, graphql,
// and others that its page on /rate_limit names. Both searches have rows of their own, because they
// are counted by the minute; a search without a token ([Anonymous]) has 10 a minute in place of 30.
// Each answer states the remaining points of its resource, which lower the row where the resource
// allows less, or where other programs of the same user call too. An x-ratelimit-limit for core
// that is less than a tenth of PerHour, or more than ten times as much, belongs to a different
// caller, and is ignored: 60 is the limit of an address without a token.
//
// A request is in flight until the body of its answer is closed. Uploads, to
// uploads.github.com, are requests of REST like others.
//
// A 304 costs nothing under the primary limit if its request had an Authorization. One
// that is added below the Transport is not seen.
//
// # Refusals
//
// Both kinds come with 403 or 429, and a 403 may also be about permissions. A refusal lasts, in
// GitHub's own order of trust, for its Retry-After; until x-ratelimit-reset if
// x-ratelimit-remaining is 0; or for a minute. With no points remaining the refusal is primary. It
// is secondary if its message speaks of a "secondary rate limit" (the wording around that has
// changed) or of "abuse detection", as older Enterprise Servers do. A refusal that is not primary is also
// secondary if it has a Retry-After, or is a 429. Any other 403 closes nothing.
//
// An answer of a resource other than core does not lower core, to which its request is charged, but
// a refusal closes core: GitHub asks to stay away.
//
// GraphQL may refuse with status 200: its message then stands in the errors. If
// there are data too, and the request may be a mutation, the account is closed but the
// request is not repeated.
//
// A secondary refusal closes all requests of the account, through
// github-in-flight, because it does not say which of the limits it was, and going
// on may get an integration banned. Ten 503 in a row with a Retry-After close that row, too.
//
// # Not covered
//
// 90 seconds of CPU in 60 seconds, which nobody can count from outside: space
// costly queries out. How much the resources beside core and the searches allow: they begin
// with PerHour, and answers correct them. The points that a
// GraphQL query costs under the primary limit: it is counted as one, and the
// headers correct it. Primary refusals of GraphQL with status 200: the headers
// close the row then, and the request is not repeated.
//
// # Sources
//
// Facts as of 2026-11.
//
//   - official: limits, points, headers, refusals and their order of trust:
//     https://docs.github.com/en/rest/using-the-rest-api/rate-limits-for-the-rest-api
//   - official: searches a minute: https://docs.github.com/rest/search/search
//   - official: names of the resources: https://docs.github.com/rest/rate-limit/rate-limit
//   - observed: "abuse detection mechanism", with 403 and without a Retry-After:
//     https://github.com/octokit/plugin-throttling.js/issues/437
//   - observed: secondary refusals without any header:
//     https://github.com/gofri/go-github-ratelimit/issues/29, and wordings that
//     changed: issues 14 and 15 there.
//   - official: unchanged answers are free, secondary refusals of GraphQL with status
//     200 (the same page, and the page on GraphQL's limits).
//   - from common use: hosts and paths, also on an Enterprise Server, and of the resources.
//   - inferred: where in a 200 the message stands, how uploads count, which rows a refusal closes, which requests
//     create content, and when an x-ratelimit-limit belongs to a different caller.
package github

import (
	"net/http"

	"github.com/fleetthrottle/throttle/presets/internal/caller"
)

// What the primary limit allows in an hour.
const (
	Anonymous  = 60     // an address without a token
	User       = 5_000  // a user, over all tokens; an installation has up to 12,500
	Enterprise = 15_000 // a user or an app of Enterprise Cloud
	Actions    = 1_000  // the GITHUB_TOKEN of a workflow, for each repository
)

// Options are what differs between accounts. The zero value is users with a token
// each.
type Options struct {
	// Account is the id of the user or the installation, or a name for the
	// address of a program without a token. Name it where a user has several
	// tokens, which share the limits, or a token is replaced every hour, as an
	// installation's is. Defaults to "": accounts are told apart by their
	// Authorization.
	Account string

	// Caller says whose a request is, for a program that calls for several
	// accounts. It replaces Account, and "" means the same. Defaults to nil.
	Caller func(*http.Request) (account string)

	// PerHour is the primary limit. Defaults to [User].
	PerHour int

	// Creates says which requests create content: issues, comments, commits,
	// pull requests. Defaults to nil: each POST and PUT, and of GraphQL each
	// mutation.
	Creates func(*http.Request) bool

	// Host is a pattern of the API's hosts, in place of the default for a fake,
	// a proxy or an Enterprise Server. What it names has budgets of its own.
	// The API of an Enterprise Server lies below /api/, and only that is
	// meant: "github.example.com/api". Its limits are what its administrator
	// has set: tell PerHour. Defaults to "": "{service}.github.com", and
	// github.com for tokens.
	Host string

	account caller.Key
}
