package proxy

import (
	"context"
	"errors"
	"io"
	"log"
	"net/http"
	"net/http/httputil"
	"strings"
	"time"

	"github.com/fleetthrottle/throttle"
	"github.com/fleetthrottle/throttle/internal/wishes"
)

// The defaults of a [Config].
const (
	DefaultMaxWait = 5 * time.Second
	DefaultHeld    = 256
	DefaultTunnels = 256
)

// Config is what [New] needs.
type Config struct {
	// Transport sends the requests: a [throttle.Transport] whose base is one of [NewBase].
	// Required.
	Transport http.RoundTripper

	// Hosts reports whether a host may be reached, which the caller names as "host" or
	// "host:port": see [Hosts]. It is called for each request, by many goroutines. Required,
	// unless there is a Table: then it defaults to [Table.Has].
	Hosts func(host string) bool

	// Table returns the table of the policies in force: see [NewTable]. It says at which port a
	// host is that a caller names without one, and to which hosts tunnels of TLS may lead. It is
	// called for each request, by many goroutines. Defaults to nil: hosts without a port are at
	// port 443, and no tunnel of TLS is there.
	Table func() *Table

	// MaxWait is how long a request is held at most. A caller asks for less with the header
	// "Prefer: wait=2". Negative: not at all. Defaults to [DefaultMaxWait].
	MaxWait time.Duration

	// Held is how many requests wait at once. Another one is refused with 503. Each of
	// them has at most 1 MiB of its body in memory. Defaults to [DefaultHeld].
	Held int

	// Tunnels is how many tunnels of CONNECT there are at once. Another one is refused with 503.
	// Negative: none. Defaults to [DefaultTunnels].
	Tunnels int

	// Waiting serves the paths under /v1/ of the handler's own address, for callers that are let
	// in. Defaults to nil: they are paths like others.
	Waiting http.Handler

	// Local lets only requests in whose Host field is localhost, an address of the
	// loopback, or one of the hosts: no web page reaches the handler under a name of its own that leads to
	// this machine.
	Local bool

	// OutsideLink is called for each link of an answer, in Location, Content-Location or Link, that
	// leads round the handler, with the link's host: such a link is left as it is. It is called by
	// many goroutines. Defaults to nil: nobody is told.
	OutsideLink func(host string)

	// BlindTunnel is called for each tunnel of TLS that is refused because a policy needs to see what TLS
	// hides, with what the answer says. Most clients show their users only the status of that
	// answer. It is called by many goroutines. Defaults to nil: nobody is told.
	BlindTunnel func(detail string)
}

// errEnding says that the handler shuts down.
var errEnding = errors.New("proxy: the handler shuts down")

// A Handler sends requests on, each when it has its start. It is safe for concurrent use.
type Handler struct {
	c       Config
	held    chan struct{} // has an element for each request that waits
	origins *http.CrossOriginProtection
	proxy   *httputil.ReverseProxy
	known   known
	links   links
	tunnels tunnels
	connect connector
}

// New returns a handler.
func New(c Config) (*Handler, error) {
	if c.Hosts == nil && c.Table != nil {
		c.Hosts = func(host string) bool { return c.Table().Has(host) }
	}
	if c.Transport == nil || c.Hosts == nil {
		return nil, errors.New("proxy: Config needs Transport, and Hosts or Table")
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
	if c.Tunnels == 0 {
		c.Tunnels = DefaultTunnels
	}
	if c.OutsideLink == nil {
		c.OutsideLink = func(string) {}
	}
	if c.BlindTunnel == nil {
		c.BlindTunnel = func(string) {}
	}
	h := &Handler{c: c, held: make(chan struct{}, c.Held), origins: http.NewCrossOriginProtection(), known: known{c.Hosts, c.Table}}
	h.links = links{&h.known, c.OutsideLink}
	h.connect = connector{
		known: &h.known, transport: c.Transport, tunnels: &h.tunnels, slots: make(chan struct{}, max(0, c.Tunnels)),
		hold: h.hold, serve: h.tunnelled, tell: c.BlindTunnel,
	}
	h.proxy = &httputil.ReverseProxy{
		Rewrite:        rewrite,
		Transport:      c.Transport,
		FlushInterval:  -1,
		ErrorLog:       log.New(io.Discard, "", 0), // errors of streams, which callers see as well
		ModifyResponse: h.finish,
		ErrorHandler:   answerError,
	}
	return h, nil
}

// ServeHTTP implements [http.Handler].
func (h *Handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	h.serve(w, r, h.c.Local, h.route)
}

// route returns the route of a request that is for one of many hosts, or for the handler itself.
func (h *Handler) route(r *http.Request, k *known) (*route, *problem) {
	switch {
	case r.Method == http.MethodConnect:
		return &route{instead: &h.connect}, nil
	case h.c.Waiting != nil && strings.HasPrefix(k.ownPath(r), "/v1/"):
		return &route{instead: h.c.Waiting}, nil
	}
	return routeOf(r, k)
}

// Upstream returns a handler that sends all its requests to one of the hosts, and shares
// everything else with h. It is for an address of its own: programs that drop the path of a base URL
// reach the host there. While no policy names the host, it answers that.
func (h *Handler) Upstream(host string) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h.serve(w, r, h.c.Local && onLoopback(r), func(r *http.Request, k *known) (*route, *problem) { return upstreamRoute(r, host, k) })
	})
}

