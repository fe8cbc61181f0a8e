package proxy

import (
	"bufio"
	"cmp"
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"crypto/tls"
	"errors"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/fleetthrottle/throttle"
	"github.com/fleetthrottle/throttle/internal/inbound"
	problems "github.com/fleetthrottle/throttle/internal/problem"
)

// via is the proxy's name in the header Via.
const via = problems.Via

// passedProxy reports whether a throttle proxy has forwarded the request already.
func passedProxy(h http.Header) bool {
	for _, list := range h["Via"] {
		for element := range strings.SplitSeq(list, ",") {
			if fields := strings.Fields(element); len(fields) > 1 && fields[1] == "throttle" {
				return true
			}
		}
	}
	return false
}

// A problem is an answer of the proxy itself.
type problem struct {
	problems.Problem
	reason reason
	timing string // Server-Timing, "" if the request was not held
	form   form   // of the API that the request was for
}

func newProblem(status int, detail string) *problem {
	return &problem{Problem: *problems.New(status, detail), reason: reasons[status]}
}

// because sets the reason, for statuses that have several.
func (p *problem) because(r reason) *problem {
	p.reason = r
	return p
}

// after sets Retry-After.
func (p *problem) after(d time.Duration) *problem {
	p.RetryAfter = d
	return p
}

// Error implements error: a problem can be the cause of a cancelled context.
func (p *problem) Error() string { return p.Detail }

// write sends the answer.
func (p *problem) write(w http.ResponseWriter) {
	h := w.Header()
	h.Set("Server-Timing", cmp.Or(p.timing, "throttle;dur=0"))
	if p.Status == http.StatusProxyAuthRequired {
		h.Set("Proxy-Authenticate", `Basic realm="throttle"`)
	}

	kind, body := p.form.of(p)
	p.WriteAs(w, kind, body)
}

// problemOf returns the answer for an error, whatever the error is.
func problemOf(err error) *problem {
	if p, ok := errors.AsType[*problem](err); ok {
		return p // a refusal of the proxy itself
	}

	general := problems.Of(err)
	if general == nil {
		return unreached(err)
	}

	p := &problem{Problem: *general, reason: reasons[general.Status]}
	switch {
	case errors.Is(err, inbound.ErrStopping):
		p.reason = stopping
	case errors.As(err, new(*throttle.StoreError)):
		p.reason = storeAway
	}

	return p
}

// unreached returns the answer for a request that the upstream did not answer because of err.
func unreached(err error) *problem {
	var timeout net.Error
	var name *net.DNSError
	var certificate *tls.CertificateVerificationError
	var record tls.RecordHeaderError
	switch {
	case errors.Is(err, errInside):
		return newProblem(http.StatusForbidden, "the host is at an address that is not public, and is not listed as private (--private HOST)").because(hostInside)
	case errors.Is(err, context.DeadlineExceeded), errors.As(err, &timeout) && timeout.Timeout():
		return newProblem(http.StatusGatewayTimeout, "there was no answer in time")
	case errors.As(err, &name):
		return newProblem(http.StatusBadGateway, "the name of the upstream has no address")
	case errors.As(err, &certificate):
		return newProblem(http.StatusBadGateway, "the certificate of the upstream is not trusted")
	case errors.As(err, &record):
		return newProblem(http.StatusBadGateway, "the upstream does not speak TLS, and is called by https alone")
	}

	return newProblem(http.StatusBadGateway, "the upstream could not be reached")
}

// A reason is why a request was refused, as [Stats] names it.
type reason int

// The reasons.
const (
	forbidden  reason = iota // request of this kind, or to this host
	malformed                // bad path, body, or use of a tunnel
	noToken                  // token missing or wrong
	slowBody                 // body too slow
	noRoom                   // limit, within the time that the request could wait
	unreadable               // policy that cannot read the request
	away                     // upstream unreachable, or without an answer in time
	looped                   // request has passed a throttle proxy already
	storeAway                // store does not answer
	hostInside               // host at an address that is not public
	heldFull                 // too many requests wait, in all or for the budget, or too many tunnels are open
	bodiesFull               // too many bodies in memory
	stopping                 // proxy stops
	reasonCount
)

