package proxy

import (
	"context"
	"net"
	"net/http"
	"net/http/httptrace"
	"net/url"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/fleetthrottle/throttle"
	"github.com/fleetthrottle/throttle/feedback"
	"github.com/fleetthrottle/throttle/internal/inbound"
	"github.com/fleetthrottle/throttle/internal/match"
)

// A route says where a request goes, and how its caller addresses hosts.
type route struct {
	target *url.URL
	field  string // Host field of the request to the upstream

	here string // how the caller writes the origin of the target: "http://127.0.0.1:7070/api.example.com"
	root string // prefix of the caller's paths: "/api.example.com"

	// others is the prefix by which the caller reaches further hosts, such as "http://localhost:7070/-/".
	// Clients send no credential of the target there: they treat it as a different origin from here, or have
	// come here by such a link themselves. "" means that there is no such origin.
	others string

	byProxy bool // the caller writes "http://" before a host, and sends the request to the proxy

	instead http.Handler // serves the request instead of forwarding it, or nil
}

// routeOf returns the route of a request to one of many hosts, or its refusal. The host is in the absolute form of the
// request target, in the Host field, or in the first path segment.
func routeOf(r *http.Request, k *known) (*route, *problem) {
	if !strings.HasPrefix(r.RequestURI, "/") {
		return absoluteRoute(r, k)
	}
	if host, name, ok := k.field(r); ok {
		return newRoute(host, name, r.RequestURI, route{here: origin(r)})
	}
	return prefixRoute(r, r.RequestURI, k)
}

// ownPath returns the path and query of a request to the handler's own address. It returns "" if the Host field
// names a host of the policies, or the absolute form names a different address.
func (k *known) ownPath(r *http.Request) string {
	if _, _, ok := k.field(r); ok {
		return ""
	}
	if strings.HasPrefix(r.RequestURI, "/") {
		return r.RequestURI
	}
	if _, authority, rest, ok := splitAbsolute(r.RequestURI); ok && isOwn(r, authority) {
		return rest
	}
	return ""
}

// crossed begins the path of a link from one API to another. Without it the second redirect of a chain would
// lead back to the origin of the first API, to which clients such as curl send the credential again.
const crossed = "/-"

// prefixRoute returns the route of "/host/path", or of "/-/host/path". It refuses paths without a host, and hosts that
// no policy names.
func prefixRoute(r *http.Request, uri string, k *known) (*route, *problem) {
	root := ""
	others := otherOrigin(r)
	if path, ok := strings.CutPrefix(uri, crossed+"/"); ok {
		uri, root = "/"+path, crossed

		// The caller has come by a link, and has left its credential at the first origin: links may lead to this origin.
		if others != "" {
			others = origin(r)
		}
	}
	if others != "" {
		others += crossed + "/"
	}

	host, rest := splitPrefix(uri)
	if !isHost(host) {
		return nil, newProblem(http.StatusBadRequest, "the path begins with no host: use http://ADDRESS-OF-THIS-PROXY/HOST/ as the base URL")
	}

	if !k.has(host) {
		// A segment such as v1 is no host.
		if !strings.ContainsAny(host, ".:") {
			return nil, lostHost()
		}
		return nil, unnamed()
	}

	root += "/" + host
	return newRoute(host, host, rest, route{here: origin(r) + root, others: others, root: root})
}

// absoluteRoute returns the route of "http://host/path", as clients with HTTP_PROXY send it. It refuses hosts that no
// policy names.
func absoluteRoute(r *http.Request, k *known) (*route, *problem) {
	scheme, authority, rest, ok := splitAbsolute(r.RequestURI)
	if !ok {
		return nil, newProblem(http.StatusBadRequest, "the target of the request is no path and no URL of http")
	}

	// A client with HTTP_PROXY may also use the proxy's own address as its base URL.
	if isOwn(r, authority) {
		return prefixRoute(r, rest, k)
	}

	// https without a port means port 443. http without a port means any port of the table.
	if scheme == "https" && !hasPort(authority) {
		authority += ":443"
	}

	host, name, ok := k.meant(authority)
	if !ok {
		return nil, unnamed()
	}

	return newRoute(host, name, rest, route{here: "http://" + name, byProxy: true})
}

