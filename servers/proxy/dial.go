package proxy

import (
	"cmp"
	"context"
	"errors"
	"net"
	"net/http"
	"net/http/httptrace"
	"net/netip"
	"net/url"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/fleetthrottle/throttle/internal/match"
	problems "github.com/fleetthrottle/throttle/internal/problem"
)

// errInside reports a host at an address that is not public.
var errInside = errors.New("proxy: the host is at an address that is not public")

// inside are the address ranges without public upstreams for which
// [net/netip.Addr] has no method.
var inside = []netip.Prefix{
	netip.MustParsePrefix("0.0.0.0/8"),
	netip.MustParsePrefix("100.64.0.0/10"),    // carrier-grade NAT, and Alibaba's metadata
	netip.MustParsePrefix("168.63.129.16/32"), // Azure's own services for its machines
	netip.MustParsePrefix("192.0.0.0/24"),
	netip.MustParsePrefix("198.18.0.0/15"),
	netip.MustParsePrefix("240.0.0.0/4"),
	netip.MustParsePrefix("::/8"), // has IPv4 addresses of several translators, as have the next two
	netip.MustParsePrefix("2001::/32"),
	netip.MustParsePrefix("2002::/16"),
	netip.MustParsePrefix("fec0::/10"),
}

// nat64 are IPv6 addresses with an IPv4 address in the last 32 bits (RFC 6052).
var nat64 = netip.MustParsePrefix("64:ff9b::/96")

// isPublic reports whether an address is public, so that an upstream may have it.
func isPublic(a netip.Addr) bool {
	a = a.WithZone("").Unmap()

	// On IPv6-only networks DNS64 gives an IPv4 upstream an address in nat64.
	if nat64.Contains(a) {
		whole := a.As16()
		a = netip.AddrFrom4([4]byte(whole[12:]))
	}

	// Loopback, link-local, multicast and 0.0.0.0 are not global unicast.
	if !a.IsGlobalUnicast() || a.IsPrivate() {
		return false
	}

	for _, p := range inside {
		if p.Contains(a) {
			return false
		}
	}

	return true
}

// NewBase returns a base for the [throttle.Transport] of a [Handler]. It
// connects only to public addresses: dialling a name that resolves to loopback,
// a private network, a link-local address or cloud metadata fails. The hosts in
// private, without ports, may be at any address. It does not decompress answers
// and ignores HTTP_PROXY.
func NewBase(private ...string) *http.Transport {
	listed := make(map[string]bool)
	for _, host := range private {
		listed[plainHost(host)] = true
	}

	open := &net.Dialer{Timeout: 10 * time.Second}
	guarded := *open

	// Check the address that is dialled, not the name: a name can resolve to a different address each time.
	guarded.ControlContext = func(_ context.Context, _, address string, _ syscall.RawConn) error {
		if at, err := netip.ParseAddrPort(address); err != nil || !isPublic(at.Addr()) {
			return errInside
		}
		return nil
	}

	base := &http.Transport{
		DialContext: func(ctx context.Context, network, address string) (net.Conn, error) {
			if host, _ := match.SplitPort(address); listed[plainHost(host)] {
				return open.DialContext(ctx, network, address)
			}
			return guarded.DialContext(ctx, network, address)
		},
		DisableCompression:    true,
		ForceAttemptHTTP2:     true,
		MaxIdleConnsPerHost:   100,
		IdleConnTimeout:       90 * time.Second,
		TLSHandshakeTimeout:   10 * time.Second,
		ExpectContinueTimeout: time.Second,
	}

	base.RegisterProtocol(tunnelScheme, tunnelBase{func(ctx context.Context, network, address string) (net.Conn, error) {
		return base.DialContext(ctx, network, address) // read the field at each call: a program may replace it
	}})
	return base
}

// plainHost returns a host in the form for comparisons.
func plainHost(host string) string {
	return strings.Trim(strings.TrimSuffix(strings.ToLower(host), "."), "[]")
}

// tunnelScheme is the scheme of requests by which tunnels get their starts. A
// base of [NewBase] connects for such a request and sends nothing.
const tunnelScheme = "tunnel"

// A dialled receives the connection of a tunnel.
type dialled struct{ conn net.Conn }

// dialledKey is the context key of a *dialled.
type dialledKey struct{}

