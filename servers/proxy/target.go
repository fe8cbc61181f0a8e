package proxy

import (
	"net/url"
	"strings"

	"github.com/fleetthrottle/throttle/internal/match"
)

// splitPrefix cuts "/host/path?query" before the path.
func splitPrefix(uri string) (host, rest string) {
	rest = strings.TrimPrefix(uri, "/")
	end := endOf(rest, "/?")
	return rest[:end], rest[end:]
}

// splitAbsolute cuts "http://host/path?query". It takes no user and no password.
func splitAbsolute(uri string) (scheme, host, rest string, ok bool) {
	scheme, rest, ok = strings.Cut(uri, "://")
	scheme = strings.ToLower(scheme)
	if !ok || scheme != "http" && scheme != "https" {
		return "", "", "", false
	}
	end := endOf(rest, "/?")
	return scheme, rest[:end], rest[end:], isHost(rest[:end])
}

// endOf returns where the first of some characters stands in a text, or the length of the text.
func endOf(s, chars string) int {
	if i := strings.IndexAny(s, chars); i >= 0 {
		return i
	}
	return len(s)
}

// isHost reports whether a text has only characters of hosts and ports, so that it is nothing
// else where it stands in a URL.
func isHost(s string) bool {
	return s != "" && !strings.ContainsFunc(s, func(c rune) bool {
		return (c < 'a' || c > 'z') && (c < 'A' || c > 'Z') && (c < '0' || c > '9') && !strings.ContainsRune("-._:[]", c)
	})
}

// newTarget returns a URL that is sent with exactly this path and query; false: there is none.
func newTarget(host, rest string) (*url.URL, bool) {
	path, query, hasQuery := strings.Cut(rest, "?")
	if path != "" && path[0] != '/' || strings.ContainsFunc(rest, breaksLine) || match.HidesDots(path) {
		return nil, false
	}

	u := &url.URL{Scheme: "https", Host: host, RawPath: path, RawQuery: query, ForceQuery: hasQuery && query == ""}
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

// breaksLine reports whether a character would end the target, or the line, of a request of HTTP/1.
func breaksLine(c rune) bool { return c <= ' ' || c == 0x7f }

// dots returns 1 for the segment "." of a path, 2 for the segment "..", whether their dots are encoded or not, and 0
// for any other one.
func dots(seg string) int {
	switch decoded, _ := url.PathUnescape(seg); decoded {
	case ".":
		return 1
	case "..":
		return 2
	}
	return 0
}

// sameHost reports whether two hosts of https are one.
func sameHost(a, b string) bool { return canonical(a) == canonical(b) }

// canonical returns a host of https as it is compared.
func canonical(host string) string {
	name, port := match.SplitPort(host)
	if port == ":443" {
		port = ""
	}
	return strings.TrimSuffix(strings.ToLower(name), ".") + port
}

// hasPort reports whether a host has a port.
func hasPort(host string) bool {
	_, port := match.SplitPort(host)
	return port != ""
}

// withPort returns a host of https with its port.
func withPort(host string) string {
	if hasPort(host) {
		return host
	}
	return host + ":443"
}
