package dashboard

import (
	"context"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/http"
	"net/netip"
	"strconv"
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

const (
	cookieName       = "throttle-dashboard"
	secureCookieName = "__Host-throttle-dashboard" // browsers take it over https alone, and from no other host
	cookieLasts      = 12 * time.Hour
)

// A token is the secret that operators share with the page. The zero token is none, and nobody has it.
type token string

// The least that a token needs to be out of reach of guesses: 128 bits, written as hexadecimal digits or
// with an alphabet of at least 58 characters.
const (
	leastDigits     = 32
	leastCharacters = 22
	leastDifferent  = 8 // so that a token of one character is refused
)

// check returns why a token is too weak.
func (t token) check() error {
	different := make(map[rune]bool)
	digits := true
	for _, c := range string(t) {
		different[c] = true
		digits = digits && strings.ContainsRune("0123456789abcdefABCDEF", c)
		if c <= ' ' || c > '~' {
			return errors.New("dashboard: a token has only printable characters of ASCII and no spaces")
		}
	}

	if len(t) < leastCharacters || digits && len(t) < leastDigits || len(different) < leastDifferent {
		return fmt.Errorf("dashboard: the token is too easy to guess: use %d random hexadecimal digits or more, as \"openssl rand -hex 16\" prints", leastDigits)
	}

	return nil
}

// is reports whether a text is the token. It takes as long for any text.
func (t token) is(text string) bool {
	own, other := sha256.Sum256([]byte(t)), sha256.Sum256([]byte(text))
	return subtle.ConstantTimeCompare(own[:], other[:]) == 1 && t != ""
}

// proof returns the value of a cookie that says until when its holder has the token. No two are equal. The token
// cannot be computed from one, and whoever changes the token ends all of them.
func (t token) proof(until time.Time) string {
	return t.sign(strconv.FormatInt(until.Unix(), 10) + "." + rand.Text())
}

// sign returns a text and its signature, which only who knows the token can compute.
func (t token) sign(text string) string {
	sum := hmac.New(sha256.New, []byte(t))
	sum.Write([]byte("throttle dashboard " + text))
	return text + "." + base64.RawURLEncoding.EncodeToString(sum.Sum(nil))
}

// isProof reports whether a value is one that proof has returned, and not yet over.
func (t token) isProof(value string) bool {
	end, _, _ := strings.Cut(value, ".")
	seconds, err := strconv.ParseInt(end, 10, 64)
	if err != nil || t == "" || !time.Unix(seconds, 0).After(time.Now()) {
		return false
	}
	signed := value[:max(0, strings.LastIndexByte(value, '.'))]
	return subtle.ConstantTimeCompare([]byte(value), []byte(t.sign(signed))) == 1
}

// wrongTokens count attempts with wrong tokens, and slow them. The zero wrongTokens tell nobody.
type wrongTokens struct {
	tell func(client string, attempts int) // nil tells nobody

	mu     sync.Mutex
	count  int       // attempts, ever
	at     time.Time // of the last one
	client string    // of the last one
	told   time.Time // when tell was called last
	held   int       // attempts that wait for their answer
}

const (
	slowBy    = time.Second // how long the answer to a wrong token takes
	mostHeld  = 16          // how many such answers take long at the same time
	toldEvery = time.Minute
)

// meet notes an attempt and holds it for a second. It returns false at once if so many are held already. The right token
// is never held, so attempts of others lock nobody out.
func (w *wrongTokens) meet(ctx context.Context, client string) bool {
	w.mu.Lock()
	now := time.Now()
	w.count, w.at, w.client = w.count+1, now, client
	attempts := w.count

	tells := w.tell != nil && (w.told.IsZero() || now.Sub(w.told) >= toldEvery)
	if tells {
		w.told = now
	}

	holds := w.held < mostHeld
	if holds {
		w.held++
	}

	w.mu.Unlock()

	if tells {
		w.tell(client, attempts)
	}
	if !holds {
		return false
	}

	rest := time.NewTimer(slowBy)
	defer rest.Stop()

	select {
	case <-rest.C:
	case <-ctx.Done():
	}

	w.mu.Lock()
	defer w.mu.Unlock()

	w.held--
	return true
}

// A wrongToken is what a page shows of attempts with wrong tokens.
type wrongToken struct {
	Count  int    `json:"count"`
	At     int64  `json:"at"` // of the last one
	Client string `json:"client"`
}

// read returns what a page shows; nil if there were no attempts.
func (w *wrongTokens) read() *wrongToken {
	if w == nil {
		return nil
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.count == 0 {
		return nil
	}
	return &wrongToken{w.count, w.at.UnixMilli(), w.client}
}

// answerJSON answers with a value.
func answerJSON(w http.ResponseWriter, status int, v any) {
	text, err := json.Marshal(v)
	if err != nil {
		status, text = http.StatusInternalServerError, []byte("{}")
	}
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Cache-Control", "no-store")
	w.WriteHeader(status)
	_, _ = w.Write(text) // a viewer that has gone needs no answer
}

// answerError answers with what is wrong.
func answerError(w http.ResponseWriter, status int, text string) {
	answerJSON(w, status, map[string]string{"error": text})
}

// reader serves those who may read.
func (g *guard) reader(serve http.HandlerFunc) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if a := g.accessOf(r); !a.Read {
			w.Header().Set("WWW-Authenticate", `Bearer realm="dashboard"`)
			w.Header().Set("Connection", "close") // who may not look holds no connection
			answerError(w, a.refusal(), languageOf(r).word(a.why))
			return
		}
		serve(w, r)
	})
}