// reasonNames are the keys of [Stats.Refused].
var reasonNames = [reasonCount]string{
	"forbidden", "malformed", "token", "slow_body", "limit", "policy", "upstream", "loop", "store", "private_address", "held", "bodies", "stopping",
}

// reasons is the usual reason of each status.
var reasons = map[int]reason{
	http.StatusForbidden: forbidden, http.StatusBadRequest: malformed, http.StatusMisdirectedRequest: malformed, http.StatusNotImplemented: malformed, http.StatusProxyAuthRequired: noToken,
	http.StatusRequestTimeout: slowBody, http.StatusTooManyRequests: noRoom, http.StatusInternalServerError: unreadable,
	http.StatusBadGateway: away, http.StatusGatewayTimeout: away, http.StatusLoopDetected: looped, http.StatusServiceUnavailable: heldFull,
}

// Stats are counters of a [Handler] since it was created.
type Stats struct {
	Held         int              // requests that wait now
	BodyBytes    int64            // bytes of bodies in memory now: see [Config.Held]
	Refused      map[string]int64 // answers of the proxy itself by reason; has a key for every reason
	Left         int64            // callers that left before their answer
	Aborted      int64            // answers cut in the middle, by the caller or by the upstream
	LinksRound   int64            // links in answers that bypass the proxy
	Unreadable   int64            // answers whose Content-Encoding, such as br or zstd, no policy can read
	TunnelsEnded int64            // idle tunnels that were evicted: see [Config.Tunnels]
}

// counts are the counters of a handler.
type counts struct {
	refused                               [reasonCount]atomic.Int64
	left, aborted, linksRound, unreadable atomic.Int64
}

func (c *counts) stats() Stats {
	s := Stats{
		Refused: make(map[string]int64), Left: c.left.Load(), Aborted: c.aborted.Load(),
		LinksRound: c.linksRound.Load(), Unreadable: c.unreadable.Load(),
	}
	for i, name := range reasonNames {
		s.Refused[name] = c.refused[i].Load()
	}
	return s
}

// An informational is a ResponseWriter that also forwards informational answers, such as 103 Early Hints. It
// removes their hop-by-hop fields, which [net/http/httputil.ReverseProxy] forwards (golang/go#81319).
type informational struct {
	http.ResponseWriter
	modern bool              // the caller speaks HTTP/1.1 or later; HTTP/1.0 has no informational answers
	finish func(http.Header) // completes the header of an informational answer
	taking *stall            // limits each wait for the caller
}

// WriteHeader implements [http.ResponseWriter].
func (w *informational) WriteHeader(status int) {
	if status >= 100 && status < 200 {
		// Drop what the caller cannot read. A 101 here is no upgrade but an odd answer of HTTP/2: ReverseProxy writes the 101
		// of an upgrade to the hijacked connection.
		if !w.modern || status == http.StatusSwitchingProtocols {
			return
		}
		removeHopHeaders(w.Header())
		w.finish(w.Header())
	}

	if _, typed := w.Header()["Content-Type"]; !typed {
		w.Header()["Content-Type"] = nil // keeps net/http from guessing one
	}

	w.taking.begin()
	defer w.taking.end(0)
	w.ResponseWriter.WriteHeader(status)
}

// Write implements [io.Writer].
func (w *informational) Write(p []byte) (n int, err error) {
	w.taking.begin()
	defer func() { w.taking.end(n) }()
	return w.ResponseWriter.Write(p)
}

// FlushError is for [http.ResponseController].
func (w *informational) FlushError() error {
	w.taking.begin()
	defer w.taking.end(0)
	return http.NewResponseController(w.ResponseWriter).Flush()
}

