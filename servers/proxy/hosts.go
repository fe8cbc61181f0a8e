package proxy

import (
	"net"
	"net/http"
	"strings"

	"github.com/fleetthrottle/throttle"
	"github.com/fleetthrottle/throttle/internal/loopback"
	"github.com/fleetthrottle/throttle/internal/match"
)

// Hosts returns a [Config.Hosts] that knows the hosts of a [Table].
func Hosts(policies []throttle.Policy) func(host string) bool { return NewTable(policies).Has }

// known is what a handler knows of hosts.
type known struct {
	has   func(host string) bool
	table func() *Table // nil: there is none
}

// atAnyPort returns the host that a caller means who names no port, or port 80: a caller speaks
// plain HTTP to the proxy, and the proxy goes on by https.
func (k *known) atAnyPort(name string) (host string, ok bool) {
	if k.table != nil {
		return k.table().atAnyPort(name)
	}
	return name, k.has(name)
}

// meant returns the host that http://authority/ means; false: no policy names it. name is what a
// program that asks this host has in its Host field.
func (k *known) meant(authority string) (host, name string, ok bool) {
	name, port := match.SplitPort(authority)
	switch port {
	case "", ":", ":80":
		host, ok = k.atAnyPort(name)
		return host, name, ok
	case ":443":
		return name, name, k.has(name)
	}
	return authority, authority, k.has(authority)
}

// field returns the host that the Host field of a request means; false: it names the proxy
// itself, or a host that no policy names.
func (k *known) field(r *http.Request) (host, name string, ok bool) {
	switch {
	case loopback.IsHost(r.Host) || !isHost(r.Host):
		return "", "", false
	case k.has(r.Host):
		return r.Host, r.Host, true
	}
	authority := r.Host
	if name, port := match.SplitPort(authority); port != "" && port[1:] == ownPort(r) {
		authority = name
	}
	return k.meant(authority)
}

// admits reports whether a request names this machine or a host of the policies. A request that is
// not for a path says by its form that it is for a proxy, and no web page writes that.
func (k *known) admits(r *http.Request) bool {
	if loopback.IsHost(r.Host) || !strings.HasPrefix(r.RequestURI, "/") {
		return true
	}
	_, _, ok := k.field(r)
	return ok
}

// ownPort returns the port at which a request has come in; "": at none.
func ownPort(r *http.Request) string {
	if at, ok := r.Context().Value(http.LocalAddrContextKey).(net.Addr); ok {
		if _, port, err := net.SplitHostPort(at.String()); err == nil {
			return port
		}
	}
	return ""
}

// isOwn reports whether an authority is the address at which a request has come in.
func isOwn(r *http.Request, authority string) bool {
	name, port := match.SplitPort(authority)
	if port == "" {
		port = ":80"
	}
	at, ok := r.Context().Value(http.LocalAddrContextKey).(net.Addr)
	return ok && port[1:] == ownPort(r) && (loopback.IsHost(name) || at.String() == authority)
}

// onLoopback reports whether only this machine reaches the address at which a request has come in.
func onLoopback(r *http.Request) bool {
	at, ok := r.Context().Value(http.LocalAddrContextKey).(*net.TCPAddr)
	return ok && at.IP.IsLoopback()
}

// onSocket reports whether a request has come in by a socket of Unix, which no web page reaches.
func onSocket(r *http.Request) bool {
	_, ok := r.Context().Value(http.LocalAddrContextKey).(*net.UnixAddr)
	return ok
}
