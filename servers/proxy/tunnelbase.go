package proxy

import (
	"context"
	"net"
	"net/http"
	"net/http/httptrace"
	"net/url"
)

// tunnelScheme is the scheme of the requests by which tunnels have their starts. A base of
// [NewBase] connects for such a request, and sends nothing.
const tunnelScheme = "tunnel"

// A dialled is where a base puts the connection of a tunnel.
type dialled struct{ conn net.Conn }

// dialledKey is the context key of a *dialled.
type dialledKey struct{}

// connect returns a connection to a host, which has one start of the transport. It is used until
// end is called.
func connect(ctx context.Context, transport http.RoundTripper, host string) (conn net.Conn, end func(), err error) {
	var to dialled
	req := &http.Request{Method: http.MethodConnect, URL: &url.URL{Scheme: tunnelScheme, Host: withPort(host), Path: "/"}, Header: make(http.Header)}
	resp, err := transport.RoundTrip(req.WithContext(context.WithValue(ctx, dialledKey{}, &to)))
	if err != nil {
		return nil, nil, err
	}
	return to.conn, func() { resp.Body.Close() }, nil
}

// A tunnelBase connects for tunnels.
type tunnelBase struct {
	dial func(ctx context.Context, network, address string) (net.Conn, error)
}

// RoundTrip implements [http.RoundTripper]. It calls the hooks of a trace as [http.Transport]
// does, so that the start is checked when there is a connection.
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
		StatusCode: http.StatusSwitchingProtocols, // whose body nobody looks at
		Proto:      "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
		Header: make(http.Header), Body: conn, ContentLength: -1, Request: req,
	}, nil
}