// tunnelRoute returns the route of a request in a tunnel to an authority. It refuses CONNECT, and a request that names a
// different host.
func tunnelRoute(r *http.Request, authority string, k *known) (*route, *problem) {
	host, name, ok := k.meant(authority)
	if !ok {
		return nil, unnamed()
	}
	if r.Method == http.MethodConnect {
		return nil, newProblem(http.StatusForbidden, "there is no tunnel in a tunnel")
	}

	asked, rest := r.Host, r.RequestURI
	if !strings.HasPrefix(rest, "/") {
		_, asked, rest, ok = splitAbsolute(rest)
		if !ok {
			return nil, newProblem(http.StatusBadRequest, "the target of the request is no path and no URL of http")
		}
	}

	if _, askedName, _ := k.meant(asked); asked != "" && !sameHost(askedName, name) {
		return nil, newProblem(http.StatusMisdirectedRequest, "the request is for another host than its tunnel")
	}

	return newRoute(host, name, rest, route{here: "http://" + name, byProxy: true})
}

// upstreamRoute returns the route of a request at an address that serves one host. It refuses CONNECT, an absolute
// form that names neither the address nor the host, and every request while no policy names the host.
func upstreamRoute(r *http.Request, host string, k *known) (*route, *problem) {
	if !k.has(host) {
		return nil, newProblem(http.StatusForbidden, "no policy names the host of this address any more")
	}

	if r.Method == http.MethodConnect {
		return nil, newProblem(http.StatusForbidden, "this address is for one host, and has no tunnels")
	}

	rest := r.RequestURI
	if !strings.HasPrefix(rest, "/") {
		_, authority, path, ok := splitAbsolute(rest)
		isHere := isOwn(r, authority) || sameHost(authority, host)
		if !ok || !isHere {
			return nil, newProblem(http.StatusForbidden, "this address is for one host, and for paths")
		}
		rest = path
	}

	name := strings.TrimSuffix(host, ":443")
	return newRoute(host, name, rest, route{here: origin(r)})
}

// newRoute completes a route, which says how the caller addresses hosts, with its target: rest, which is "/path?query",
// at a host. name is the Host field of the request to the host. newRoute refuses paths that cannot be sent byte for byte.
func newRoute(host, name, rest string, to route) (*route, *problem) {
	target, ok := newTarget(host, rest)
	if !ok {
		return nil, newProblem(http.StatusBadRequest, "the path cannot be sent on as it is: escape its odd characters")
	}
	to.target, to.field = target, name
	return &to, nil
}

// lostHost is the answer to a path without the host of an API, such as /v1/models.
func lostHost() *problem {
	return newProblem(http.StatusForbidden, "no policy names this host: a client that takes its path for one from the root drops the host of the API from the base URL; the waiting API has /v1/acquire, /v1/release, /v1/settle, /v1/penalize and /v1/openapi.yaml")
}

// unnamed is the answer to a request for a host that no policy names.
func unnamed() *problem { return newProblem(http.StatusForbidden, "no policy names this host") }

// origin returns the caller's address of the proxy, or "" if the Host field is not usable.
func origin(r *http.Request) string {
	switch {
	case !isHost(r.Host):
		return ""
	case r.TLS != nil:
		return "https://" + r.Host
	}
	return "http://" + r.Host
}

