package proxy

import (
	"net/http"
	"net/url"
	"strings"
)

// targetOf returns the URL that a request is for, at one of the hosts.
func targetOf(r *http.Request, hosts func(host string) bool) (*url.URL, *problem) {
	if r.Method == http.MethodConnect || !strings.HasPrefix(r.RequestURI, "/") {
		return nil, newProblem(http.StatusForbidden, "this is no forward proxy: use http://ADDRESS-OF-THIS-PROXY/HOST/ as the base URL")
	}
	host, path, query, hasQuery := splitTarget(r.RequestURI)
	if !isHost(host) {
		return nil, newProblem(http.StatusBadRequest, "the path begins with no host: use http://ADDRESS-OF-THIS-PROXY/HOST/ as the base URL")
	}
	if !hosts(host) {
		return nil, newProblem(http.StatusForbidden, "no policy names this host")
	}
	target, ok := newTarget(host, path)
	if !ok {
		return nil, newProblem(http.StatusBadRequest, "the path cannot be sent on as it is: escape its odd characters")
	}
	target.RawQuery, target.ForceQuery = query, hasQuery && query == ""
	return target, nil
}

// splitTarget cuts "/host/path?query".
func splitTarget(uri string) (host, path, query string, hasQuery bool) {
	rest, query, hasQuery := strings.Cut(uri[len("/"):], "?")
	end := strings.IndexByte(rest, '/')
	if end < 0 {
		end = len(rest)
	}
	return rest[:end], rest[end:], query, hasQuery
}

// isHost reports whether a text has only characters of hosts and ports, so that it is nothing
// else where it stands in a URL.
func isHost(s string) bool {
	return s != "" && !strings.ContainsFunc(s, func(c rune) bool {
		return (c < 'a' || c > 'z') && (c < 'A' || c > 'Z') && (c < '0' || c > '9') && !strings.ContainsRune("-._:[]", c)
	})
}

// newTarget returns a URL that is sent with exactly this path; false: there is none.
func newTarget(host, path string) (*url.URL, bool) {
	u := &url.URL{Scheme: "https", Host: host, RawPath: path}
	var err error
	if u.Path, err = url.PathUnescape(path); err != nil {
		return nil, false
	}
	if u.EscapedPath() == path {
		return u, true
	}
	u.Opaque = path // with characters that net/url would escape
	return u, !strings.HasPrefix(path, "//")
}
