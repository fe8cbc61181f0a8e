// Package proxy is an HTTP handler that keeps programs in any language within
// the policies of a [throttle.Transport]. A program reaches an upstream by a
// base URL:
//
//	http://127.0.0.1:7070/oapi.dingtalk.com/topapi/user/get?id=1
//
// The handler holds the request until the policies have room, and sends it to
// https://oapi.dingtalk.com/topapi/user/get?id=1. Path, query and body are
// forwarded byte for byte. The command "throttle proxy" serves this handler.
//
// A caller may also name the host in the Host field, connect to an address that
// serves one host ([Handler.Upstream]), or set HTTP_PROXY and request http
// URLs, which the handler forwards over https. TLS tunnels hide the requests
// that policies count. The handler refuses them, except to hosts that
// [NewTable] lists. Links in answers are rewritten so that a caller that
// follows a link stays with the proxy.
//
// The server of the handler should enable HTTP/2 without TLS for gRPC callers:
// see [http.Protocols]. Before the server ends, call [Handler.Stop], then
// [Handler.Shutdown]. [throttle.Config.Observe] of the transport must call
// [Observe].
//
// net/http logs unsolicited bytes from an upstream to the standard logger. They
// may hold secrets: redirect the output of package log.
//
// Answers of the proxy itself have "Via: 1.1 throttle" and a body of
// application/problem+json. A call of a language model that was held and
// refused gets application/json, with the members of a problem and the error
// as its API words errors: OpenAI and its like, Anthropic, Gemini. Answers of
// the upstream have no such Via, unless the upstream set it.
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
	"github.com/fleetthrottle/throttle/internal/inbound"
	"github.com/fleetthrottle/throttle/internal/peek"
)

// Defaults of a [Config].
const (
	DefaultMaxWait       = 5 * time.Second
	DefaultHeld          = 256
	DefaultHeldPerBudget = 128
	DefaultTunnels       = 256
	DefaultCallerIdle    = 30 * time.Second
)

// Config configures a [Handler].
type Config struct {
	// Transport sends the requests. It is a [throttle.Transport] whose base
	// comes from [NewBase]. Required.
	Transport http.RoundTripper

	// Hosts reports whether callers may reach a host, given as "host" or
	// "host:port". See [Hosts]. Many goroutines call it, once per request.
	// Defaults to [Table.Has] of Table. Required without a Table.
	Hosts func(host string) bool

	// Table returns the table of the policies in force: see [NewTable]. The
	// table resolves hosts without a port, and lists the hosts to which TLS
	// tunnels are allowed. Many goroutines call it, once per request. Defaults
	// to nil: a host without a port means port 443, and TLS tunnels are
	// refused.
	Table func() *Table

	// MaxWait limits how long a request is held. A caller can shorten the wait
	// with the header "Prefer: wait=2". [throttle.NoWait] holds nothing.
	// [throttle.Forever] holds a request until its caller leaves. Defaults to
	// [DefaultMaxWait].
	MaxWait time.Duration

	// Held limits how many requests wait at once. Further requests are refused
	// with 503. A body occupies at most 1 MiB of memory, and all bodies
	// together at most Held MiB, including bodies of requests already on their
	// way. A body that exceeds the sum is refused with 503. Defaults to
	// [DefaultHeld].
	Held int

	// HeldPerBudget limits how many requests wait at once for one budget, so
	// that one busy key cannot fill the queue. Further requests are refused
	// with 503. It needs [Observe]. Defaults to [DefaultHeldPerBudget].
	HeldPerBudget int

	// Tunnels limits how many CONNECT tunnels are open at once. When all are
	// taken, a new tunnel evicts a tunnel that has been idle for 5 seconds.
	// Candidates belong to the client itself or to clients with more tunnels.
	// The eviction order is: the client with the most tunnels, then tunnels
	// whose last byte came from the upstream, then the longest idle. A client
	// is an IPv4 address or an IPv6 /64. If no tunnel qualifies, the new tunnel
	// is refused with 503. A negative number refuses all tunnels. Defaults to
	// [DefaultTunnels].
	Tunnels int

	// Token is the secret that callers must send: as "Proxy-Authorization:
	// Bearer TOKEN", or as a Basic password in Proxy-Authorization. Callers
	// that can only set a base URL use http://throttle:TOKEN@…/, which becomes
	// Basic in Authorization. The token has at least 22 characters of letters,
	// digits and "-._~+/=", which can encode 128 random bits. The token is
	// never forwarded. Defaults to "": anyone may send requests.
	Token string

	// Waiting serves paths under /v1/ of the handler's own address to
	// authorized callers. If Waiting has a method Serves(path string) bool, it
	// gets only the paths for which Serves returns true. Defaults to nil: paths
	// under /v1/ are ordinary paths.
	Waiting http.Handler

	// LetIn is called for each authorized request, by many goroutines. Defaults
	// to nil: no callback.
	LetIn func(r *http.Request)

	// CallerIdle limits how long a caller may stall: transfer less than 1 KiB
	// of the request body or of the answer. A request that stalls is ended,
	// with 408 if the answer has not begun, so that a stalled caller holds no
	// slot. Silence of the upstream is not limited, nor is silence in a gRPC
	// stream after the answer has begun. A negative duration means no limit.
	// Defaults to [DefaultCallerIdle].
	CallerIdle time.Duration

	// Local admits only requests whose Host field is localhost, a loopback
	// address or a host of the policies. It defends against DNS rebinding: a
	// web page whose name resolves to this machine. Requests over a Unix socket
	// may have any Host field. Defaults to false.
	Local bool

	// OutsideLink is called with the host of each link in Location,
	// Content-Location or Link that bypasses the handler. Such a link stays
	// unchanged. Many goroutines call it. Defaults to nil: no callback.
	OutsideLink func(host string)

	// BlindTunnel is called with the detail of the 403 for each TLS tunnel that
	// is refused because a policy needs to see inside. Most clients show their
	// users only the status. Many goroutines call it. Defaults to nil: no
	// callback.
	BlindTunnel func(detail string)
}

