package jira

import (
	"net/http"
	"strings"

	"github.com/fleetthrottle/throttle"
)

// endpoint is the default of [Options.Endpoint]: "/rest/api/3/issue/ABC-1" is
// "/rest/api/*/issue/*".
func endpoint(r *http.Request) string {
	_, path, _ := strings.Cut(throttle.RawPath(r), "/rest/")
	segments := strings.Split(path, "/")
	for i, s := range segments {
		if hasDigit(s) {
			segments[i] = "*"
		}
	}
	return strings.Join(segments, "/")
}

// issue is the id or the key of the issue that a path is about; "" if it is about
// none, as in "/rest/api/3/issue/bulk".
func issue(r *http.Request) string {
	_, path, _ := strings.Cut(throttle.RawPath(r), "/rest/api/")
	_, path, _ = strings.Cut(path, "/") // without the version
	rest, ok := strings.CutPrefix(path, "issue/")
	id, _, _ := strings.Cut(rest, "/")
	if !ok || !hasDigit(id) {
		return ""
	}
	return id
}

func hasDigit(s string) bool { return strings.ContainsAny(s, "0123456789") }

// writes is a [throttle.Policy.Cost]: only writes to an issue count.
func writes(r *http.Request) int {
	if issue(r) == "" || reads(r) {
		return 0
	}
	return 1
}

func reads(r *http.Request) bool {
	method := throttle.Method(r)
	return method == http.MethodGet || method == http.MethodHead
}
