// Package proxy puts the limits of a [throttle.Transport] before programs that are not
// written in Go: a handler that they reach by a base URL.
//
//	http://127.0.0.1:7070/oapi.dingtalk.com/topapi/user/get?id=1
//
// is sent on as https://oapi.dingtalk.com/topapi/user/get?id=1, when the policies have room.
// Paths, queries and bodies stay as the caller has written them. The command "throttle proxy"
// serves this handler.
//
// A caller may also name the host in its Host field; reach it at an address of its own
// ([Handler.Upstream]); or use the handler as its HTTP_PROXY, with URLs of http, for which the handler goes on
// by https. Tunnels of TLS hide the requests that the policies count, so they are refused, but for the hosts
// that [NewTable] is told of.
// Links of answers lead back to the handler by the way on which the request has come.
//
// A server of the handler should speak HTTP/2 without TLS for callers with gRPC:
// [http.Protocols] has that. Before its end it calls [Handler.Stop], so that what waits starts in
// time or is refused, and then [Handler.Shutdown]. The [throttle.Config.Observe] of the transport
// calls [Observe].
//
// net/http writes to the standard log what an upstream sends without having been asked, which may be
// an answer with secrets: a program sends the output of package log elsewhere if nobody may see that.
//
// An answer of the proxy itself has the header "Via: 1.1 throttle" and a body of
// application/problem+json; an answer of the upstream has neither, unless the upstream set them.
package proxy

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httputil"
	"strings"
	"sync"
	"time"

	"github.com/fleetthrottle/throttle"
	"github.com/fleetthrottle/throttle/internal/wishes"
)

// The defaults of a [Config].
const (
	DefaultMaxWait       = 5 * time.Second
	DefaultHeld          = 256
	DefaultHeldPerBudget = 128
	DefaultTunnels       = 256
	DefaultCallerIdle    = 30 * time.Second
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
	// "Prefer: wait=2". [throttle.NoWait] holds nothing, [throttle.Forever] holds a request
	// for as long as its caller is there. Defaults to [DefaultMaxWait].
	MaxWait time.Duration

	// Held is how many requests wait at once. Another one is refused with 503. Of each body
	// at most 1 MiB is in memory, and of all bodies at most Held MiB, also of those that
	// wait no more: a body that finds no room when it comes is refused with 503. Defaults to [DefaultHeld].
	Held int

	// HeldPerBudget is how many requests wait at once for one budget. Another one is refused
	// with 503, so that one busy key leaves places to the others. It needs [Observe]. Defaults
	// to [DefaultHeldPerBudget].
	HeldPerBudget int

	// Tunnels is how many tunnels of CONNECT there are at once. When all are taken, a tunnel in which no byte was
	// carried for 5 seconds is ended and makes room for another one: a tunnel of the client with the most tunnels, and
	// of these one whose last byte was not the caller's, and of these the one that was idle for longest. A client is
	// an address of IPv4, or a /64 of IPv6, and takes room from itself and from clients that have more tunnels. If no
	// tunnel makes room, the new one is refused with 503. Negative: none. Defaults to [DefaultTunnels].
	Tunnels int

	// Token is what callers must send: "Proxy-Authorization: Bearer TOKEN", or TOKEN as the
	// password of Basic there. Callers that can only set a base URL send it in
	// http://throttle:TOKEN@…/, which makes it Basic in Authorization, if their upstream has
	// its own key elsewhere. It needs 22 characters of letters, digits and "-._~+/=", which are 128
	// random bits in base64. It is not sent on. Defaults to "": anybody may send.
	Token string

	// Waiting serves paths under /v1/ of the handler's own address, for callers that are let in: those for which
	// its method Serves(path string) bool returns true, or all if it has no such method. Defaults to nil: they
	// are paths like others.
	Waiting http.Handler

	// LetIn is called for each request that is let in: it has the token, or none is needed. It is called by many
	// goroutines. Defaults to nil: nobody is told.
	LetIn func(r *http.Request)

	// CallerIdle is how long a caller may neither send a body that is awaited nor take an answer: less than 1 KiB in
	// that time. The request is ended then, with 408 if its answer has not begun, so that a caller that stalls holds no
	// slot. An upstream may be silent for any time, and so may a gRPC stream whose answer has begun. Negative: for
	// ever. Defaults to [DefaultCallerIdle].
	CallerIdle time.Duration

	// Local lets only requests in whose Host field is localhost, an address of the
	// loopback, or one of the hosts: no web page reaches the handler under a name of its own that leads to
	// this machine. Requests that come by a socket of Unix may have any Host field.
	Local bool

	// OutsideLink is called for each link of an answer, in Location, Content-Location or Link, that
	// leads round the handler, with the link's host: such a link is left as it is. It is called by
	// many goroutines. Defaults to nil: nobody is told.
	OutsideLink func(host string)

	// BlindTunnel is called for each tunnel of TLS that is refused because TLS hides what a policy counts
	// or needs to see, with what the answer says. Most clients show their users only the status of that
	// answer. It is called by many goroutines. Defaults to nil: nobody is told.
	BlindTunnel func(detail string)
}

