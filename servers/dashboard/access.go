package dashboard

import (
	"maps"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"sync"
	"time"

	"github.com/fleetthrottle/throttle/redisstore/fleet"
)

// An access is what a request may do.
type access struct {
	Read  bool `json:"read"`
	Act   bool `json:"act"`
	Token bool `json:"token"` // there is a token that would help

	User string `json:"user,omitempty"` // who asks, if a login says so
	why  string // why Read is false: a word of words.json
}

// A guard knows who may do what. It is safe for concurrent use.
type guard struct {
	token      token
	login      func(*http.Request) (user string, ok bool) // nil if there is none
	local      bool                                       // this machine may look without the token
	trustProxy bool
	wrong      wrongTokens

	mu      sync.Mutex
	revoked map[string]time.Time // proofs that were taken back, and when each would have ended
}

// accessOf decides what a request may do. Reading is open to whom the login knows, to who has the token and,
// without a login and if that is wanted, to this machine. Acting needs the token.
func (g *guard) accessOf(r *http.Request) access {
	a := access{Token: g.token != "", Act: g.hasToken(r)}
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

// hasToken reports whether a request has the token: typed once, so that a cookie proves it, or in its Authorization.
func (g *guard) hasToken(r *http.Request) bool {
	if text, ok := bearer(r); ok && g.token.is(text) {
		return true
	}
	for _, name := range []string{cookieName, secureCookieName} {
		for _, c := range r.CookiesNamed(name) {
			if g.token.isProof(c.Value) && !g.isRevoked(c.Value) {
				return true
			}
		}
	}
	return false
}

// bearer returns the token in the Authorization of a request; false if there is none.
func bearer(r *http.Request) (text string, ok bool) {
	scheme, text, _ := strings.Cut(r.Header.Get("Authorization"), " ")
	return text, strings.EqualFold(scheme, "bearer") && text != ""
}

// mostRevoked bounds the proofs that are remembered to be taken back.
const mostRevoked = 10_000

// revoke takes back the proofs of a request, so that nobody who has a copy of one can use it.
func (g *guard) revoke(r *http.Request) {
	g.mu.Lock()
	defer g.mu.Unlock()

	for _, name := range []string{cookieName, secureCookieName} {
		for _, c := range r.CookiesNamed(name) {
			if g.token.isProof(c.Value) {
				g.revoked[c.Value] = time.Now().Add(cookieLasts)
			}
		}
	}

	if len(g.revoked) > mostRevoked {
		maps.DeleteFunc(g.revoked, func(_ string, end time.Time) bool { return end.Before(time.Now()) })
	}
}

// isRevoked reports whether a proof was taken back.
func (g *guard) isRevoked(proof string) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	_, revoked := g.revoked[proof]
	return revoked
}

// refuseWrong slows and refuses requests that come with a wrong token. Behind a login, Authorization may be what the
// login reads, and is left to it.
func (g *guard) refuseWrong(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if text, ok := bearer(r); ok && g.login == nil && g.token != "" && !g.token.is(text) {
			g.answerWrong(w, r)
			return
		}
		next.ServeHTTP(w, r)
	})
}

// answerWrong answers an attempt with a wrong token, slowly.
func (g *guard) answerWrong(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Connection", "close") // who does not know the token holds no connection
	if !g.wrong.meet(r.Context(), g.clientOf(r)) {
		w.Header().Set("Retry-After", "1")
		answerError(w, http.StatusTooManyRequests, languageOf(r).word("many wrong tokens"))
		return
	}
	answerError(w, http.StatusUnauthorized, languageOf(r).word("wrong token"))
}

// clientOf returns the address that a request comes from, as far as that is known.
func (g *guard) clientOf(r *http.Request) string {
	client, forwarded := forwardedFor(r)
	if !g.trustProxy || !forwarded || client == "" {
		client, _, _ = net.SplitHostPort(r.RemoteAddr)
	}
	return fleet.Clean(client, longestName)
}

// isSecure reports whether a request came over https, as far as that is known.
func (g *guard) isSecure(r *http.Request) bool {
	return r.TLS != nil || g.trustProxy && r.Header.Get("X-Forwarded-Proto") == "https"
}

// fromHere reports whether a request comes from this machine and may therefore look, or why not. The address at
// which it came in decides: nobody else reaches a loopback address. Behind a proxy that is the proxy's,
// so a request with a proxy's fields is not from here, or, if the proxy is trusted, is from where it says. A proxy that
// sets no such field cannot be told from a person here, so looking without the token is off unless it is asked for.
func (g *guard) fromHere(r *http.Request) (here bool, why string) {
	if !g.local {
		return false, "token wanted"
	}

	local, _ := r.Context().Value(http.LocalAddrContextKey).(net.Addr)
	if local == nil || !isLoopback(local.String()) {
		return false, "not local"
	}

	client, forwarded := forwardedFor(r)
	switch {
	case forwarded && !g.trustProxy:
		return false, "forwarded"
	case g.trustProxy && !isLoopback(client): // also if the proxy has not said who asks
		return false, "not local"
	case g.trustProxy:
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
	for _, field := range []string{"Forwarded", "X-Real-Ip", "X-Forwarded-Host", "X-Forwarded-Proto", "X-Forwarded-Port", "X-Forwarded-Server", "X-Forwarded-Prefix", "X-Original-Forwarded-For", "X-Envoy-External-Address", "Cf-Connecting-Ip", "True-Client-Ip", "X-Client-Ip", "Via"} {
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
