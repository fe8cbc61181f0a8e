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
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/fleetthrottle/throttle/internal/inbound"
	"github.com/fleetthrottle/throttle/redisstore/fleet"
)

// An access is the rights of a request.
type access struct {
	Read  bool `json:"read"`
	Act   bool `json:"act"`
	Token bool `json:"token"` // there is a token that would help

	User string `json:"user,omitempty"` // name from the login
	why  string // why Read is false: a key of words.json
}

// A guard decides who may do what. It is safe for concurrent use.
type guard struct {
	token      token
	login      func(*http.Request) (user string, ok bool) // nil without a login
	local      bool                                       // loopback viewers need no token
	trustProxy bool
	wrong      wrongTokens
	letIn      func(*http.Request) // nil without a callback

	mu      sync.Mutex
	revoked map[string]time.Time // expiry of each revoked proof
}

// accessOf returns the rights of a request. If the configuration has a login, the login gives the right to look, and without
// it a request has no right. Otherwise the token gives the right to look, or with local a loopback address. In both cases
// acting needs the token.
func (g *guard) accessOf(r *http.Request) access {
	a := access{Token: g.token != "", Act: g.hasToken(r)}
	a.Read = a.Act

	if g.login != nil {
		var ok bool
		a.User, ok = g.login(r)

		// The login comes first: without it even the token gives no right.
		if !ok {
			return access{why: "no login"}
		}
		a.Read = true
	}

	if !a.Read {
		a.Read, a.why = g.fromHere(r)
	}

	return a
}

// hasToken reports whether a request has the token: in Authorization, or proved by a cookie.
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

// bearer returns the bearer token of a request. ok is false without one.
func bearer(r *http.Request) (text string, ok bool) {
	scheme, text, _ := strings.Cut(r.Header.Get("Authorization"), " ")
	return text, strings.EqualFold(scheme, "bearer") && text != ""
}

// mostRevoked is how many revoked proofs are remembered before revoke looks for expired ones.
const mostRevoked = 10_000

// revoke revokes the genuine proofs of a request, so that a copied cookie is worthless.
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

	// Proofs that have expired are refused anyway.
	if len(g.revoked) > mostRevoked {
		maps.DeleteFunc(g.revoked, func(_ string, end time.Time) bool { return end.Before(time.Now()) })
	}
}

// isRevoked reports whether a proof was revoked.
func (g *guard) isRevoked(proof string) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	_, revoked := g.revoked[proof]
	return revoked
}

// refuseWrong returns a handler that refuses requests with a wrong token, by answerWrong, and passes on all others.
func (g *guard) refuseWrong(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		// Behind a login, Authorization belongs to the login.
		expectsToken := g.login == nil && g.token != ""
		if text, ok := bearer(r); ok && expectsToken && !g.token.is(text) {
			g.answerWrong(w, r)
			return
		}
		next.ServeHTTP(w, r)
	})
}

// answerWrong answers an attempt with a wrong token: after a delay with 401, or at once with 429 if too many answers are
// delayed already.
func (g *guard) answerWrong(w http.ResponseWriter, r *http.Request) {
	// Close the connection: a client without the token must not keep one open.
	w.Header().Set("Connection", "close")
	if !g.wrong.meet(r.Context(), g.clientOf(r)) {
		w.Header().Set("Retry-After", "1")
		answerError(w, http.StatusTooManyRequests, languageOf(r).word("many wrong tokens"))
		return
	}
	answerError(w, http.StatusUnauthorized, languageOf(r).word("wrong token"))
}

// clientOf returns the client address of a request: the address that a trusted proxy names, or that of the connection.
func (g *guard) clientOf(r *http.Request) string {
	client, forwarded := forwardedFor(r)
	if !g.trustProxy || !forwarded || client == "" {
		client, _, _ = net.SplitHostPort(r.RemoteAddr)
	}
	return fleet.Clean(client, longestName)
}

// isSecure reports whether a request came over https, as far as known.
func (g *guard) isSecure(r *http.Request) bool {
	return r.TLS != nil || g.trustProxy && r.Header.Get("X-Forwarded-Proto") == "https"
}

// fromHere reports whether a request comes from this machine, or why it does not count as local. The local
// address of the connection decides: no other machine reaches a loopback address. Behind a proxy the
// connection is the proxy's. A request with proxy headers is therefore not local, or, with a trusted proxy,
// is from the client that the proxy names. A proxy without such headers cannot be told from a local user,
// which is why local is off by default.
func (g *guard) fromHere(r *http.Request) (here bool, why string) {
	if !g.local {
		return false, "token wanted"
	}

	local, _ := r.Context().Value(http.LocalAddrContextKey).(net.Addr)
	if local == nil || !inbound.IsLoopbackHost(local.String()) {
		return false, "not local"
	}

	client, forwarded := forwardedFor(r)
	switch {
	case forwarded && !g.trustProxy:
		return false, "forwarded"
	case g.trustProxy && !inbound.IsLoopbackHost(client): // also if the proxy names no client
		return false, "not local"
	case g.trustProxy:
		return true, ""
	}

	// Defend against DNS rebinding: a foreign site can resolve its own name to this machine and would then
	// read the answers.
	if !inbound.IsLoopbackHost(r.Host) {
		return false, "other host"
	}

	return true, ""
}

