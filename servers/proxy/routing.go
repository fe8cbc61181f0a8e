package proxy

import (
	"net"
	"net/http"
	"net/url"
	"strings"

	"github.com/fleetthrottle/throttle/internal/match"
)

// A route says where a request goes, and how its caller addresses hosts.
type route struct {
	target *url.URL
	field  string // Host field of the request to the upstream

	here string // how the caller writes the origin of the target: "http://127.0.0.1:7070/api.example.com"
	root string // prefix of the caller's paths: "/api.example.com"

	// others is the prefix by which the caller reaches further hosts, such as "http://localhost:7070/-/".
	// Clients send no credential of the target there: they treat it as a different origin from here, or have
	// come here by such a link themselves. "" means that there is no such origin.
	others string

	byProxy bool // the caller writes "http://" before a host, and sends the request to the proxy

	instead http.Handler // serves the request instead of forwarding it, or nil
}

// routeOf returns the route of a request to one of many hosts: by the Host field, by the absolute form of the
// request target, or by the first path segment.
func routeOf(r *http.Request, k *known) (*route, *problem) {
	if !strings.HasPrefix(r.RequestURI, "/") {
		return absoluteRoute(r, k)
	}
	if host, name, ok := k.field(r); ok {
		return newRoute(host, name, r.RequestURI, route{here: origin(r)})
	}
	return prefixRoute(r, r.RequestURI, k)
}

// ownPath returns the path and query of a request to the handler's own address. It returns "" if the request
// names a host by its Host field or by its absolute form.
func (k *known) ownPath(r *http.Request) string {
	if _, _, ok := k.field(r); ok {
		return ""
	}
	if strings.HasPrefix(r.RequestURI, "/") {
		return r.RequestURI
	}
	if _, authority, rest, ok := splitAbsolute(r.RequestURI); ok && isOwn(r, authority) {
		return rest
	}
	return ""
}

// crossed begins the path of a link from one API to another. Without it the second redirect of a chain would
// lead back to the origin of the first API, to which clients such as curl send the credential again.
const crossed = "/-"

// prefixRoute returns the route of "/host/path", or of "/-/host/path". It refuses hosts that no policy names.
func prefixRoute(r *http.Request, uri string, k *known) (*route, *problem) {
	others, root := otherOrigin(r), ""
	if behind, ok := strings.CutPrefix(uri, crossed+"/"); ok {
		uri, root = "/"+behind, crossed

		// The caller has left its credential at the first origin.
		if others != "" {
			others = origin(r)
		}
	}
	if others != "" {
		others += crossed + "/"
	}

	host, rest := splitPrefix(uri)
	if !isHost(host) {
		return nil, newProblem(http.StatusBadRequest, "the path begins with no host: use http://ADDRESS-OF-THIS-PROXY/HOST/ as the base URL")
	}

	if !k.has(host) {
		if !strings.ContainsAny(host, ".:") {
			return nil, lostHost()
		}
		return nil, unnamed()
	}

	root += "/" + host
	back := route{here: origin(r) + root, others: others, root: root}
	return newRoute(host, host, rest, back)
}

// absoluteRoute returns the route of "http://host/path", as clients with HTTP_PROXY send it.
func absoluteRoute(r *http.Request, k *known) (*route, *problem) {
	scheme, authority, rest, ok := splitAbsolute(r.RequestURI)
	if !ok {
		return nil, newProblem(http.StatusBadRequest, "the target of the request is no path and no URL of http")
	}

	// A client with HTTP_PROXY may also use the proxy's own address as its base URL.
	if isOwn(r, authority) {
		return prefixRoute(r, rest, k)
	}

	// Without a scheme of https, a missing port means any port of the table.
	if scheme == "https" && !hasPort(authority) {
		authority += ":443"
	}

	host, name, ok := k.meant(authority)
	if !ok {
		return nil, unnamed()
	}

	return newRoute(host, name, rest, route{here: "http://" + name, byProxy: true})
}

// tunnelRoute returns the route of a request in a tunnel to an authority.
func tunnelRoute(r *http.Request, authority string, k *known) (*route, *problem) {
	host, name, ok := k.meant(authority)
	if !ok {
		return nil, unnamed()
	}
	if r.Method == http.MethodConnect {
		return nil, newProblem(http.StatusForbidden, "there is no tunnel in a tunnel")
	}

	field, rest := r.Host, r.RequestURI
	if !strings.HasPrefix(rest, "/") {
		_, field, rest, ok = splitAbsolute(rest)
		if !ok {
			return nil, newProblem(http.StatusBadRequest, "the target of the request is no path and no URL of http")
		}
	}

	if _, own, _ := k.meant(field); field != "" && !sameHost(own, name) {
		return nil, newProblem(http.StatusMisdirectedRequest, "the request is for another host than its tunnel")
	}

	return newRoute(host, name, rest, route{here: "http://" + name, byProxy: true})
}