// check returns all mistakes in the configuration. The default of Hosts is already set.
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

// errStatus reports an answer whose status is not a number of three digits.
var errStatus = errors.New("proxy: the upstream has answered with a status that is none")

// errUpgrade reports an upgrade for which the caller did not ask.
var errUpgrade = errors.New("proxy: the upstream has upgraded the connection unasked")

// Handler holds requests until the policies have room, then forwards them. It
// is safe for concurrent use. Create it with [New].
type Handler struct {
	c       Config
	token   token
	counts  counts
	queue   *inbound.Queue
	bodies  bodies
	origins *http.CrossOriginProtection
	proxy   *httputil.ReverseProxy
	known   known
	links   links
	tunnels tunnels
	connect connector
}

// New returns a handler, or an error that lists all mistakes in c.
func New(c Config) (*Handler, error) {
	if c.Hosts == nil && c.Table != nil {
		c.Hosts = func(host string) bool { return c.Table().Has(host) }
	}
	if err := c.check(); err != nil {
		return nil, err
	}

	// Only 0 stands for the default. Negative values have meanings of their own.
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
		c: c, token: newToken(c.Token), queue: inbound.NewQueue(c.Held, c.HeldPerBudget), origins: http.NewCrossOriginProtection(),
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
		ErrorLog:       log.New(io.Discard, "", 0), // callers see stream errors themselves
		ModifyResponse: h.finish,
		ErrorHandler:   h.answerError,
	}

	return h, nil
}

// ServeHTTP implements [http.Handler].
func (h *Handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	// A web page cannot reach a Unix socket, so the Host field does not matter there.
	h.admit(w, r, h.c.Local && !onSocket(r), h.route)
}

// A findRoute returns the route of a request, or its refusal.
type findRoute func(*http.Request, *known) (*route, *problem)