// forwardedFor returns the client that the nearest proxy names, and whether a proxy forwarded the request.
func forwardedFor(r *http.Request) (client string, forwarded bool) {
	for _, field := range []string{"Forwarded", "X-Real-Ip", "X-Forwarded-Host", "X-Forwarded-Proto", "X-Forwarded-Port", "X-Forwarded-Server", "X-Forwarded-Prefix", "X-Original-Forwarded-For", "X-Envoy-External-Address", "Cf-Connecting-Ip", "True-Client-Ip", "X-Client-Ip", "Via"} {
		forwarded = forwarded || r.Header.Get(field) != ""
	}
	all := strings.Join(r.Header.Values("X-Forwarded-For"), ",")
	return strings.TrimSpace(all[strings.LastIndex(all, ",")+1:]), forwarded || all != ""
}

// refusal returns the status for a request without the right to look, or to act.
func (a *access) refusal() int {
	if a.Token {
		return http.StatusUnauthorized
	}
	return http.StatusForbidden
}

const (
	cookieName       = "throttle-dashboard"
	secureCookieName = "__Host-throttle-dashboard" // browsers accept it only over https, and only from this host
	cookieLasts      = 12 * time.Hour
)

// A token is the secret that operators share with the page. The zero token matches nothing.
type token string

// Least strength of a token: 128 bits, as hexadecimal digits or in an alphabet
// of at least 58 characters.
const (
	leastDigits     = 32
	leastCharacters = 22
	leastDifferent  = 8 // refuses a token of one repeated character
)

// check returns why a token is too weak, or unfit for a header, or nil.
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

	// A hexadecimal digit carries only four bits, so a token of such digits must be longer.
	isShort := len(t) < leastCharacters || digits && len(t) < leastDigits
	if isShort || len(different) < leastDifferent {
		return fmt.Errorf("dashboard: the token is too easy to guess: use %d random hexadecimal digits or more, as \"openssl rand -hex 16\" prints", leastDigits)
	}

	return nil
}

// is reports whether a text is the token, in constant time.
func (t token) is(text string) bool {
	own, other := sha256.Sum256([]byte(t)), sha256.Sum256([]byte(text))
	return subtle.ConstantTimeCompare(own[:], other[:]) == 1 && t != ""
}

// proof returns a cookie value that proves possession of the token until a time. Every value is different.
// The token cannot be computed from a value, and changing the token voids all values.
func (t token) proof(until time.Time) string {
	return t.sign(strconv.FormatInt(until.Unix(), 10) + "." + rand.Text())
}

// sign returns a text with its signature under the token.
func (t token) sign(text string) string {
	sum := hmac.New(sha256.New, []byte(t))
	sum.Write([]byte("throttle dashboard " + text))
	return text + "." + base64.RawURLEncoding.EncodeToString(sum.Sum(nil))
}

// isProof reports whether a value was created by the method proof of this token, and has not expired.
func (t token) isProof(value string) bool {
	end, _, _ := strings.Cut(value, ".")
	seconds, err := strconv.ParseInt(end, 10, 64)
	if err != nil || t == "" || !time.Unix(seconds, 0).After(time.Now()) {
		return false
	}
	signed := value[:max(0, strings.LastIndexByte(value, '.'))]
	return subtle.ConstantTimeCompare([]byte(value), []byte(t.sign(signed))) == 1
}

// wrongTokens counts and delays attempts with wrong tokens. The zero value has no callback.
type wrongTokens struct {
	tell func(client string, attempts int) // nil without a callback

	mu     sync.Mutex
	count  int       // attempts, ever
	at     time.Time // of the latest attempt
	client string    // of the latest attempt
	told   time.Time // when tell was called last
	held   int       // attempts that wait for their answer
}

const (
	slowBy    = time.Second // delay of an answer to a wrong token
	mostHeld  = 16          // how many such answers are delayed at once
	toldEvery = time.Minute
)

// meet notes an attempt, calls tell for it at times, and delays it for a second, or until ctx ends. It returns false
// without a delay if too many attempts are delayed already. The right token is never delayed, so attackers lock nobody
// out.
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

	// Call the callback without the mutex.
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

// A wrongToken summarizes attempts with wrong tokens for the page.
type wrongToken struct {
	Count  int    `json:"count"`
	At     int64  `json:"at"` // of the latest attempt
	Client string `json:"client"`
}

// read returns the summary for the page, or nil without attempts.
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

// answerJSON answers with a value, or with 500 if JSON cannot express it.
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

func answerError(w http.ResponseWriter, status int, text string) {
	answerJSON(w, status, map[string]string{"error": text})
}

// reader wraps a handler with the check for the right to look. It calls letIn for each request that has the right.
func (g *guard) reader(serve http.HandlerFunc) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if a := g.accessOf(r); !a.Read {
			w.Header().Set("WWW-Authenticate", `Bearer realm="dashboard"`)

			// Close the connection: a client without rights must not keep one open.
			w.Header().Set("Connection", "close")
			answerError(w, a.refusal(), languageOf(r).word(a.why))
			return
		}
		if g.letIn != nil {
			g.letIn(r)
		}
		serve(w, r)
	})
}