// otherOrigin returns the origin by which a loopback caller reaches a different host: the same address under
// its second name, 127.0.0.1 or [::1] for localhost and vice versa. Clients drop Authorization and cookies when
// a redirect crosses from one name to the second. It returns "" if the caller uses none of the names, or TLS.
func otherOrigin(r *http.Request) string {
	name, port := match.SplitPort(r.Host)
	at, _ := r.Context().Value(http.LocalAddrContextKey).(net.Addr)

	switch {
	case r.TLS != nil:
		// A certificate may be valid for one of the names only.
		return ""
	case name == "127.0.0.1", name == "[::1]":
		return "http://localhost" + port
	case !strings.EqualFold(name, "localhost"):
		return ""
	case at != nil && strings.HasPrefix(at.String(), "[::1]"):
		return "http://[::1]" + port
	}

	return "http://127.0.0.1" + port
}

// splitPrefix splits "/host/path?query" before the path.
func splitPrefix(uri string) (host, rest string) {
	rest = strings.TrimPrefix(uri, "/")
	end := endOf(rest, "/?")
	return rest[:end], rest[end:]
}

// splitAbsolute splits "http://host/path?query". ok is false for schemes except http and https, and for an authority
// with other characters than isHost allows, such as a user and a password.
func splitAbsolute(uri string) (scheme, host, rest string, ok bool) {
	scheme, rest, ok = strings.Cut(uri, "://")
	scheme = strings.ToLower(scheme)
	if !ok || scheme != "http" && scheme != "https" {
		return "", "", "", false
	}
	end := endOf(rest, "/?")
	return scheme, rest[:end], rest[end:], isHost(rest[:end])
}

// endOf returns the index of the first of some characters in s, or the length of s.
func endOf(s, chars string) int {
	if i := strings.IndexAny(s, chars); i >= 0 {
		return i
	}
	return len(s)
}

// isHost reports whether s has only characters of hosts and ports, so that it cannot be read as a different
// part of a URL.
func isHost(s string) bool {
	return s != "" && !strings.ContainsFunc(s, func(c rune) bool {
		return (c < 'a' || c > 'z') && (c < 'A' || c > 'Z') && (c < '0' || c > '9') && !strings.ContainsRune("-._:[]", c)
	})
}

// newTarget returns the https URL of a host and rest, which is "/path?query", so that path and query are sent byte for
// byte. It returns false if there is no such URL, and for a path with hidden segments of dots: the upstream may serve a
// different path than the policies have seen.
func newTarget(host, rest string) (*url.URL, bool) {
	path, query, hasQuery := strings.Cut(rest, "?")
	isPath := path == "" || path[0] == '/'
	if !isPath || strings.ContainsFunc(rest, breaksLine) || match.HidesDots(path) {
		return nil, false
	}

	u := &url.URL{Scheme: "https", Host: host, RawPath: path, RawQuery: query, ForceQuery: hasQuery && query == ""}
	var err error
	if u.Path, err = url.PathUnescape(path); err != nil {
		return nil, false
	}
	if u.EscapedPath() == path {
		return u, true
	}

	u.Opaque = path // keeps characters that net/url would escape

	// net/http takes an opaque path that begins with // for an authority.
	return u, !strings.HasPrefix(path, "//")
}

// breaksLine reports whether a character would end the request target, or the line, in HTTP/1.
func breaksLine(c rune) bool { return c <= ' ' || c == 0x7f }

// dots returns 1 for the path segment ".", 2 for "..", encoded or not, and 0 for every other segment.
func dots(seg string) int {
	switch decoded, _ := url.PathUnescape(seg); decoded {
	case ".":
		return 1
	case "..":
		return 2
	}
	return 0
}

// sameHost reports whether two hosts are the same over https.
func sameHost(a, b string) bool { return canonical(a) == canonical(b) }

// canonical returns an https host in the form for comparisons.
func canonical(host string) string {
	name, port := match.SplitPort(host)
	if port == ":443" {
		port = ""
	}
	return strings.TrimSuffix(strings.ToLower(name), ".") + port
}

func hasPort(host string) bool {
	_, port := match.SplitPort(host)
	return port != ""
}

// withPort returns an https host with its port.
func withPort(host string) string {
	if hasPort(host) {
		return host
	}
	return host + ":443"
}