// connect opens a connection to a host, with one start of the transport. end closes the connection and ends its request.
func connect(ctx context.Context, transport http.RoundTripper, host string) (conn net.Conn, end func(), err error) {
	var to dialled
	req := &http.Request{Method: http.MethodConnect, URL: &url.URL{Scheme: tunnelScheme, Host: withPort(host), Path: "/"}, Header: make(http.Header)}
	resp, err := transport.RoundTrip(req.WithContext(context.WithValue(ctx, dialledKey{}, &to)))
	if err != nil {
		return nil, nil, err
	}

	// A base that is not from NewBase may answer the request in its own way.
	if to.conn == nil {
		resp.Body.Close()
		return nil, nil, errNoConnection
	}
	return to.conn, func() { resp.Body.Close() }, nil
}

// errNoConnection reports that the base of Config.Transport cannot connect for a tunnel.
var errNoConnection = errors.New("proxy: Config.Transport has no connection for a tunnel: set its Base to NewBase()")

// A tunnelBase is a RoundTripper that connects for tunnels.
type tunnelBase struct {
	dial func(ctx context.Context, network, address string) (net.Conn, error)
}

// RoundTrip implements [http.RoundTripper]. It calls the hooks of a trace like
// [http.Transport], so that the transport checks the age of the start once the
// connection exists.
func (b tunnelBase) RoundTrip(req *http.Request) (*http.Response, error) {
	ctx, trace := req.Context(), &httptrace.ClientTrace{}
	if t := httptrace.ContextClientTrace(ctx); t != nil {
		trace = t
	}
	if trace.GetConn != nil {
		trace.GetConn(req.URL.Host)
	}

	conn, err := b.dial(ctx, "tcp", req.URL.Host)
	if err != nil {
		return nil, err
	}
	if trace.GotConn != nil {
		trace.GotConn(httptrace.GotConnInfo{Conn: conn})
	}

	// GotConn may have ended the context, because the start had become too old meanwhile.
	if err := ctx.Err(); err != nil {
		conn.Close()
		return nil, err
	}

	if trace.WroteHeaders != nil {
		trace.WroteHeaders()
	}
	if to, ok := ctx.Value(dialledKey{}).(*dialled); ok {
		to.conn = conn
	}

	return &http.Response{
		StatusCode: http.StatusSwitchingProtocols, // policies do not read the body of this status
		Proto:      "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
		Header: make(http.Header), Body: conn, ContentLength: -1, Request: req,
	}, nil
}

// A form is how an API words an error. An SDK of a language model reads the form of its own API alone.
type form int

const (
	problemForm   form = iota // RFC 9457
	openAIForm                // OpenAI, and the many APIs with the same paths
	anthropicForm             // Anthropic, and APIs with the same paths
	geminiForm                // Gemini
)

// formOf returns the form of the API that a request to an upstream is for, by its host, its path, or a header that SDKs
// send.
func formOf(r *http.Request) form {
	host, path := r.URL.Hostname(), r.URL.Path
	ends := func(suffixes ...string) bool {
		for _, s := range suffixes {
			if strings.HasSuffix(path, s) {
				return true
			}
		}
		return false
	}

	switch {
	case host == "api.anthropic.com", r.Header.Get("Anthropic-Version") != "", ends("/v1/messages"):
		return anthropicForm
	case host == "api.openai.com", ends("/chat/completions", "/completions", "/embeddings", "/responses"):
		return openAIForm
	case host == "generativelanguage.googleapis.com", ends(":generateContent", ":streamGenerateContent", ":embedContent", ":batchEmbedContents"):
		return geminiForm
	}

	return problemForm
}

// A formedProblem is a problem that also has the error in the form of an API.
type formedProblem struct {
	Type string `json:"type,omitempty"` // in place of the problem's
	*problems.Problem
	Error any `json:"error"`
}

// of returns the Content-Type and the body of a problem.
func (f form) of(p *problem) (kind string, body any) {
	const json = "application/json"
	switch f {
	case openAIForm:
		return json, formedProblem{p.Type, &p.Problem, openAIErrorOf(p)}
	case anthropicForm:
		return json, formedProblem{"error", &p.Problem, anthropicError{anthropicTypes.of(p.Status), p.Detail}}
	case geminiForm:
		return json, formedProblem{p.Type, &p.Problem, geminiError{p.Status, p.Detail, geminiStatuses.of(p.Status)}}
	}
	return problems.Kind, &p.Problem
}

// An openAIError is an error of OpenAI. Its SDKs drop what stands beside it, so it also names the policy.
type openAIError struct {
	Message string  `json:"message"`
	Type    string  `json:"type"`
	Param   *string `json:"param"`
	Code    *string `json:"code"`
	Policy  string  `json:"policy,omitempty"`
}

