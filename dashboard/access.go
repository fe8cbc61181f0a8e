package dashboard

import (
	"net"
	"net/http"
	"net/netip"
	"strings"
)

// An access is what a request may do.
type access struct {
	Read  bool `json:"read"`
	Act   bool `json:"act"`
	Token bool `json:"token"` // there is a token that would help

	User string `json:"user,omitempty"` // who asks, if a login says so
	why  string // why Read is false: a word of words.json
}

// A guard knows who may do what.
type guard struct {
	token      token
	login      func(*http.Request) (user string, ok bool) // nil: there is none
	trustProxy bool
}

// accessOf decides what a request may do. Reading is open to whom the login knows, to who has the token and,
// without a login, to this machine. Acting needs the token.
func (g *guard) accessOf(r *http.Request) access {
	a := access{Token: g.token != "", Act: g.token.isIn(r)}
	a.Read = a.Act
	if g.login != nil {
		var ok bool
		if a.User, ok = g.login(r); !ok {
			return access{why: "no login"}
		}
		a.Read = true
	}
	if !a.Read {
		a.Read, a.why = g.fromHere(r)
	}
	return a
}

// fromHere reports whether a request comes from this machine, or why that cannot be said. The address at
// which it came in decides: nobody else reaches a loopback address. Behind a proxy that is the proxy's,
// so a request with a proxy's fields is not from here, or, if the proxy is trusted, is from where it says.
func (g *guard) fromHere(r *http.Request) (here bool, why string) {
	local, _ := r.Context().Value(http.LocalAddrContextKey).(net.Addr)
	if local == nil || !isLoopback(local.String()) {
		return false, "not local"
	}
	if client, forwarded := forwardedFor(r); forwarded {
		if !g.trustProxy {
			return false, "forwarded"
		}
		if !isLoopback(client) {
			return false, "not local"
		}
		return true, ""
	}
	// A page of another site can make its own name lead here, and would then read what it asks for.
	if !isLoopback(r.Host) {
		return false, "other host"
	}
	return true, ""
}

// forwardedFor returns the client that the last proxy has named, and whether there was a proxy.
func forwardedFor(r *http.Request) (client string, forwarded bool) {
	for _, field := range []string{"Forwarded", "X-Real-Ip", "X-Forwarded-Host", "Via"} {
		forwarded = forwarded || r.Header.Get(field) != ""
	}
	all := strings.Join(r.Header.Values("X-Forwarded-For"), ",")
	return strings.TrimSpace(all[strings.LastIndex(all, ",")+1:]), forwarded || all != ""
}

// isLoopback reports whether an address, with a port or without, is one of this machine that no other reaches.
func isLoopback(address string) bool {
	host := address
	if h, _, err := net.SplitHostPort(address); err == nil {
		host = h
	}
	host = strings.TrimSuffix(strings.TrimPrefix(host, "["), "]")
	ip, err := netip.ParseAddr(host)
	return host == "localhost" || err == nil && ip.Unmap().IsLoopback()
}

// refusal returns the status for who may not read.
func (a *access) refusal() int {
	if a.Token {
		return http.StatusUnauthorized
	}
	return http.StatusForbidden
}