// check returns what is wrong with the configuration, all of it. Hosts has its default.
func (c *Config) check() error {
	var mistakes []error
	if c.Transport == nil {
		mistakes = append(mistakes, errors.New("proxy: Config.Transport is missing: use throttle.New"))
	}
	if c.Hosts == nil {
		mistakes = append(mistakes, errors.New("proxy: Config.Hosts is missing: set Hosts, or Table"))
	}
	if c.Held < 0 {
		mistakes = append(mistakes, fmt.Errorf("proxy: Config.Held is %d: use 1 or more, or 0 for %d", c.Held, DefaultHeld))
	}
	if c.HeldPerBudget < 0 {
		mistakes = append(mistakes, fmt.Errorf("proxy: Config.HeldPerBudget is %d: use 1 or more, or 0 for %d", c.HeldPerBudget, DefaultHeldPerBudget))
	}
	if c.Token != "" && !isToken(c.Token) {
		mistakes = append(mistakes, errToken)
	}

	return errors.Join(mistakes...)
}

// errEnding says that the handler shuts down.
var errEnding = errors.New("proxy: the handler shuts down")

// errStatus says that an answer has a status that no answer has.
var errStatus = errors.New("proxy: the upstream has answered with a status that is none")

// A Handler sends requests on, each when it has its start. It is safe for concurrent use.
type Handler struct {
	c       Config
	token   token
	counts  counts
	held    *places
	bodies  bodies
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
	if err := c.check(); err != nil {
		return nil, err
	}

	c.Held, c.HeldPerBudget = cmp.Or(c.Held, DefaultHeld), cmp.Or(c.HeldPerBudget, DefaultHeldPerBudget)
	c.MaxWait = cmp.Or(c.MaxWait, DefaultMaxWait)
	c.Tunnels = cmp.Or(c.Tunnels, DefaultTunnels)
	c.CallerIdle = cmp.Or(c.CallerIdle, DefaultCallerIdle)
	if c.LetIn == nil {
		c.LetIn = func(*http.Request) {}
	}
	if c.OutsideLink == nil {
		c.OutsideLink = func(string) {}
	}
	if c.BlindTunnel == nil {
		c.BlindTunnel = func(string) {}
	}

	h := &Handler{
		c: c, token: newToken(c.Token), held: newPlaces(c.Held, c.HeldPerBudget), origins: http.NewCrossOriginProtection(),
		bodies: bodies{most: int64(c.Held) * mostAhead, within: aheadTime}, known: known{c.Hosts, c.Table},
	}

	h.links = links{&h.known, func(host string) {
		h.counts.linksRound.Add(1)
		c.OutsideLink(host)
	}}

	h.connect = connector{
		known: &h.known, transport: c.Transport, tunnels: &h.tunnels, slots: slots{most: c.Tunnels},
		hold: h.hold, serve: h.tunnelled, refuse: h.refuse, tell: c.BlindTunnel, idle: c.CallerIdle,
	}

	h.proxy = &httputil.ReverseProxy{
		Rewrite:        rewrite,
		Transport:      c.Transport,
		FlushInterval:  -1,
		BufferPool:     new(buffers),
		ErrorLog:       log.New(io.Discard, "", 0), // errors of streams, which callers see as well
		ModifyResponse: h.finish,
		ErrorHandler:   h.answerError,
	}

	return h, nil
}

// ServeHTTP implements [http.Handler].
func (h *Handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	p := h.inadmissible(r, h.c.Local && !onSocket(r), &h.token)
	if p == nil {
		p = h.fromOtherPage(r)
	}
	if p != nil {
		h.refuse(w, r, p)
		return
	}

	h.c.LetIn(r)
	h.send(w, h.token.remove(r), h.route)
}

