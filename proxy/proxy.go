package proxy

import (
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
	DefaultMaxWait = 5 * time.Second
	DefaultHeld    = 256
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

	// Held is how many requests wait at once. Another one is refused with 503. Each of
	// them has at most 1 MiB of its body in memory. Defaults to [DefaultHeld].
	Held int

	// Local lets only requests in whose Host field is localhost, or an address of the
	// loopback: no web page reaches the handler under a name that leads to this machine.
	Local bool
}

// A Handler sends requests on, each when it has its start. It is safe for concurrent use.
type Handler struct {
	c       Config
	held    chan struct{} // has an element for each request that waits
	origins *http.CrossOriginProtection
	proxy   *httputil.ReverseProxy
}

// New returns a handler.
func New(c Config) (*Handler, error) {
	if c.Transport == nil || c.Hosts == nil {
		return nil, errors.New("proxy: Config needs Transport and Hosts")
	}
	if c.Held < 0 {
		return nil, errors.New("proxy: Config.Held is negative: use 1 or more")
	}
	if c.Held == 0 {
		c.Held = DefaultHeld
	}
	if c.MaxWait == 0 {
		c.MaxWait = DefaultMaxWait
	}
	h := &Handler{c: c, held: make(chan struct{}, c.Held), origins: http.NewCrossOriginProtection()}
	h.proxy = &httputil.ReverseProxy{
		Rewrite:        rewrite,
		Transport:      c.Transport,
		FlushInterval:  -1,
		ErrorLog:       log.New(io.Discard, "", 0), // errors of streams, which callers see as well
		ModifyResponse: finish,
		ErrorHandler:   answerError,
	}
	return h, nil
}

// ServeHTTP implements [http.Handler].
func (h *Handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if p := h.inadmissible(r); p != nil {
		p.write(w)
		return
	}
	target, p := targetOf(r, h.c.Hosts)
	if p != nil {
		p.write(w)
		return
	}
	select {
	case h.held <- struct{}{}:
	default:
		newProblem(http.StatusServiceUnavailable, "too many requests wait in this proxy").write(w)
		return
	}
	c := &call{target: target, leave: func() { <-h.held }}
	defer c.endWait()
	ctx := context.WithValue(r.Context(), callKey{}, c)
	ctx = throttle.WithMaxWait(ctx, wishes.MaxWait(r.Header, h.c.MaxWait))
	ctx = throttle.WithPriority(ctx, wishes.Priority(r.Header))
	r = r.WithContext(c.trace(ctx))
	if p := readAhead(w, r); p != nil {
		p.write(w)
		return
	}
	c.begun = time.Now()
	h.proxy.ServeHTTP(w, r)
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

// finish says in an answer of the upstream how long its request was held, and lets its trailers
// follow: HTTP/1 has none behind a body whose length is known, and HTTP/2 has.
func finish(resp *http.Response) error {
	if len(resp.Trailer) > 0 && resp.Request.Method != http.MethodHead {
		resp.Header.Del("Content-Length")
	}
	if c := callOf(resp.Request.Context()); c != nil {
		c.endWait()
		resp.Header.Add("Server-Timing", c.timing())
	}
	return nil
}
