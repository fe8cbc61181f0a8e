package proxy

import (
	"net"
	"net/http"
	"net/url"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"github.com/fleetthrottle/throttle"
	"github.com/fleetthrottle/throttle/feedback"
	"github.com/fleetthrottle/throttle/internal/inbound"
	"github.com/fleetthrottle/throttle/internal/match"
)

// Table is the view of the policies on hosts: which hosts callers may reach, at
// which port, and which parts of a request a policy must see. It is immutable
// and safe for concurrent use. Create it with [NewTable].
type Table struct {
	named *match.Index // one pattern per policy that names a host
	all   *match.Index // the host pattern of each policy, at the same index as in readers
	ports []string     // ports in the patterns, ascending

	readers []reader
	blind   map[string]bool // hosts with ports to which TLS tunnels are allowed
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

		// A pattern of wildcards only names no host that callers could reach by it.
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

// readsRetryAfterOnly reports whether read is one of the default readers, which look only at status and
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
// refused, and the policy that must see inside. why is "" if the tunnels are
// allowed.
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

// isOwn reports whether an authority is the local address of the connection.
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