// route returns the route of a request that is for one of many hosts, or for the handler itself.
func (h *Handler) route(r *http.Request, k *known) (*route, *problem) {
	switch {
	case r.Method == http.MethodConnect:
		return &route{instead: &h.connect}, nil
	case h.c.Waiting != nil && h.isWaiting(k.ownPath(r)):
		return &route{instead: h.c.Waiting}, nil
	}
	return routeOf(r, k)
}

// isWaiting reports whether a path and query are those of [Config.Waiting].
func (h *Handler) isWaiting(uri string) bool {
	if !strings.HasPrefix(uri, "/v1/") {
		return false
	}
	some, ok := h.c.Waiting.(interface{ Serves(path string) bool })
	return !ok || some.Serves(uri[:endOf(uri, "?")])
}

// Upstream returns a handler that sends all its requests to one of the hosts, and shares
// everything else with h. It is for an address of its own: programs that drop the path of a base URL
// reach the host there. While no policy names the host, it answers that.
func (h *Handler) Upstream(host string) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		p := h.inadmissible(r, h.c.Local && onLoopback(r), &h.token)
		if p == nil {
			p = h.fromOtherPage(r)
		}

		if p != nil {
			h.refuse(w, r, p)
			return
		}

		h.c.LetIn(r)
		h.send(w, h.token.remove(r), func(r *http.Request, k *known) (*route, *problem) { return upstreamRoute(r, host, k) })
	})
}

// tunnelled returns a handler for the requests in a tunnel, whose CONNECT had the token.
func (h *Handler) tunnelled(authority string) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if p := h.inadmissible(r, false, new(token)); p != nil {
			h.refuse(w, r, p)
			return
		}
		h.send(w, h.token.remove(r), func(r *http.Request, k *known) (*route, *problem) { return tunnelRoute(r, authority, k) })
	})
}

// Shutdown lets the connections end that callers have taken over, by CONNECT or by an upgrade, which
// [http.Server.Shutdown] does not know. Plain HTTP ends when its requests have their answers, and
// TLS when nothing was carried for a second. What is left is cut when ctx ends. There are no new ones.
func (h *Handler) Shutdown(ctx context.Context) error { return h.tunnels.shutdown(ctx) }

// send sends a request on that was let in, by a route.
func (h *Handler) send(w http.ResponseWriter, r *http.Request, routeOf func(*http.Request, *known) (*route, *problem)) {
	to, p := routeOf(r, &h.known)
	if p != nil {
		h.refuse(w, r, p)
		return
	}

	if to.instead != nil {
		to.instead.ServeHTTP(w, r)
		return
	}

	free, p := h.bodies.readAhead(w, r) // before the request waits: no slow caller takes a place
	defer free()

	if p != nil {
		h.refuse(w, r, p)
		return
	}

	r, c, p := h.hold(r)
	if p != nil {
		h.refuse(w, r, p)
		return
	}

	defer c.endWait()

	c.to = to
	if r.Header.Get("Upgrade") != "" {
		ctx, cut := context.WithCancel(r.Context())
		defer cut()
		c.cut, r = cut, r.WithContext(ctx)
	}

	if c.upload, _ = r.Body.(*upload); c.upload != nil {
		defer c.upload.finish()
	}

	h.watch(w, r, c)

	c.begun = time.Now()
	defer h.countAborted(c)
	defer c.leaveTunnel()
	answer := &informational{w, r.ProtoAtLeast(1, 1), func(early http.Header) { h.links.rewrite(early, to) }, c.taking}
	defer h.boundWrites(w) // of what the server sends when this returns
	h.proxy.ServeHTTP(answer, r)
}

// hold counts a request as one that waits, until its call says otherwise.
func (h *Handler) hold(r *http.Request) (*http.Request, *call, *problem) {
	ctx, refuse := context.WithCancelCause(r.Context())
	place, p := h.held.enter(refuse)
	if p != nil {
		refuse(p)
		return r, nil, p
	}
	c := &call{place: place}
	ctx = context.WithValue(ctx, callKey{}, c)
	ctx = throttle.WithMaxWait(ctx, wishes.MaxWait(r.Header, h.c.MaxWait))
	ctx = throttle.WithPriority(ctx, wishes.Priority(r.Header))
	return r.WithContext(c.trace(ctx)), c, nil
}

// answer sends an answer of the proxy itself.
func (h *Handler) answer(w http.ResponseWriter, p *problem) {
	h.counts.refused[p.reason].Add(1)
	h.boundWrites(w)
	p.write(w)
}

