package proxy

import (
	"cmp"
	"context"
	"errors"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httputil"
	"net/netip"
	"strings"
	"time"

	"github.com/fleetthrottle/throttle"
	"github.com/fleetthrottle/throttle/internal/wishes"
)

// The defaults of a [Config].
const (
	DefaultMaxWait       = 5 * time.Second
	DefaultHeld          = 256
	DefaultHeldPerBudget = 128
)

// Config is what [New] needs.
type Config struct {
	// Transport sends the requests: a [throttle.Transport] whose base is one of [NewBase].
	// Required.
	Transport http.RoundTripper

	// Hosts reports whether a host may be reached, which the caller names as "host" or
	// "host:port": see [Hosts]. It is called for each request, by many goroutines. Required.
	Hosts func(host string) bool

	// MaxWait is how long a request is held at most. A caller asks for less with the header
	// "Prefer: wait=2". Negative: not at all. Defaults to [DefaultMaxWait].
	MaxWait time.Duration

	// Held is how many requests wait at once. Another one is refused with 503. Of each body
	// at most 1 MiB is in memory, and of all bodies at most Held MiB, also of those that
	// wait no more: a body that finds no room is refused with 503. Defaults to [DefaultHeld].
	Held int

	// HeldPerBudget is how many requests wait at once for one budget. Another one is refused
	// with 503, so that one busy key leaves places to the others. It needs [Observe]. Defaults
	// to [DefaultHeldPerBudget].
	HeldPerBudget int

	// Token is what callers must send: "Proxy-Authorization: Bearer TOKEN", or TOKEN as the
	// password of Basic there. Callers that can only set a base URL send it in
	// http://throttle:TOKEN@…/, which makes it Basic in Authorization, if their upstream has
	// its own key elsewhere. It needs 22 characters of letters, digits and "-._~+/=", which are 128
	// random bits in base64. It is not sent on. Defaults to "": anybody may send.
	Token string

	// Waiting serves the paths under /v1/, for callers that are let in. Defaults to nil: they
	// are paths like others.
	Waiting http.Handler

	// Local lets only requests in whose Host field is localhost, or an address of the
	// loopback: no web page reaches the handler under a name that leads to this machine.
	Local bool
}

// A Handler sends requests on, each when it has its start. It is safe for concurrent use.
type Handler struct {
	c       Config
	token   token
	counts  counts
	held    *places
	bodies  bodies
	origins *http.CrossOriginProtection
	proxy   *httputil.ReverseProxy
}

// New returns a handler.
func New(c Config) (*Handler, error) {
	if c.Transport == nil || c.Hosts == nil {
		return nil, errors.New("proxy: Config needs Transport and Hosts")
	}
	if c.Held < 0 || c.HeldPerBudget < 0 {
		return nil, errors.New("proxy: Config.Held or HeldPerBudget is negative: use 1 or more")
	}
	if c.Token != "" && !isToken(c.Token) {
		return nil, errToken
	}
	c.Held, c.HeldPerBudget = cmp.Or(c.Held, DefaultHeld), cmp.Or(c.HeldPerBudget, DefaultHeldPerBudget)
	c.MaxWait = cmp.Or(c.MaxWait, DefaultMaxWait)
	h := &Handler{
		c: c, token: newToken(c.Token), held: newPlaces(c.Held, c.HeldPerBudget), origins: http.NewCrossOriginProtection(),
		bodies: bodies{most: int64(c.Held) * mostAhead, within: aheadTime},
	}
	h.proxy = &httputil.ReverseProxy{
		Rewrite:        rewrite,
		Transport:      c.Transport,
		FlushInterval:  -1,
		ErrorLog:       log.New(io.Discard, "", 0), // errors of streams, which callers see as well
		ModifyResponse: finish,
		ErrorHandler:   h.answerError,
	}
	return h, nil
}

// ServeHTTP implements [http.Handler].
func (h *Handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if p := h.inadmissible(r); p != nil {
		h.answer(w, p)
		return
	}
	r = h.token.remove(r)
	if h.c.Waiting != nil && strings.HasPrefix(r.RequestURI, "/v1/") {
		h.c.Waiting.ServeHTTP(w, r)
		return
	}
	target, p := targetOf(r, h.c.Hosts)
	if p != nil {
		h.answer(w, p)
		return
	}
	ctx, refuse := context.WithCancelCause(r.Context())
	defer refuse(nil)
	place, p := h.held.enter(refuse)
	if p != nil {
		h.answer(w, p)
		return
	}
	defer place.leave()
	c := &call{counts: &h.counts, target: target, place: place}
	ctx = context.WithValue(ctx, callKey{}, c)
	ctx = throttle.WithMaxWait(ctx, wishes.MaxWait(r.Header, h.c.MaxWait))
	ctx = throttle.WithPriority(ctx, wishes.Priority(r.Header))
	r = r.WithContext(c.trace(ctx))
	free, p := h.bodies.readAhead(w, r)
	defer free()
	if p != nil {
		h.answer(w, p)
		return
	}
	c.begun = time.Now()
	defer h.countAborted(c)
	h.proxy.ServeHTTP(w, r)
}

