package github

import (
	"bytes"
	"io"
	"net/http"
	"strings"

	"github.com/fleetthrottle/throttle"
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
	if mutates(r) {
		return mutationPoints
	}
	return 1
}

// creates is what Options.Creates defaults to.
func creates(r *http.Request) bool {
	if isGraphQL(r) {
		return mutates(r)
	}
	return r.Method == http.MethodPost || r.Method == http.MethodPut
}

// longestQuery is how much of a query is looked at: one that is longer counts as
// a mutation.
const longestQuery = 64 << 10

// mutates reports whether a GraphQL request may be a mutation. It looks at a
// copy of the body. A query that only mentions the word costs too much, which is
// safe.
func mutates(r *http.Request) bool {
	if r.GetBody == nil {
		return r.Body != nil && r.Body != http.NoBody
	}
	body, err := r.GetBody()
	if err != nil {
		return true
	}
	defer body.Close()
	text, err := io.ReadAll(io.LimitReader(body, longestQuery+1))
	return err != nil || len(text) > longestQuery || bytes.Contains(text, []byte("mutation"))
}