// openAIErrorOf returns a problem as an error of OpenAI. The type of a 429 names what ran out: tokens if the name of the
// policy ends so, otherwise requests.
func openAIErrorOf(p *problem) openAIError {
	e := openAIError{Message: p.Detail, Type: openAITypes.of(p.Status), Policy: p.Policy}
	if p.Status != http.StatusTooManyRequests {
		return e
	}

	code := "rate_limit_exceeded"
	e.Code = &code
	if strings.HasSuffix(p.Policy, "-tokens") {
		e.Type = "tokens"
	}
	return e
}

// An anthropicError is an error of Anthropic.
type anthropicError struct {
	Type    string `json:"type"`
	Message string `json:"message"`
}

// A geminiError is an error of Gemini.
type geminiError struct {
	Code    int    `json:"code"`
	Message string `json:"message"`
	Status  string `json:"status"`
}

// words are the names that an API has for statuses. The name for 500 stands for statuses that are missing.
type words map[int]string

func (w words) of(status int) string {
	if word, ok := w[status]; ok {
		return word
	}
	return w[http.StatusInternalServerError]
}

var (
	openAITypes    = words{429: "requests", 403: "invalid_request_error", 500: "server_error"}
	anthropicTypes = words{429: "rate_limit_error", 403: "permission_error", 500: "api_error"}
	geminiStatuses = words{429: "RESOURCE_EXHAUSTED", 403: "PERMISSION_DENIED", 500: "INTERNAL", 503: "UNAVAILABLE", 504: "DEADLINE_EXCEEDED"}
)

// tunnels are the hijacked connections: tunnels of CONNECT, and upgraded connections. An [http.Server] no
// longer knows them.
type tunnels struct {
	mu     sync.Mutex
	all    map[*tunnel]bool
	ending bool
	empty  chan struct{} // closed when the last tunnel ends, while ending
}

// A tunnel is one hijacked connection.
type tunnel struct {
	of  *tunnels
	end func() // ends it when it is quiet
	cut func() // ends it at once
}

// add adds a tunnel and the functions that end it. It returns false while the handler shuts down.
func (t *tunnels) add(end, cut func()) (*tunnel, bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.ending {
		return nil, false
	}
	one := &tunnel{t, end, cut}
	if t.all == nil {
		t.all = make(map[*tunnel]bool)
	}
	t.all[one] = true
	return one, true
}

// endBy replaces the function that ends a tunnel gracefully.
func (one *tunnel) endBy(end func()) {
	one.of.mu.Lock()
	one.end = end
	ending := one.of.ending
	one.of.mu.Unlock()

	// Shutdown has called the earlier function, so call the new function here.
	if ending {
		end()
	}
}

// leave removes a tunnel that has ended.
func (one *tunnel) leave() {
	t := one.of
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.all, one)
	if len(t.all) == 0 && t.ending {
		close(t.empty)
	}
}

// shutdown ends all tunnels gracefully, and cuts the remaining ones when ctx ends. It refuses new tunnels.
func (t *tunnels) shutdown(ctx context.Context) error {
	ends, empty := t.beginEnding()
	for _, end := range ends {
		end()
	}

	select {
	case <-empty:
		return nil
	case <-ctx.Done():
	}

	t.mu.Lock()
	defer t.mu.Unlock()

	for one := range t.all {
		one.cut()
	}

	return ctx.Err()
}

// beginEnding refuses new tunnels and returns the functions that end the open tunnels gracefully. empty is closed when no
// tunnel is open.
func (t *tunnels) beginEnding() (ends []func(), empty <-chan struct{}) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for one := range t.all {
		ends = append(ends, one.end)
	}
	if !t.ending {
		t.ending, t.empty = true, make(chan struct{})
		if len(t.all) == 0 {
			close(t.empty)
		}
	}
	return ends, t.empty
}

// unusedTunnel is how long a tunnel must be idle before it can be evicted.
const unusedTunnel = 5 * time.Second

// slots are the places of CONNECT tunnels. When all are taken, an idle tunnel is evicted, so that no client
// can starve the rest with idle tunnels.
type slots struct {
	most int

	mu    sync.Mutex
	all   map[*slot]bool
	of    map[netip.Prefix]int // number of slots by client
	ended int64                // number of evicted tunnels
}

// A slot is the place of one tunnel.
type slot struct {
	client netip.Prefix
	caller *taken // hijacked connection, nil before the hijack
}

// clientOf returns the client of an address with port: an IPv4 address, or an IPv6 /64, in which one machine
// can take any number of addresses. All callers over Unix sockets are one client.
func clientOf(address string) netip.Prefix {
	at, _ := netip.ParseAddrPort(address)
	ip := at.Addr().Unmap().WithZone("")

	client, _ := ip.Prefix(min(ip.BitLen(), 64))
	return client
}

