package github

import (
	"net/http"
	"strings"

	"github.com/fleetthrottle/throttle"
	"github.com/fleetthrottle/throttle/presets/internal/graphql"
)

// mutationPoints is what a request costs that may change something.
const mutationPoints = 5

// resource names what GitHub counts apart under the primary limit, as in
// x-ratelimit-resource.
func resource(r *http.Request) string {
	switch path := throttle.Path(r); {
	case path == "/graphql":
		return "graphql"
	case path == "/search/code":
		return "code_search"
	case strings.HasPrefix(path, "/search/"):
		return "search"
	}
	return "core"
}

func isGraphQL(r *http.Request) bool { return resource(r) == "graphql" }

// restPoints is the cost under the points of REST.
func restPoints(r *http.Request) int {
	if isGraphQL(r) {
		return 0
	}
	switch throttle.Method(r) {
	case http.MethodGet, http.MethodHead, http.MethodOptions:
		return 1
	}
	return mutationPoints
}

// graphqlPoints is the cost under the points of GraphQL.
func graphqlPoints(r *http.Request) int {
	if graphql.Mutates(r) {
		return mutationPoints
	}
	return 1
}

// creates is what Options.Creates defaults to.
func creates(r *http.Request) bool {
	if isGraphQL(r) {
		return graphql.Mutates(r)
	}
	return r.Method == http.MethodPost || r.Method == http.MethodPut
}
