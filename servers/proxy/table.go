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
	"github.com/fleetthrottle/throttle/internal/loopback"
	"github.com/fleetthrottle/throttle/internal/match"
)

// A Table is what policies say of hosts: which of them may be reached, at which port, and what
// must be seen of a request there. It never changes and is safe for concurrent use.
type Table struct {
	named *match.Index // a pattern for each policy that names a host
	all   *match.Index // a pattern for the host of each policy, at the same position as in readers
	ports []string     // those that patterns write, ascending

	readers []reader
	blind   map[string]bool // hosts, with their ports, to which tunnels of TLS are carried
}

// A reader is a policy with what it reads of a request, or of an answer, that TLS hides.
type reader struct{ policy, reads string } // reads is "" if it needs only the host

// NewTable returns the table of policies. A pattern without a port is for port 443 alone. A
// pattern without a host, or one whose host is nothing but wildcards, names none.
//
// Tunnels are the hosts, as "host" or "host:port", to which tunnels of TLS are carried. The limits of such a
// host count connections there, and neither count nor hold the requests inside. Tunnels to other hosts are
// refused: see [Table.Blind].
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

// splitPattern cuts "METHOD host/path".
func splitPattern(pattern string) (method, host, path string) {
	if i := strings.IndexAny(pattern, " \t"); i >= 0 {
		method, pattern = pattern[:i], strings.TrimLeft(pattern[i:], " \t")
	}
	host, path, _ = strings.Cut(pattern, "/")
	return method, host, path
}

// parsedOrAll returns the pattern of all that is at a host, or of everything where there is no
// such pattern.
func parsedOrAll(host string) *match.Pattern {
	if p, err := match.Parse(host + "/"); err == nil {
		return p
	}
	p, _ := match.Parse("")
	return p
}

// namesLabel reports whether a label of a host is no wildcard.
func namesLabel(host string) bool {
	for label := range strings.SplitSeq(host, ".") {
		if label != "" && label != "*" && label[0] != '{' {
			return true
		}
	}
	return false
}

// comparePorts puts the port of https first.
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

// readsOf returns what a policy reads that TLS hides. A policy in Shadow needs nothing.
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

// readsRetryAfterOnly reports whether a policy reads no more of answers than a policy that does not ask for
// it: the default, or nothing.
func readsRetryAfterOnly(read func(*http.Response) throttle.Answer) bool {
	if read == nil {
		return true
	}
	at := reflect.ValueOf(read).Pointer()
	return at == reflect.ValueOf(throttle.RetryAfter).Pointer() || at == reflect.ValueOf(feedback.LeaveOpen).Pointer()
}

// Has reports whether a policy names a host, which is "host" or "host:port".
func (t *Table) Has(host string) bool { return len(t.named.Match(nil, requestTo(host))) > 0 }

// atAnyPort returns the host of the table that a name without a port means: at port 443 or else
// at the lowest port.
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

// Blind says why tunnels of TLS to a host are refused, which is "host" or "host:port", and names the policy
// that needs to see what TLS hides. Why is empty if such tunnels are carried.
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

// requestTo returns a request that is looked up to find a host.
func requestTo(host string) *http.Request {
	return &http.Request{URL: &url.URL{Scheme: "https", Host: host, Path: "/"}}
}

// Hosts returns a [Config.Hosts] that knows the hosts of a [Table].
func Hosts(policies []throttle.Policy) func(host string) bool { return NewTable(policies).Has }

// known is what a handler knows of hosts.
type known struct {
	has   func(host string) bool
	table func() *Table // nil: there is none
}

// atAnyPort returns the host that a caller means who names no port, or port 80: a caller speaks
// plain HTTP to the proxy, and the proxy goes on by https.
func (k *known) atAnyPort(name string) (host string, ok bool) {
	if k.table != nil {
		return k.table().atAnyPort(name)
	}
	return name, k.has(name)
}

// meant returns the host that http://authority/ means; false: no policy names it. name is what a
// program that asks this host has in its Host field.
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

// field returns the host that the Host field of a request means; false: it names the proxy
// itself, or a host that no policy names.
func (k *known) field(r *http.Request) (host, name string, ok bool) {
	switch {
	case loopback.IsHost(r.Host) || !isHost(r.Host):
		return "", "", false
	case k.has(r.Host):
		return r.Host, r.Host, true
	}
	authority := r.Host
	if name, port := match.SplitPort(authority); port != "" && port[1:] == ownPort(r) {
		authority = name
	}
	return k.meant(authority)
}

// admits reports whether a request names this machine or a host of the policies. A request that is
// not for a path says by its form that it is for a proxy, and no web page writes that.
func (k *known) admits(r *http.Request) bool {
	if loopback.IsHost(r.Host) || !strings.HasPrefix(r.RequestURI, "/") {
		return true
	}
	_, _, ok := k.field(r)
	return ok
}

// ownPort returns the port at which a request has come in; "": at none.
func ownPort(r *http.Request) string {
	if at, ok := r.Context().Value(http.LocalAddrContextKey).(net.Addr); ok {
		if _, port, err := net.SplitHostPort(at.String()); err == nil {
			return port
		}
	}
	return ""
}

// isOwn reports whether an authority is the address at which a request has come in.
func isOwn(r *http.Request, authority string) bool {
	name, port := match.SplitPort(authority)
	if port == "" {
		port = ":80"
	}
	at, ok := r.Context().Value(http.LocalAddrContextKey).(net.Addr)
	return ok && port[1:] == ownPort(r) && (loopback.IsHost(name) || at.String() == authority)
}

// onLoopback reports whether only this machine reaches the address at which a request has come in.
func onLoopback(r *http.Request) bool {
	at, ok := r.Context().Value(http.LocalAddrContextKey).(*net.TCPAddr)
	return ok && at.IP.IsLoopback()
}

// onSocket reports whether a request has come in by a socket of Unix, which no web page reaches.
func onSocket(r *http.Request) bool {
	_, ok := r.Context().Value(http.LocalAddrContextKey).(*net.UnixAddr)
	return ok
}