// admit refuses a request that may not enter, and sends every other request by the route that find returns. With local
// the Host field matters: see inadmissible.
func (h *Handler) admit(w http.ResponseWriter, r *http.Request, local bool, find findRoute) {
	p := h.inadmissible(r, local, &h.token)
	if p == nil {
		p = h.fromOtherPage(r)
	}
	if p != nil {
		h.refuse(w, r, p)
		return
	}

	h.c.LetIn(r)
	h.send(w, h.token.remove(r), find)
}

// route returns the route of a request to one of many hosts, or to the handler of tunnels or of the waiting API.
func (h *Handler) route(r *http.Request, k *known) (*route, *problem) {
	switch {
	case r.Method == http.MethodConnect:
		return &route{instead: &h.connect}, nil
	case h.c.Waiting != nil && h.isWaiting(k.ownPath(r)):
		return &route{instead: h.c.Waiting}, nil
	}
	return routeOf(r, k)
}

// isWaiting reports whether [Config.Waiting] serves a URI, which is a path and a query.
func (h *Handler) isWaiting(uri string) bool {
	if !strings.HasPrefix(uri, "/v1/") {
		return false
	}
	selective, ok := h.c.Waiting.(interface{ Serves(path string) bool })
	return !ok || selective.Serves(uri[:endOf(uri, "?")])
}

// Upstream returns a handler that sends all requests to one host and shares all
// state with h. It is meant for an address of its own: programs that drop the
// path of a base URL can still reach the host there. While no policy names the
// host, it answers 403.
func (h *Handler) Upstream(host string) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		// Other machines may reach an address beyond the loopback by any name.
		h.admit(w, r, h.c.Local && onLoopback(r), func(r *http.Request, k *known) (*route, *problem) { return upstreamRoute(r, host, k) })
	})
}

// tunnelled returns the handler for requests in a tunnel to an authority.
func (h *Handler) tunnelled(authority string) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		// The token was checked at CONNECT, so no token is required here. A caller may send it all the same.
		if p := h.inadmissible(r, false, new(token)); p != nil {
			h.refuse(w, r, p)
			return
		}
		h.send(w, h.token.remove(r), func(r *http.Request, k *known) (*route, *problem) { return tunnelRoute(r, authority, k) })
	})
}

// Shutdown ends hijacked connections gracefully: tunnels and upgraded
// connections, which [http.Server.Shutdown] does not know. Plain HTTP ends
// after the requests in flight, TLS after a second without traffic. When ctx
// ends, Shutdown cuts the remaining connections and returns the error of ctx.
// New tunnels are refused.
func (h *Handler) Shutdown(ctx context.Context) error { return h.tunnels.shutdown(ctx) }

// send holds an admitted request and forwards it by its route, or hands it to the route's own handler if there is one. It
// refuses a request that has no route or cannot be held.
func (h *Handler) send(w http.ResponseWriter, r *http.Request, find findRoute) {
	to, p := find(r, &h.known)
	if p != nil {
		h.refuse(w, r, p)
		return
	}

	if to.instead != nil {
		to.instead.ServeHTTP(w, r)
		return
	}

	// Read the body before the request waits, so that a slow caller takes no place.
	free, p := h.bodies.readAhead(w, r)
	defer free() // also after a problem
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

	// An http.Server does not end an upgraded connection. Shutdown ends it by this context.
	if r.Header.Get("Upgrade") != "" {
		ctx, cut := context.WithCancel(r.Context())
		defer cut()
		c.cut, r = cut, r.WithContext(ctx)
	}

	c.upload, _ = r.Body.(*upload)
	if c.upload != nil {
		defer c.upload.finish()
	}

	h.watch(w, r, c)

	c.begun = time.Now()
	defer h.countAborted(c)
	defer c.leaveTunnel()
	answer := &informational{w, r.ProtoAtLeast(1, 1), func(early http.Header) { h.links.rewrite(early, to) }, c.taking}

	// Bound also the bytes that the server writes after this function returns.
	defer h.boundWrites(w)
	h.proxy.ServeHTTP(answer, r)
}