// tunnelled returns a handler for the requests in a tunnel.
func (h *Handler) tunnelled(authority string) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h.serve(w, r, false, func(r *http.Request, k *known) (*route, *problem) { return tunnelRoute(r, authority, k) })
	})
}

// Shutdown lets the connections end that callers have taken over, by CONNECT or by an upgrade, which
// [http.Server.Shutdown] does not know. Plain HTTP ends when its requests have their answers, and
// TLS when nothing was carried for a second. What is left is cut when ctx ends. There are no new ones.
func (h *Handler) Shutdown(ctx context.Context) error { return h.tunnels.shutdown(ctx) }

// serve sends a request on, by a route.
func (h *Handler) serve(w http.ResponseWriter, r *http.Request, local bool, routeOf func(*http.Request, *known) (*route, *problem)) {
	if p := h.inadmissible(r, local); p != nil {
		p.refuse(w, r)
		return
	}
	to, p := routeOf(r, &h.known)
	if p != nil {
		p.refuse(w, r)
		return
	}
	if to.instead != nil {
		to.instead.ServeHTTP(w, r)
		return
	}
	r, c, p := h.hold(r)
	if p != nil {
		p.refuse(w, r)
		return
	}
	defer c.endWait()
	c.to = to
	if r.Header.Get("Upgrade") != "" {
		ctx, cut := context.WithCancel(r.Context())
		defer cut()
		c.cut, r = cut, r.WithContext(ctx)
	}
	if p := readAhead(w, r); p != nil {
		p.refuse(w, r)
		return
	}
	c.begun = time.Now()
	defer c.leaveTunnel()
	h.proxy.ServeHTTP(&informational{w, r.ProtoAtLeast(1, 1), func(early http.Header) { h.links.rewrite(early, to) }}, r)
}

// hold counts a request as one that waits, until its call says otherwise.
func (h *Handler) hold(r *http.Request) (*http.Request, *call, *problem) {
	select {
	case h.held <- struct{}{}:
	default:
		return r, nil, newProblem(http.StatusServiceUnavailable, "too many requests wait in this proxy")
	}
	c := &call{leave: func() { <-h.held }}
	ctx := context.WithValue(r.Context(), callKey{}, c)
	ctx = throttle.WithMaxWait(ctx, wishes.MaxWait(r.Header, h.c.MaxWait))
	ctx = throttle.WithPriority(ctx, wishes.Priority(r.Header))
	return r.WithContext(c.trace(ctx)), c, nil
}

// inadmissible returns why a request is not let in, whatever it is for; nil: it is.
func (h *Handler) inadmissible(r *http.Request, local bool) *problem {
	if local && !h.known.admits(r) {
		return newProblem(http.StatusForbidden, "this proxy is reached as localhost, by an address of the loopback, or by the name of a host of its policies")
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

// rewrite makes of the caller's request the one that is sent.
func rewrite(pr *httputil.ProxyRequest) {
	to := callOf(pr.In.Context()).to
	target := *to.target
	pr.Out.URL, pr.Out.Host = &target, to.field
	pr.Out.Trailer = pr.In.Trailer // the server fills it in when the body has ended
	removeProxyHeaders(pr.Out.Header)
	pr.Out.Header.Add("Via", via)
	if !strings.EqualFold(pr.Out.Header.Get("Upgrade"), "websocket") { // under h2c no policy would see a request
		pr.Out.Header.Del("Upgrade")
		pr.Out.Header.Del("Connection")
	}
}

// finish says in an answer of the upstream how long its request was held, leads its links back to
// the caller's way, and lets its trailers follow: HTTP/1 has none behind a body whose length is
// known, and HTTP/2 has. It fails when the answer is an upgrade and the handler ends.
func (h *Handler) finish(resp *http.Response) error {
	if len(resp.Trailer) > 0 && resp.Request.Method != http.MethodHead {
		resp.Header.Del("Content-Length")
	}
	c := callOf(resp.Request.Context())
	c.endWait()
	resp.Header.Add("Server-Timing", c.timing())
	h.links.rewrite(resp.Header, c.to)
	if resp.StatusCode == http.StatusSwitchingProtocols && !c.enterTunnel(&h.tunnels) {
		return errEnding
	}
	return nil
}