// enter takes a slot for a client, or returns nil if all are taken and none can be evicted.
func (s *slots) enter(client netip.Prefix) *slot {
	s.mu.Lock()
	defer s.mu.Unlock()

	if len(s.all) >= s.most && !s.makeRoom(client) {
		return nil
	}

	if s.all == nil {
		s.all, s.of = make(map[*slot]bool), make(map[netip.Prefix]int)
	}

	one := &slot{client: client}
	s.all[one] = true
	s.of[client]++

	return one
}

// use notes the connection of a slot, by which its tunnel can be ended.
func (s *slots) use(one *slot, caller *taken) {
	s.mu.Lock()
	defer s.mu.Unlock()

	one.caller = caller
}

// leave gives a slot back.
func (s *slots) leave(one *slot) {
	s.mu.Lock()
	defer s.mu.Unlock()

	s.remove(one)
}

// remove takes a slot out, once. The mutex is held.
func (s *slots) remove(one *slot) {
	if !s.all[one] {
		return
	}
	delete(s.all, one)
	s.of[one.client]--
	if s.of[one.client] == 0 {
		delete(s.of, one.client)
	}
}

// makeRoom evicts the least valuable tunnel that a client may evict, and reports whether there was one. The
// mutex is held.
func (s *slots) makeRoom(client netip.Prefix) bool {
	idleBefore := time.Now().Add(-unusedTunnel).UnixNano()
	var least *slot
	for one := range s.all {
		// A tunnel that is still connecting has no connection to close.
		if one.caller == nil || one.caller.used.Load() > idleBefore {
			continue
		}

		// A client evicts tunnels of its own, or of clients with more tunnels.
		if one.client != client && s.of[one.client] <= s.of[client] {
			continue
		}
		if least == nil || s.compare(one, least) < 0 {
			least = one
		}
	}

	if least == nil {
		return false
	}

	least.caller.Close()
	s.remove(least)
	s.ended++

	return true
}

// compare orders slots for eviction: first the client with the most tunnels, then tunnels whose last byte
// came from the upstream, then the longest idle.
func (s *slots) compare(a, b *slot) int {
	return cmp.Or(
		cmp.Compare(s.of[b.client], s.of[a.client]),
		compareBools(a.caller.asks.Load(), b.caller.asks.Load()),
		cmp.Compare(a.caller.used.Load(), b.caller.used.Load()),
	)
}

// compareBools orders false before true.
func compareBools(a, b bool) int {
	switch {
	case a == b:
		return 0
	case b:
		return -1
	}
	return 1
}

// endedForRoom returns the number of evicted tunnels.
func (s *slots) endedForRoom() int64 {
	s.mu.Lock()
	defer s.mu.Unlock()

	return s.ended
}

// linkFields are the fields of an answer with one link each. The field Link has
// several.
var linkFields = []string{"Location", "Content-Location"}

// links rewrites links in answers so that a caller that follows one stays with the proxy. A link to a
// different host of the policies leads to a different origin of the proxy, or stays unchanged, so that a
// client does not send the credential of one API to the next.
type links struct {
	known   *known
	outside func(host string) // is told of links that bypass the proxy
}

// rewrite replaces the origin of each link to a host of the policies by the caller's address of that host.
// Path, query and fragment stay byte for byte.
func (l *links) rewrite(h http.Header, to *route) {
	for _, name := range linkFields {
		for i, link := range h[name] {
			h[name][i] = l.rewriteLink(link, to)
		}
	}
	for i, list := range h["Link"] {
		h["Link"][i] = l.rewriteList(list, to)
	}
}