// answer sends an answer of the proxy itself.
func (h *Handler) answer(w http.ResponseWriter, p *problem) {
	h.counts.refused[p.reason].Add(1)
	p.write(w)
}

// answerError answers a request that has no answer of the upstream, because of err.
func (h *Handler) answerError(w http.ResponseWriter, r *http.Request, err error) {
	c := callOf(r.Context())
	p, refused := errors.AsType[*problem](context.Cause(r.Context()))
	switch {
	case refused:
	case errors.Is(r.Context().Err(), context.Canceled):
		c.left = true
		h.counts.left.Add(1)
		panic(http.ErrAbortHandler) // the caller has gone: its connection ends without an answer
	default:
		p = problemOf(err)
	}
	answer := *p // a cause may be that of several requests
	answer.timing = c.timing()
	h.answer(w, &answer)
}

// countAborted counts an answer that ends in the middle. It is called when ServeHTTP returns, or
// panics with [http.ErrAbortHandler], for which the server ends the connection and logs nothing.
func (h *Handler) countAborted(c *call) {
	if v := recover(); v != nil {
		if v == http.ErrAbortHandler && !c.left {
			h.counts.aborted.Add(1)
		}
		panic(v)
	}
}

// Stop lets no request in any more: it is refused with 503. Requests that wait must have started
// within a time. Those that are known to start later are refused now, if the handler has
// [Observe], and the others then. Answers go on.
func (h *Handler) Stop(within time.Duration) { h.held.stop(time.Now().Add(within)) }

// Stats returns what the handler does, and has done.
func (h *Handler) Stats() Stats {
	s := h.counts.stats()
	s.Held, s.BodyBytes = h.held.count(), h.bodies.used.Load()
	return s
}

// inadmissible returns why a request is not let in, whatever it is for; nil: it is.
func (h *Handler) inadmissible(r *http.Request) *problem {
	if h.c.Local && !isLocal(r.Host) {
		return newProblem(http.StatusForbidden, "this proxy is reached as localhost or by an address of the loopback")
	}
	asPost := *r // so that a page's GET is checked, too: it spends quota
	asPost.Method = http.MethodPost
	if h.origins.Check(&asPost) != nil {
		return newProblem(http.StatusForbidden, "this proxy is not for pages of other origins in a browser")
	}
	if passedProxy(r.Header) {
		return newProblem(http.StatusLoopDetected, "the request has passed a throttle proxy already")
	}
	if !h.token.isIn(r.Header) {
		return newProblem(http.StatusProxyAuthRequired, "this proxy needs its token: send Proxy-Authorization: Bearer TOKEN")
	}
	return nil
}

// isLocal reports whether a Host field names the loopback.
func isLocal(host string) bool {
	if name, _, err := net.SplitHostPort(host); err == nil {
		host = name
	}
	if strings.EqualFold(host, "localhost") {
		return true
	}
	address, err := netip.ParseAddr(strings.Trim(host, "[]"))
	return err == nil && address.Unmap().IsLoopback()
}

// rewrite makes of the caller's request the one that is sent.
func rewrite(pr *httputil.ProxyRequest) {
	target := *callOf(pr.In.Context()).target
	pr.Out.URL, pr.Out.Host = &target, target.Host
	pr.Out.Header.Add("Via", via)
	if !strings.EqualFold(pr.Out.Header.Get("Upgrade"), "websocket") { // under h2c no policy would see a request
		pr.Out.Header.Del("Upgrade")
		pr.Out.Header.Del("Connection")
	}
}

// isReadable reports whether policies can read an answer with these headers, as far as its coding
// goes.
func isReadable(h http.Header) bool {
	for _, list := range h["Content-Encoding"] {
		for coding := range strings.SplitSeq(list, ",") {
			switch strings.ToLower(strings.TrimSpace(coding)) {
			case "", "identity", "gzip", "x-gzip", "deflate":
			default:
				return false
			}
		}
	}
	return true
}

// finish says in an answer of the upstream how long its request was held, and lets its trailers
// follow: HTTP/1 has none behind a body whose length is known, and HTTP/2 has.
func finish(resp *http.Response) error {
	if len(resp.Trailer) > 0 && resp.Request.Method != http.MethodHead {
		resp.Header.Del("Content-Length")
	}
	if c := callOf(resp.Request.Context()); c != nil {
		c.place.leave()
		if !isReadable(resp.Header) {
			c.counts.unreadable.Add(1)
		}
		resp.Header.Add("Server-Timing", c.timing())
	}
	return nil
}
