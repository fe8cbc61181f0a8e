package jira

import (
	"cmp"
	"net/http"
	"strconv"
	"strings"

	"github.com/fleetthrottle/throttle"
	"github.com/fleetthrottle/throttle/internal/jsonscan"
	"github.com/fleetthrottle/throttle/internal/peek"
)

// mostObjects is how many objects an answer has at most, whatever the request asks for.
const mostObjects = 10_000

var maxResults = throttle.Query("maxResults")

// points is the default of [Options.Points]: 1, and for a read 1 or 2 more for each object that it
// may find. A read without maxResults is taken for a read of one object. A request with a user's API
// token is free.
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

// pointsOf is the cost of a read that finds n objects.
func pointsOf(r *http.Request, n int) int {
	if strings.Contains(throttle.RawPath(r), "/user") {
		return 1 + 2*n
	}
	return 1 + n
}

// settle is a [throttle.Policy.Answer] that sets the cost of a read by the objects in its answer. A long answer keeps its
// estimate, because it has about as many objects as the request asked for. So does an answer that cannot be counted.
func settle(resp *http.Response) throttle.Answer {
	costsObjects := resp.Request != nil && reads(resp.Request) && !hasAPIToken(resp.Request)
	isJSON := strings.HasPrefix(resp.Header.Get("Content-Type"), "application/json")
	if !costsObjects || !isJSON || resp.StatusCode != http.StatusOK || resp.ContentLength > short {
		return throttle.Answer{}
	}

	n, ok := objects(jsonscan.New(peek.Reader(resp, short), piece))
	if !ok {
		return throttle.Answer{}
	}
	return throttle.Answer{}.WithCost(pointsOf(resp.Request, n))
}

const (
	short = 64 << 10 // of answers that are looked at
	piece = 512      // of an answer that is read at a time
)

// objects counts the objects of a page or of a list, and a single object as 1. ok is false for any
// other text, and for a text that ends too early.
func objects(s *jsonscan.Scanner) (n int, ok bool) {
	switch s.Peek() {
	case '[':
		return elements(s)
	case '{':
	default:
		return 0, false
	}

	page := false
	ok = s.Object(func(name []byte) bool {
		// A page has its objects in one of these members.
		if text := string(name); text != "issues" && text != "values" || s.Peek() != '[' {
			return s.Skip()
		}

		page = true
		more, ok := elements(s)
		n += more

		return ok
	})

	// An object that is not a page counts as one.
	if !page {
		n = 1
	}

	return n, ok
}

// elements reads a list and counts its elements. ok is false if the list does not end, or is no JSON.
func elements(s *jsonscan.Scanner) (n int, ok bool) {
	s.Open()
	for {
		more, ok := s.Element(n == 0)
		if !more {
			return n, ok
		}
		if !s.Skip() {
			return n, false
		}
		n++
	}
}