// Table is the view of the policies on hosts: which hosts callers may reach, at
// which port, and which parts of a request a policy must see. It is immutable
// and safe for concurrent use. Create it with [NewTable].
type Table struct {
	named *match.Index // one pattern per policy that names a host
	all   *match.Index // the host pattern of each policy, at the same index as in readers
	ports []string     // ports in the patterns, 443 first, then ascending

	readers []reader
	blind   map[string]bool // hosts, in the form of canonical, to which TLS tunnels are allowed
}

// A reader is a policy and the part of a request or answer that it must see, hidden by TLS.
type reader struct{ policy, reads string } // reads is "" if the policy needs only the host

// NewTable returns the table of policies. A pattern without a port means port
// 443. A pattern without a host, or with wildcards only, names no host.
//
// tunnels lists the hosts, as "host" or "host:port", to which TLS tunnels are
// allowed. Limits of such a host count tunnels, and neither count nor hold the
// requests inside. Tunnels to further hosts are refused: see [Table.Blind].
func NewTable(policies []throttle.Policy, tunnels ...string) *Table {
	t := &Table{readers: make([]reader, len(policies)), blind: make(map[string]bool)}
	for _, host := range tunnels {
		t.blind[canonical(host)] = true
	}

	var named, all []*match.Pattern
	for i := range policies {
		p := &policies[i]
		method, host, path := splitPattern(p.Match)
		t.readers[i] = reader{p.Name, readsOf(p, method, path)}
		all = append(all, parsedOrAll(host))

		name, port := match.SplitPort(host)

		// A pattern with wildcards alone names no host, so callers reach no host by it.
		if !namesLabel(name) {
			continue
		}
		if port == "" {
			port = ":443"
		}

		if parsed, err := match.Parse(name + port + "/"); err == nil {
			named = append(named, parsed)
			t.ports = append(t.ports, strings.TrimLeft(port[1:], "0"))
		}
	}

	t.named, t.all = match.NewIndex(named), match.NewIndex(all)
	slices.SortFunc(t.ports, comparePorts)
	t.ports = slices.Compact(t.ports)

	return t
}

// splitPattern splits "METHOD host/path".
func splitPattern(pattern string) (method, host, path string) {
	if i := strings.IndexAny(pattern, " \t"); i >= 0 {
		method, pattern = pattern[:i], strings.TrimLeft(pattern[i:], " \t")
	}
	host, path, _ = strings.Cut(pattern, "/")
	return method, host, path
}

// parsedOrAll returns the pattern that matches everything at a host, or everything at all if the host is no
// valid pattern.
func parsedOrAll(host string) *match.Pattern {
	if p, err := match.Parse(host + "/"); err == nil {
		return p
	}
	p, _ := match.Parse("")
	return p
}

// namesLabel reports whether at least one label of a host is not a wildcard.
func namesLabel(host string) bool {
	for label := range strings.SplitSeq(host, ".") {
		if label != "" && label != "*" && label[0] != '{' {
			return true
		}
	}
	return false
}

// comparePorts orders ports ascending, with 443 first.
func comparePorts(a, b string) int {
	rank := func(port string) int {
		n, _ := strconv.Atoi(port)
		if n == 443 {
			n = 0
		}
		return n
	}
	return rank(a) - rank(b)
}

// readsOf returns the part of a request or answer that a policy must see, or "" for none. A policy in Shadow
// needs nothing.
func readsOf(p *throttle.Policy, method, path string) string {
	switch {
	case p.Shadow:
		return ""
	case path != "":
		return "paths"
	case method != "":
		return "methods"
	case p.Key != nil:
		return "a key in requests"
	case p.Cost != nil:
		return "the cost of requests"
	case p.Share != nil:
		return "a share in requests"
	case !readsRetryAfterOnly(p.Answer), p.Meter != nil, p.Adaptive:
		return "answers"
	}

	return ""
}