// hold takes a place in the queue for a request, or returns the problem of a queue that is full or stops. The returned
// request has a context with the call, and with the wait and the priority that the headers ask for. The place is given
// back by endWait of the call.
func (h *Handler) hold(r *http.Request) (*http.Request, *call, *problem) {
	ctx, place, err := h.queue.Enter(r.Context())
	if err != nil {
		return r, nil, problemOf(err)
	}

	c := &call{place: place}
	ctx = context.WithValue(ctx, callKey{}, c)
	ctx = throttle.WithMaxWait(ctx, inbound.MaxWait(r.Header, h.c.MaxWait))
	ctx = throttle.WithPriority(ctx, inbound.Priority(r.Header))
	return r.WithContext(c.trace(ctx)), c, nil
}

// answer sends an answer of the proxy itself, and counts it.
func (h *Handler) answer(w http.ResponseWriter, p *problem) {
	h.counts.refused[p.reason].Add(1)
	h.boundWrites(w)
	p.write(w)
}

// refuse answers a request that was never held, or a CONNECT. It closes the connection of a caller without the token, and of a
// request of HTTP/1 whose body may still arrive. It awaits the rest of such a body for restTime at most.
func (h *Handler) refuse(w http.ResponseWriter, r *http.Request, p *problem) {
	_, whole := r.Body.(wholeBody)
	unread := !whole && r.ContentLength != 0 && r.ProtoMajor == 1
	if unread {
		hangUp(w)
	}
	if p.Status == http.StatusProxyAuthRequired {
		// Close the connection: a caller without the token must not keep one open.
		w.Header().Set("Connection", "close")
	}

	h.answer(w, p)

	// A reset could overtake the answer while the caller sends its body. A caller with Expect has sent nothing.
	if unread && r.Header.Get("Expect") == "" {
		linger(w, r.Body)
	}
}

// hangUp has net/http close the connection after the answer, and await the rest of the body for restTime at most.
// Otherwise net/http would read the body before and after the answer, however slowly the body arrives.
func hangUp(w http.ResponseWriter) {
	w.Header().Set("Connection", "close")
	awaitLittle(w)
}

// answerError answers a request that got no answer from the upstream because of err. If the caller has gone, it counts
// the caller, and panics to end the connection.
func (h *Handler) answerError(w http.ResponseWriter, r *http.Request, err error) {
	c := callOf(r.Context())
	cause := context.Cause(r.Context())
	switch {
	// A refusal of the proxy itself travels as the cause of the context.
	case errors.As(cause, new(*problem)), errors.As(cause, new(*inbound.Refusal)):
		err = cause
	case errors.Is(err, inbound.ErrStopping): // the error of finish for an upgrade while the handler shuts down
	case errors.Is(r.Context().Err(), context.Canceled):
		c.left = true
		h.counts.left.Add(1)
		panic(http.ErrAbortHandler)
	}

	p := problemOf(err)
	p.timing, p.form = c.timing(), formOf(r)
	if !c.upload.isOver() {
		hangUp(w)
	}

	h.answer(w, p)
}

// countAborted counts an answer that ends in the middle, for which ReverseProxy panics with [http.ErrAbortHandler]. It is
// deferred, and passes each panic on. It does not count a caller that answerError has counted as left.
func (h *Handler) countAborted(c *call) {
	if v := recover(); v != nil {
		if v == http.ErrAbortHandler && !c.left {
			h.counts.aborted.Add(1)
		}
		panic(v)
	}
}

// Stop refuses new requests with 503. Requests that wait get a start within the
// given time or are refused: at once if their start is known to be later, which
// needs [Observe], otherwise when the time is over. Answers in progress
// continue.
func (h *Handler) Stop(within time.Duration) { h.queue.Stop(time.Now().Add(within)) }

// Stats returns the counters of the handler.
func (h *Handler) Stats() Stats {
	s := h.counts.stats()
	s.Held, s.BodyBytes, s.TunnelsEnded = h.queue.Len(), h.bodies.used.Load(), h.connect.slots.endedForRoom()
	return s
}