// upstreamRoute returns the route of a request at an address that serves one host.
func upstreamRoute(r *http.Request, host string, k *known) (*route, *problem) {
	if !k.has(host) {
		return nil, newProblem(http.StatusForbidden, "no policy names the host of this address any more")
	}

	rest := r.RequestURI
	if r.Method == http.MethodConnect {
		return nil, newProblem(http.StatusForbidden, "this address is for one host, and has no tunnels")
	}

	if !strings.HasPrefix(rest, "/") {
		_, authority, path, ok := splitAbsolute(rest)
		if !ok || !isOwn(r, authority) && !sameHost(authority, host) {
			return nil, newProblem(http.StatusForbidden, "this address is for one host, and for paths")
		}
		rest = path
	}

	name := strings.TrimSuffix(host, ":443")
	return newRoute(host, name, rest, route{here: origin(r)})
}

// newRoute completes a route with its target, "/path?query" at a host.
func newRoute(host, name, rest string, back route) (*route, *problem) {
	target, ok := newTarget(host, rest)
	if !ok {
		return nil, newProblem(http.StatusBadRequest, "the path cannot be sent on as it is: escape its odd characters")
	}
	back.target, back.field = target, name
	return &back, nil
}

// lostHost is the answer to a path without the host of an API, such as /v1/models.
func lostHost() *problem {
	return newProblem(http.StatusForbidden, "no policy names this host: a client that takes its path for one from the root drops the host of the API from the base URL; the waiting API has /v1/acquire, /v1/release, /v1/settle, /v1/penalize and /v1/openapi.yaml")
}

// unnamed is the answer to a request for a host that no policy names.
func unnamed() *problem { return newProblem(http.StatusForbidden, "no policy names this host") }

// origin returns the caller's address of the proxy, or "" if the Host field is not usable.
func origin(r *http.Request) string {
	switch {
	case !isHost(r.Host):
		return ""
	case r.TLS != nil:
		return "https://" + r.Host
	}
	return "http://" + r.Host
}

// otherOrigin returns the origin by which a loopback caller reaches a different host: the same address under
// its second name, 127.0.0.1 for localhost and vice versa. Clients drop Authorization and cookies when a
// redirect crosses from one name to the second. It returns "" if the caller uses neither name.
func otherOrigin(r *http.Request) string {
	name, port := match.SplitPort(r.Host)
	at, _ := r.Context().Value(http.LocalAddrContextKey).(net.Addr)

	switch {
	case r.TLS != nil:
		// A certificate may be valid for one of the names only.
		return ""
	case name == "127.0.0.1", name == "[::1]":
		return "http://localhost" + port
	case !strings.EqualFold(name, "localhost"):
		return ""
	case at != nil && strings.HasPrefix(at.String(), "[::1]"):
		return "http://[::1]" + port
	}

	return "http://127.0.0.1" + port
}

// splitPrefix splits "/host/path?query" before the path.
func splitPrefix(uri string) (host, rest string) {
	rest = strings.TrimPrefix(uri, "/")
	end := endOf(rest, "/?")
	return rest[:end], rest[end:]
}

// splitAbsolute splits "http://host/path?query". It refuses a user and a password.
func splitAbsolute(uri string) (scheme, host, rest string, ok bool) {
	scheme, rest, ok = strings.Cut(uri, "://")
	scheme = strings.ToLower(scheme)
	if !ok || scheme != "http" && scheme != "https" {
		return "", "", "", false
	}
	end := endOf(rest, "/?")
	return scheme, rest[:end], rest[end:], isHost(rest[:end])
}

// endOf returns the index of the first of some characters in s, or the length of s.
func endOf(s, chars string) int {
	if i := strings.IndexAny(s, chars); i >= 0 {
		return i
	}
	return len(s)
}

// isHost reports whether s has only characters of hosts and ports, so that it cannot be read as a different
// part of a URL.
func isHost(s string) bool {
	return s != "" && !strings.ContainsFunc(s, func(c rune) bool {
		return (c < 'a' || c > 'z') && (c < 'A' || c > 'Z') && (c < '0' || c > '9') && !strings.ContainsRune("-._:[]", c)
	})
}

// newTarget returns a URL whose path and query are sent byte for byte, or false if no such URL exists.
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

	u.Opaque = path // keeps characters that net/url would escape

	// net/http takes an opaque path that begins with // for an authority.
	return u, !strings.HasPrefix(path, "//")
}

// breaksLine reports whether a character would end the request target, or the line, in HTTP/1.
func breaksLine(c rune) bool { return c <= ' ' || c == 0x7f }

// dots returns 1 for the path segment ".", 2 for "..", encoded or not, and 0 for all further segments.
func dots(seg string) int {
	switch decoded, _ := url.PathUnescape(seg); decoded {
	case ".":
		return 1
	case "..":
		return 2
	}
	return 0
}

// sameHost reports whether two hosts are the same over https.
func sameHost(a, b string) bool { return canonical(a) == canonical(b) }

// canonical returns an https host in the form for comparisons.
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

// withPort returns an https host with its port.
func withPort(host string) string {
	if hasPort(host) {
		return host
	}
	return host + ":443"
}