// readsRetryAfterOnly reports whether a policy's Answer is nil, or one of the two functions that look only at status and
// Retry-After.
func readsRetryAfterOnly(read func(*http.Response) throttle.Answer) bool {
	if read == nil {
		return true
	}
	at := reflect.ValueOf(read).Pointer()
	return at == reflect.ValueOf(throttle.RetryAfter).Pointer() || at == reflect.ValueOf(feedback.LeaveOpen).Pointer()
}

// Has reports whether a policy names a host, given as "host" or "host:port".
func (t *Table) Has(host string) bool { return len(t.named.Match(nil, requestTo(host))) > 0 }

// atAnyPort resolves a host without a port: port 443 if the table has it, otherwise the lowest port.
func (t *Table) atAnyPort(name string) (host string, ok bool) {
	if t.Has(name) {
		return name, true
	}
	for _, port := range t.ports {
		if host := name + ":" + port; t.Has(host) {
			return host, true
		}
	}
	return "", false
}

// Blind returns why TLS tunnels to a host, given as "host" or "host:port", are
// refused. policy is the policy that must see inside, else the first policy of
// the host, or "". why is "" if the tunnels are allowed.
func (t *Table) Blind(host string) (policy, why string) {
	matched := t.all.Match(nil, requestTo(withPort(host)))
	for _, i := range matched {
		if r := t.readers[i]; r.reads != "" {
			return r.policy, "it needs to see " + r.reads + ", which TLS hides"
		}
	}

	if t.blind[canonical(host)] {
		return "", ""
	}

	if len(matched) > 0 {
		policy = t.readers[matched[0]].policy
	}

	return policy, "it counts requests, which TLS hides, and \"tunnels\" of the policy file does not list the host"
}

// requestTo returns a request for a lookup by host.
func requestTo(host string) *http.Request {
	return &http.Request{URL: &url.URL{Scheme: "https", Host: host, Path: "/"}}
}

// Hosts returns a function for [Config.Hosts] that reports whether one of the
// policies names a host.
func Hosts(policies []throttle.Policy) func(host string) bool { return NewTable(policies).Has }

// known resolves hosts that callers name.
type known struct {
	has   func(host string) bool
	table func() *Table // nil without a table
}

// atAnyPort resolves a host without a port, or with port 80: a caller speaks plain HTTP to the proxy, which
// forwards over https.
func (k *known) atAnyPort(name string) (host string, ok bool) {
	if k.table != nil {
		return k.table().atAnyPort(name)
	}
	return name, k.has(name)
}

// meant returns the host that http://authority/ means, and the Host field for it. ok is false if no policy
// names the host.
func (k *known) meant(authority string) (host, name string, ok bool) {
	name, port := match.SplitPort(authority)
	switch port {
	case "", ":", ":80":
		host, ok = k.atAnyPort(name)
		return host, name, ok
	case ":443":
		return name, name, k.has(name)
	}
	return authority, authority, k.has(authority)
}

// field returns the host that the Host field of a request means. ok is false if the field names the proxy
// itself, or a host without a policy.
func (k *known) field(r *http.Request) (host, name string, ok bool) {
	switch {
	case inbound.IsLoopbackHost(r.Host) || !isHost(r.Host):
		return "", "", false
	case k.has(r.Host):
		return r.Host, r.Host, true
	}
	authority := r.Host

	// Clients put the port of their connection into Host. The proxy's own port says nothing about the upstream.
	if name, port := match.SplitPort(authority); port != "" && port[1:] == ownPort(r) {
		authority = name
	}
	return k.meant(authority)
}

// admits reports whether a request names this machine or a host of the policies. A request in absolute form
// or for a tunnel is meant for a proxy, and no web page can send it.
func (k *known) admits(r *http.Request) bool {
	if inbound.IsLoopbackHost(r.Host) || !strings.HasPrefix(r.RequestURI, "/") {
		return true
	}
	_, _, ok := k.field(r)
	return ok
}

