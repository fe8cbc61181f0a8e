package proxy

import (
	"net"
	"net/http"
	"strings"

	"github.com/fleetthrottle/throttle/internal/match"
)

// routeOf returns the route of a request that is for one of many hosts: the one in its Host
// field, in an absolute form, or at the begin of its path.
func routeOf(r *http.Request, k *known) (*route, *problem) {
	if !strings.HasPrefix(r.RequestURI, "/") {
		return absoluteRoute(r, k)
	}
	if host, name, ok := k.field(r); ok {
		return newRoute(host, name, r.RequestURI, route{here: origin(r)})
	}
	return prefixRoute(r, r.RequestURI, k)
}

// ownPath returns the path and query of a request that is for the address of the handler itself; ""
// if it is for a host in another way than by its path.
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

// prefixRoute is the route of "/host/path".
func prefixRoute(r *http.Request, uri string, k *known) (*route, *problem) {
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

	back := route{here: origin(r) + "/" + host, others: otherOrigin(r), root: "/" + host}
	return newRoute(host, host, rest, back)
}

// absoluteRoute is the route of "http://host/path", as programs with HTTP_PROXY write it.
func absoluteRoute(r *http.Request, k *known) (*route, *problem) {
	scheme, authority, rest, ok := splitAbsolute(r.RequestURI)
	if !ok {
		return nil, newProblem(http.StatusBadRequest, "the target of the request is no path and no URL of http")
	}
	if isOwn(r, authority) {
		return prefixRoute(r, rest, k)
	}
	if scheme == "https" && !hasPort(authority) {
		authority += ":443"
	}

	host, name, ok := k.meant(authority)
	if !ok {
		return nil, unnamed()
	}

	return newRoute(host, name, rest, route{here: "http://" + name, byProxy: true})
}

// tunnelRoute is the route of a request in a tunnel to an authority.
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
		if _, field, rest, ok = splitAbsolute(rest); !ok {
			return nil, newProblem(http.StatusBadRequest, "the target of the request is no path and no URL of http")
		}
	}

	if _, own, _ := k.meant(field); field != "" && !sameHost(own, name) {
		return nil, newProblem(http.StatusMisdirectedRequest, "the request is for another host than its tunnel")
	}

	return newRoute(host, name, rest, route{here: "http://" + name, byProxy: true})
}

// upstreamRoute is the route of a request that has come in where everything is for one host.
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

// newRoute completes a route with its target: "/path?query" at a host.
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

// unnamed is the answer to a request for a host that is not in the file.
func unnamed() *problem { return newProblem(http.StatusForbidden, "no policy names this host") }

// origin returns how a caller writes the address of the proxy; "" if it does not say.
func origin(r *http.Request) string {
	switch {
	case !isHost(r.Host):
		return ""
	case r.TLS != nil:
		return "https://" + r.Host
	}
	return "http://" + r.Host
}

// otherOrigin returns what a caller of the loopback puts before another host than that of its request: the same
// address under another name, 127.0.0.1 for localhost and the other way round. Clients drop Authorization and cookies
// when a redirect leads from one to the other. It is empty if the caller has not written such an address.
func otherOrigin(r *http.Request) string {
	name, port := match.SplitPort(r.Host)
	at, _ := r.Context().Value(http.LocalAddrContextKey).(net.Addr)

	switch {
	case r.TLS != nil:
		return "" // a certificate may be for one name alone
	case name == "127.0.0.1", name == "[::1]":
		return "http://localhost" + port + "/"
	case !strings.EqualFold(name, "localhost"):
		return ""
	case at != nil && strings.HasPrefix(at.String(), "[::1]"):
		return "http://[::1]" + port + "/"
	}

	return "http://127.0.0.1" + port + "/"
}