// refuse answers a request that is not held.
func (h *Handler) refuse(w http.ResponseWriter, r *http.Request, p *problem) {
	_, whole := r.Body.(wholeBody)
	unread := !whole && r.ContentLength != 0 && r.ProtoMajor == 1
	if unread {
		hangUp(w)
	}
	if p.Status == http.StatusProxyAuthRequired {
		w.Header().Set("Connection", "close") // a connection without the token takes no place of others
	}

	h.answer(w, p)

	if unread && r.Header.Get("Expect") == "" {
		linger(w, r.Body)
	}
}

// hangUp lets the connection end behind the answer, without its body: net/http would read the body
// before it sends the answer, and behind it, however slowly the body comes.
func hangUp(w http.ResponseWriter) {
	w.Header().Set("Connection", "close")
	awaitLittle(w)
}

// answerError answers a request that has no answer of the upstream, because of err.
func (h *Handler) answerError(w http.ResponseWriter, r *http.Request, err error) {
	c := callOf(r.Context())
	p, refused := errors.AsType[*problem](context.Cause(r.Context()))
	switch {
	case refused:
	case errors.Is(err, errEnding):
		p = stops()
	case errors.Is(r.Context().Err(), context.Canceled):
		c.left = true
		h.counts.left.Add(1)
		panic(http.ErrAbortHandler) // the caller has gone: its connection ends without an answer

	default:
		p = problemOf(err)
	}

	if p.timing = c.timing(); !c.upload.isOver() {
		hangUp(w)
	}

	h.answer(w, p)
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
	s.Held, s.BodyBytes, s.TunnelsEnded = h.held.count(), h.bodies.used.Load(), h.connect.slots.endedForRoom()
	return s
}

// inadmissible returns why a request is not let in, whatever it is for; nil: it is. local: only
// programs of this machine are.
func (h *Handler) inadmissible(r *http.Request, local bool, t *token) *problem {
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
	if !t.isIn(r.Header) {
		return newProblem(http.StatusProxyAuthRequired, "this proxy needs its token: send Proxy-Authorization: Bearer TOKEN")
	}

	return nil
}

// fromOtherPage returns why a request is refused that a page of another origin has caused, as far as its Referer tells.
// To an address that is not on the loopback browsers send by http neither Origin nor Sec-Fetch-Site with a GET.
func (h *Handler) fromOtherPage(r *http.Request) *problem {
	if h.c.Local || h.token.required || onSocket(r) || !strings.HasPrefix(r.RequestURI, "/") {
		return nil
	}

	scheme, page, _, ok := splitAbsolute(r.Referer())
	if !ok || scheme != "http" || page == r.Host || h.known.has(page) {
		return nil
	}
	return newProblem(http.StatusForbidden, "this proxy is not for pages of other origins in a browser")
}

// finish says in an answer of the upstream how long its request was held, leads its links back to
// the caller's way, and lets its trailers follow: HTTP/1 has none behind a body whose length is
// known, and HTTP/2 has. It fails when the answer is an upgrade and the handler ends, and when the
// answer has a status for which net/http panics.
func (h *Handler) finish(resp *http.Response) error {
	if resp.StatusCode < 100 || resp.StatusCode > 999 {
		return errStatus
	}
	if len(resp.Trailer) > 0 && resp.Request.Method != http.MethodHead {
		resp.Header.Del("Content-Length")
	}

	c := callOf(resp.Request.Context())
	c.endWait()
	c.answered(resp)
	if !c.upload.isOver() && resp.StatusCode != http.StatusSwitchingProtocols {
		resp.Header.Set("Connection", "close")
	}
	if !isReadable(resp.Header) {
		h.counts.unreadable.Add(1)
	}

	resp.Header.Add("Server-Timing", c.timing())
	h.links.rewrite(resp.Header, c.to)
	if resp.StatusCode == http.StatusSwitchingProtocols && !c.enterTunnel(&h.tunnels) {
		return errEnding
	}

	return nil
}

// copyBuffer is how much of an answer is copied at a time.
const copyBuffer = 32 << 10

// buffers are those of answers that are over. They implement [httputil.BufferPool].
type buffers struct{ pool sync.Pool }

// Get implements [httputil.BufferPool].
func (b *buffers) Get() []byte {
	if free, ok := b.pool.Get().(*[copyBuffer]byte); ok {
		return free[:]
	}
	return make([]byte, copyBuffer)
}

// Put implements [httputil.BufferPool].
func (b *buffers) Put(free []byte) { b.pool.Put((*[copyBuffer]byte)(free)) }

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