// ownPort returns the local port of the connection, or "".
func ownPort(r *http.Request) string {
	if at, ok := r.Context().Value(http.LocalAddrContextKey).(net.Addr); ok {
		if _, port, err := net.SplitHostPort(at.String()); err == nil {
			return port
		}
	}
	return ""
}

// isOwn reports whether an authority is the local address of the connection, or the loopback at the same port.
func isOwn(r *http.Request, authority string) bool {
	name, port := match.SplitPort(authority)
	if port == "" {
		port = ":80"
	}
	at, ok := r.Context().Value(http.LocalAddrContextKey).(net.Addr)
	return ok && port[1:] == ownPort(r) && (inbound.IsLoopbackHost(name) || at.String() == authority)
}

// onLoopback reports whether the connection came in at a loopback address.
func onLoopback(r *http.Request) bool {
	at, ok := r.Context().Value(http.LocalAddrContextKey).(*net.TCPAddr)
	return ok && at.IP.IsLoopback()
}

// onSocket reports whether the connection came in by a Unix socket, which no web page can reach.
func onSocket(r *http.Request) bool {
	_, ok := r.Context().Value(http.LocalAddrContextKey).(*net.UnixAddr)
	return ok
}

// A call is one request on its way.
type call struct {
	to     *route
	begun  time.Time // begin of the wait
	cut    func()    // ends an upgraded request
	tunnel *tunnel   // the upgraded connection, or nil

	place  *inbound.Place // its place in the queue
	upload *upload        // body that is not read to its end yet, or nil
	left   bool           // the caller left before the answer

	sending *stall // limits the wait for the body; nil means no limit
	taking  *stall // limits the wait for the caller to take the answer

	mu   sync.Mutex
	sent time.Time // when the base was asked for a connection, zero before
}

// callKey is the context key of a *call.
type callKey struct{}

// callOf returns the call of a context, or nil.
func callOf(ctx context.Context) *call {
	c, _ := ctx.Value(callKey{}).(*call)
	return c
}

// trace returns a context whose trace tells the call that its request has a start. The transport hands the
// request to the base only with a start, and the base then asks for a connection. The transport's own GotConn
// hook runs first and replaces a start that is too old: GotConn then ends the second wait.
func (c *call) trace(ctx context.Context) context.Context {
	return httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{
		GetConn: func(string) { c.start() },
		GotConn: func(httptrace.GotConnInfo) { c.endWait() },
	})
}

// start notes that the request has a start. A start that becomes too old is replaced, and start runs again.
func (c *call) start() {
	c.endWait()
	c.mu.Lock()
	defer c.mu.Unlock()
	c.sent = time.Now()
}

// endWait notes that the request no longer waits.
func (c *call) endWait() { c.place.Leave() }

// Observe tells the [Handler] of a request which budget holds the request, for
// [Config.HeldPerBudget] and [Handler.Stop]. Set it as
// [throttle.Config.Observe] of the handler's transport, or call it there with
// the same context. Safe for concurrent use.
func Observe(ctx context.Context, e throttle.Event) { inbound.Observe(ctx, e) }

// timing returns the Server-Timing value: the time that the request was held, in milliseconds.
func (c *call) timing() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	end := c.sent
	if end.IsZero() {
		end = time.Now()
	}
	held := float64(end.Sub(c.begun).Microseconds()) / 1000
	return "throttle;dur=" + strconv.FormatFloat(held, 'f', -1, 64)
}

// enterTunnel notes that the connection is upgraded. It returns false while the handler shuts down.
func (c *call) enterTunnel(all *tunnels) (ok bool) {
	c.tunnel, ok = all.add(c.cut, c.cut)
	return ok
}

// leaveTunnel notes that an upgraded connection has ended.
func (c *call) leaveTunnel() {
	if c.tunnel != nil {
		c.tunnel.leave()
	}
}