// Hijack is for [http.ResponseController]. Writes to the connection are limited
// like writes of an answer.
func (w *informational) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	conn, buffered, err := http.NewResponseController(w.ResponseWriter).Hijack()
	if err == nil && w.taking != nil {
		conn = &boundedWriter{conn, w.taking.within}
	}
	return conn, buffered, err
}

// Unwrap is for [http.ResponseController].
func (w *informational) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// removeHopHeaders removes hop-by-hop fields, and fields for proxies.
func removeHopHeaders(h http.Header) {
	// Connection names further hop-by-hop fields.
	for _, list := range h["Connection"] {
		for name := range strings.SplitSeq(list, ",") {
			h.Del(strings.TrimSpace(name))
		}
	}
	for name := range h {
		switch name {
		case "Connection", "Keep-Alive", "Te", "Trailer", "Transfer-Encoding", "Upgrade":
			delete(h, name)
		}
	}
	removeProxyHeaders(h)
}

// removeProxyHeaders removes fields between callers and proxies, such as Proxy-Authorization.
func removeProxyHeaders(h http.Header) {
	for name := range h {
		if strings.HasPrefix(name, "Proxy-") {
			delete(h, name)
		}
	}
}

// shortestToken is how many base64 characters encode 128 bits.
const shortestToken = 22

// tokenUser is the user name in a base URL whose password is the token.
const tokenUser = "throttle"

var errToken = errors.New(`proxy: Config.Token needs 22 characters or more, of letters, digits and "-._~+/=": "openssl rand -hex 32" prints such a token`)

// isToken reports whether a token fits into a header unchanged and can encode 128 random bits.
func isToken(s string) bool {
	return len(s) >= shortestToken && !strings.ContainsFunc(s, func(c rune) bool {
		return (c < 'a' || c > 'z') && (c < 'A' || c > 'Z') && (c < '0' || c > '9') && !strings.ContainsRune("-._~+/=", c)
	})
}

// A token is the secret of authorized callers.
type token struct {
	required bool
	sum      [sha256.Size]byte // hash of the token, so that a comparison takes the same time for all lengths
}

func newToken(text string) token { return token{text != "", sha256.Sum256([]byte(text))} }

// isIn reports whether headers have the token, or no token is required.
func (t *token) isIn(h http.Header) bool {
	return !t.required || slices.ContainsFunc(h["Proxy-Authorization"], t.isCredential) || slices.ContainsFunc(h["Authorization"], t.isUser)
}

// remove returns the request without the token, so that no later step can forward it. The API's own credentials stay.
func (t *token) remove(r *http.Request) *http.Request {
	if !t.required {
		return r
	}
	bare := *r
	bare.Header = r.Header.Clone()
	bare.Header.Del("Proxy-Authorization")
	if own := slices.DeleteFunc(bare.Header["Authorization"], t.isUser); len(own) == 0 {
		bare.Header.Del("Authorization")
	} else {
		bare.Header["Authorization"] = own
	}
	return &bare
}

// isCredential reports whether a value of Proxy-Authorization has the token.
func (t *token) isCredential(value string) bool {
	if scheme, text, _ := strings.Cut(value, " "); strings.EqualFold(scheme, "Bearer") {
		return t.equals(strings.TrimSpace(text))
	}
	_, password, ok := basic(value)
	return ok && t.equals(password)
}

// isUser reports whether a value of Authorization has the token in the form of a client whose base URL has
// the token. The API's own user and password do not match.
func (t *token) isUser(value string) bool {
	user, password, ok := basic(value)
	return ok && user == tokenUser && t.equals(password)
}

// basic parses Basic credentials.
func basic(value string) (user, password string, ok bool) {
	return (&http.Request{Header: http.Header{"Authorization": {value}}}).BasicAuth()
}

func (t *token) equals(text string) bool {
	sum := sha256.Sum256([]byte(text))
	return subtle.ConstantTimeCompare(sum[:], t.sum[:]) == 1
}
