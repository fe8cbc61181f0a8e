package proxy

import (
	"context"
	"errors"
	"net"
	"net/http"
	"net/http/httptrace"
	"net/netip"
	"net/url"
	"strings"
	"syscall"
	"time"

	"github.com/fleetthrottle/throttle/internal/match"
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

// isPublic reports whether an upstream may have an address.
func isPublic(a netip.Addr) bool {
	a = a.WithZone("").Unmap()

	// On IPv6-only networks DNS64 gives an IPv4 upstream such an address.
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

// connect opens a connection to a host, with one start of the transport. end ends its use.
func connect(ctx context.Context, transport http.RoundTripper, host string) (conn net.Conn, end func(), err error) {
	var to dialled
	req := &http.Request{Method: http.MethodConnect, URL: &url.URL{Scheme: tunnelScheme, Host: withPort(host), Path: "/"}, Header: make(http.Header)}
	resp, err := transport.RoundTrip(req.WithContext(context.WithValue(ctx, dialledKey{}, &to)))
	if err != nil {
		return nil, nil, err
	}
	return to.conn, func() { resp.Body.Close() }, nil
}

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
		StatusCode: http.StatusSwitchingProtocols, // the body stays unread
		Proto:      "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
		Header: make(http.Header), Body: conn, ContentLength: -1, Request: req,
	}, nil
}