// rewriteList rewrites the links in angle brackets of a field Link (RFC 8288). Brackets inside quoted
// parameters are text.
func (l *links) rewriteList(list string, to *route) string {
	var out strings.Builder
	for quoted := false; list != ""; {
		// Only these three characters change the meaning of the text behind them.
		end := endOf(list, `"<\`)
		out.WriteString(list[:end])
		list = list[end:]
		if list == "" {
			break
		}

		switch c := list[0]; {
		case c == '<' && !quoted:
			link, rest, closed := strings.Cut(list[1:], ">")
			if !closed {
				out.WriteString(list)
				return out.String()
			}

			out.WriteString("<" + l.rewriteLink(link, to) + ">")
			list = rest
			continue

		case c == '"':
			quoted = !quoted
		case c == '\\' && quoted && len(list) > 1:
			// Write the backslash here, and the character that it escapes below.
			out.WriteByte(c)
			list = list[1:]
		}

		out.WriteByte(list[0])
		list = list[1:]
	}

	return out.String()
}

// rewriteLink returns a link for the caller of a route. A link to a host that the caller reaches through the proxy gets the
// caller's address of that host. A link without a host is rewritten by rewriteRelative. rewriteLink calls outside for a link
// that bypasses the proxy, and returns the link as it was given.
func (l *links) rewriteLink(given string, to *route) string {
	// Clients that parse URLs like browsers drop tabs and read a backslash as a slash.
	link := strings.ReplaceAll(given, "\t", "")
	end := endOf(link, "?#")
	link = strings.ReplaceAll(link[:end], `\`, "/") + link[end:]

	scheme, host, rest, isAbsolute := splitLink(link)
	if !isAbsolute {
		return rewriteRelative(link, to)
	}

	// No link with a malformed host, or with user information before the host, leads to the proxy.
	if isHost(host) {
		plain := withoutPort(scheme, host)
		if origin, ok := l.originFor(plain, to); ok {
			return origin + belowRoot(rest, to)
		}
		if l.isSentHere(scheme, host, to) {
			return link
		}
	}

	l.outside(host[strings.LastIndexByte(host, '@')+1:])
	return given
}

// originFor returns the address by which the caller of a route reaches a host through the proxy. The host has no default
// port. ok is false if the route has no such address.
func (l *links) originFor(host string, to *route) (origin string, ok bool) {
	if sameHost(host, to.target.Host) || sameHost(host, to.field) {
		return to.here, true
	}
	if to.others != "" && l.known.has(host) {
		return to.others + host, true
	}
	return "", false
}

// isSentHere reports whether a client that follows an unchanged link sends the request to the proxy, and a policy names
// the host.
func (l *links) isSentHere(scheme, host string, to *route) bool {
	if !to.byProxy || scheme == "https:" {
		return false
	}
	_, _, ok := l.known.meant(host)
	return ok
}

// rewriteRelative returns a link without a host for the caller of a route. A path from the root of the API gets the root
// of the caller's paths. Other relative links stay, unless they lead above the root of the API: the caller's path would
// then reach a different API.
func rewriteRelative(link string, to *route) string {
	if strings.HasPrefix(link, "/") {
		return to.root + belowRoot(link, to)
	}

	// Without a root the upstream has an origin of its own, and no link leads above that. A colon in the first segment ends a
	// scheme.
	hasScheme := strings.Contains(link[:endOf(link, "/?#")], ":")
	if to.root == "" || hasScheme {
		return link
	}

	// If the target has no path, the last segment of the caller's path is the host, which a relative path would replace.
	base := to.target.EscapedPath()
	hasPath := endOf(link, "?#") > 0
	if base == "" && hasPath {
		return to.root + belowRoot("/"+link, to)
	}

	// A relative link that stays below the root works as it is.
	whole := base[:strings.LastIndexByte(base, '/')+1] + link
	below := belowRoot(whole, to)
	if below == whole {
		return link
	}
	return to.root + below
}

// belowRoot returns rest, which is a path with query and fragment. If dot segments lead above the root, it removes all dot
// segments of the path as the upstream would (RFC 3986, 5.2.4). Behind the proxy they would lead to a different API.
func belowRoot(rest string, to *route) string {
	end := endOf(rest, "?#")
	path := strings.TrimPrefix(rest[:end], "/")
	if to.root == "" || path == "" {
		return rest
	}

	var kept []string
	above := false // a segment ".." has led above the root
	for seg := range strings.SplitSeq(path, "/") {
		switch dots(seg) {
		case 2:
			above = above || len(kept) == 0
			kept = kept[:max(len(kept)-1, 0)]
		case 0:
			kept = append(kept, seg)
		}
	}

	if !above {
		return rest // keep it byte for byte
	}

	return "/" + strings.Join(kept, "/") + rest[end:]
}

// splitLink splits "https://host/path" or "//host/path". ok is false for a link without a host, or with a
// scheme that is not http or https.
func splitLink(link string) (scheme, host, rest string, ok bool) {
	scheme, rest, ok = strings.Cut(link, "//")
	scheme = strings.ToLower(scheme)
	if !ok || scheme != "" && scheme != "http:" && scheme != "https:" {
		return "", "", "", false
	}
	end := endOf(rest, "/?#")
	return scheme, rest[:end], rest[end:], true
}

// withoutPort removes the port of a link's host if the proxy calls the host at that port by default: 443 and, except
// for https, 80, as in known.meant.
func withoutPort(scheme, host string) string {
	if scheme != "https:" {
		if plain, ok := strings.CutSuffix(host, ":80"); ok {
			return plain
		}
	}
	return strings.TrimSuffix(host, ":443")
}