// inadmissible returns the refusal of a request that may not enter, whatever its target, or nil. With local
// the request must name this machine, or a host of the policies: see admits. The request must have the token t.
func (h *Handler) inadmissible(r *http.Request, local bool, t *token) *problem {
	if local && !h.known.admits(r) {
		return newProblem(http.StatusForbidden, "this proxy is reached as localhost, by an address of the loopback, or by the name of a host of its policies")
	}

	// Check every method like POST: a GET from a web page spends quota, too.
	asPost := *r
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

// fromOtherPage returns the refusal of a request that a page of a foreign origin caused, judged by Referer,
// or nil. For plain http to an address that is not loopback, browsers send neither Origin nor Sec-Fetch-Site
// with a GET. A Referer of https is let through: by default no browser sends one to plain http.
func (h *Handler) fromOtherPage(r *http.Request) *problem {
	// Local, a token or a socket keep pages out already. A browser whose HTTP_PROXY this is sends the absolute form.
	if h.c.Local || h.token.required || onSocket(r) || !strings.HasPrefix(r.RequestURI, "/") {
		return nil
	}

	scheme, page, _, ok := splitAbsolute(r.Referer())
	if !ok || scheme != "http" || page == r.Host || h.known.has(page) {
		return nil
	}
	return newProblem(http.StatusForbidden, "this proxy is not for pages of other origins in a browser")
}

// finish completes an answer of the upstream: it ends the wait, adds the time that the request was held, rewrites links,
// and counts an answer that no policy can read. It returns an error for a status at which net/http would panic, for an
// upgrade that the caller did not ask for, and for an upgrade while the handler shuts down.
func (h *Handler) finish(resp *http.Response) error {
	if resp.StatusCode < 100 || resp.StatusCode > 999 {
		return errStatus
	}

	// HTTP/1 cannot send trailers after a body of known length.
	if len(resp.Trailer) > 0 && resp.Request.Method != http.MethodHead {
		resp.Header.Del("Content-Length")
	}

	c := callOf(resp.Request.Context())
	c.endWait()
	c.answered(resp)

	// If the answer has come before the end of the upload, the connection must close: see upload.
	if !c.upload.isOver() && resp.StatusCode != http.StatusSwitchingProtocols {
		resp.Header.Set("Connection", "close")
	}
	if !isReadable(resp.Header) {
		h.counts.unreadable.Add(1)
	}

	resp.Header.Add("Server-Timing", c.timing())
	h.links.rewrite(resp.Header, c.to)
	if resp.StatusCode != http.StatusSwitchingProtocols {
		return nil
	}

	// ReverseProxy would refuse the upgrade, too, but not close the connection to the upstream.
	if !isUpgrade(resp) {
		return errUpgrade
	}
	if !c.enterTunnel(&h.tunnels) {
		return inbound.ErrStopping
	}

	return nil
}

// isUpgrade reports whether an answer upgrades the connection as its request asks.
func isUpgrade(resp *http.Response) bool {
	_, writable := resp.Body.(io.ReadWriteCloser)
	asked := resp.Request.Header.Get("Upgrade")
	return writable && asked != "" && strings.EqualFold(asked, resp.Header.Get("Upgrade"))
}

// copyBuffer is the size of a buffer that copies an answer.
const copyBuffer = 32 << 10

// buffers is a pool of copy buffers. It implements [httputil.BufferPool].
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

// rewrite turns the caller's request into the request to the upstream.
func rewrite(pr *httputil.ProxyRequest) {
	to := callOf(pr.In.Context()).to
	target := *to.target
	pr.Out.URL, pr.Out.Host = &target, to.field
	pr.Out.Trailer = pr.In.Trailer // the server fills in the trailer after the body
	removeProxyHeaders(pr.Out.Header)
	pr.Out.Header.Add("Via", via)

	// Pass on no upgrade except to WebSocket: inside h2c no policy would see requests.
	if !strings.EqualFold(pr.Out.Header.Get("Upgrade"), "websocket") {
		pr.Out.Header.Del("Upgrade")
		pr.Out.Header.Del("Connection")
	}
}

// isReadable reports whether policies can read an answer with this Content-Encoding.
func isReadable(h http.Header) bool {
	_, known := peek.Coding(&http.Response{Header: h})
	return known
}
