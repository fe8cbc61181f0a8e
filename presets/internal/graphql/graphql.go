// Package graphql tells presets what requests of GraphQL may do, and have done.
package graphql

import (
	"bytes"
	"io"
	"net/http"

	"github.com/fleetthrottle/throttle/feedback"
	"github.com/fleetthrottle/throttle/internal/reqbody"
)

// longestQuery is how many bytes of a query are read: a longer query counts as a mutation.
const longestQuery = 64 << 10

// Mutates reports whether a request may be a mutation. It looks at a copy of the body for the word
// "mutation". To be safe, it takes a body for a mutation that has no copy, cannot be read or is longer
// than longestQuery, and a query that only mentions the word.
func Mutates(r *http.Request) bool {
	// Without GetBody there is no copy to look at.
	if r.GetBody == nil {
		return r.Body != nil && r.Body != http.NoBody
	}
	mutates := true // also if there is no look
	reqbody.Look(r, func(body io.Reader) {
		text, err := io.ReadAll(io.LimitReader(body, longestQuery+1))
		mutates = err != nil || len(text) > longestQuery || bytes.Contains(text, []byte("mutation"))
	})
	return mutates
}

// Acted is for [feedback.Acted]: the request may be a mutation, and its answer
// has data beside the errors. Then some of its fields were resolved, and repeating it
// would do them again.
func Acted(resp *http.Response) bool {
	return feedback.Partly(resp) && (resp.Request == nil || Mutates(resp.Request))
}
