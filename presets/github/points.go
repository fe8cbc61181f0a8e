package github

import (
	"net/http"
	"strings"

	"github.com/fleetthrottle/throttle"
	"github.com/fleetthrottle/throttle/presets/internal/graphql"
)

// mutationPoints is the cost of a request that may change something.
const mutationPoints = 5

// tokens is where tokens are asked for.
const tokens = "/login/oauth/access_token"

// calls is the cost of a request: 1, or 0 for hosts without an API and for requests for
// tokens.
func (o Options) calls(r *http.Request) int {
	counts := throttle.RawPath(r) != tokens

	// An Enterprise Server has a single host. GitHub has several: tokens are asked for at github.com, which is no API.
	if o.Host == "" {
		host := throttle.Host(r)
		counts = host == "api.github.com" || host == "uploads.github.com"
	}
	if !counts {
		return 0
	}
	return 1
}

// path is the path of the API, as on api.github.com: an Enterprise Server has GraphQL below /api/,
// and REST below /api/v3/.
func (o Options) path(r *http.Request) string {
	path := throttle.RawPath(r)
	if below, ok := strings.CutPrefix(path, "/api/"); ok && o.Host != "" {
		return "/" + strings.TrimPrefix(below, "v3/")
	}
	return path
}

// resource returns the name under which GitHub counts a request towards the primary limit, as in the
// field x-ratelimit-resource. Each name has a count of its own.
func (o Options) resource(r *http.Request) string {
	path, isPost := o.path(r), throttle.Method(r) == http.MethodPost
	switch part := ofRepository(path); {
	case path == "/graphql":
		return "graphql"
	case path == "/search/code":
		return "code_search"
	case strings.HasPrefix(path, "/search/"):
		return "search"
	case strings.HasPrefix(path, "/scim/"):
		return "scim"
	case part == "dependency-graph/sbom":
		return "dependency_sbom"
	case isPost && part == "dependency-graph/snapshots":
		return "dependency_snapshots"
	case isPost && part == "code-scanning/sarifs":
		return "code_scanning_upload"
	case isPost && strings.HasPrefix(path, "/app-manifests/"):
		return "integration_manifest"
	case isPost && strings.HasSuffix(path, "/actions/runners/registration-token"):
		return "actions_runner_registration"
	}

	return "core"
}

// ofRepository returns the rest of a path behind the repository: "code-scanning/sarifs" of
// "/repos/octocat/hello/code-scanning/sarifs". It is "" for other paths.
func ofRepository(path string) string {
	names, ok := strings.CutPrefix(path, "/repos/")
	if !ok {
		return ""
	}
	_, repository, _ := strings.Cut(names, "/")
	_, part, _ := strings.Cut(repository, "/")
	return part
}

// callsOf is the cost of the requests of one resource.
func (o Options) callsOf(resource string) func(*http.Request) int {
	return func(r *http.Request) int {
		if o.calls(r) == 0 || o.resource(r) != resource {
			return 0
		}
		return 1
	}
}

func (o Options) isGraphQL(r *http.Request) bool { return o.resource(r) == "graphql" }

// restPoints is the cost under the points of REST.
func (o Options) restPoints(r *http.Request) int {
	if o.calls(r) == 0 || o.isGraphQL(r) {
		return 0
	}

	// GitHub counts reads and changes with different points.
	switch throttle.Method(r) {
	case http.MethodGet, http.MethodHead, http.MethodOptions:
		return 1
	}
	return mutationPoints
}

// graphqlPoints is the cost under the points of GraphQL.
func (o Options) graphqlPoints(r *http.Request) int {
	if o.calls(r) == 0 || !o.isGraphQL(r) {
		return 0
	}
	if graphql.Mutates(r) {
		return mutationPoints
	}
	return 1
}

// creates is the default of Options.Creates.
func (o Options) creates(r *http.Request) bool {
	if o.isGraphQL(r) {
		return graphql.Mutates(r)
	}
	return r.Method == http.MethodPost || r.Method == http.MethodPut
}

// creations is the cost under the limits of content: 1 for a request that creates content.
func (o Options) creations(r *http.Request) int {
	if o.calls(r) == 0 || !o.Creates(r) {
		return 0
	}
	return 1
}
