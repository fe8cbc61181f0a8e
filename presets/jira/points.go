package jira

import (
	"cmp"
	"encoding/json"
	"net/http"
	"strconv"
	"strings"

	"github.com/fleetthrottle/throttle"
	"github.com/fleetthrottle/throttle/internal/peek"
)

// A read without maxResults is taken for one of a single object. No answer has
// more than mostObjects, whatever is asked for.
const mostObjects = 10_000

var maxResults = throttle.Query("maxResults")

// points is the default of [Options.Points].
func points(r *http.Request) int {
	if hasAPIToken(r) {
		return 0
	}
	if !reads(r) {
		return 1
	}
	n, err := strconv.Atoi(cmp.Or(maxResults(r), "1"))
	if err != nil || n < 1 {
		n = 1
	}
	return pointsOf(r, min(n, mostObjects))
}

// hasAPIToken reports whether a request has a user's API token, which travels as a password.
func hasAPIToken(r *http.Request) bool {
	scheme, _, _ := strings.Cut(r.Header.Get("Authorization"), " ")
	return strings.EqualFold(scheme, "Basic")
}

// pointsOf is what a read costs that finds n objects.
func pointsOf(r *http.Request, n int) int {
	if strings.Contains(throttle.Path(r), "/user") {
		return 1 + 2*n
	}
	return 1 + n
}

// settle is a [throttle.Policy.Settle] that counts the objects of a short answer.
// A long one is left alone: it has about as many as were asked for.
func settle(resp *http.Response) int {
	if resp.Request == nil || hasAPIToken(resp.Request) || !reads(resp.Request) || resp.StatusCode != http.StatusOK ||
		resp.ContentLength > short || !strings.HasPrefix(resp.Header.Get("Content-Type"), "application/json") {
		return -1
	}
	var body json.RawMessage // read no further than to its end
	if json.NewDecoder(peek.Reader(resp, short)).Decode(&body) != nil {
		return -1
	}
	n, ok := objects(body)
	if !ok {
		return -1
	}
	return pointsOf(resp.Request, n)
}

const short = 64 << 10

// objects counts those of a page, of a list, or the one that there is; ok is
// false if the body is neither.
func objects(body []byte) (n int, ok bool) {
	var list []json.RawMessage
	if json.Unmarshal(body, &list) == nil {
		return len(list), true
	}
	var page struct{ Issues, Values []json.RawMessage }
	if json.Unmarshal(body, &page) != nil {
		return 0, false
	}
	if page.Issues == nil && page.Values == nil {
		return 1, true
	}
	return len(page.Issues) + len(page.Values), true
}
