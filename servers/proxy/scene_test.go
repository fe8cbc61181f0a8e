package proxy_test

import (
	"bufio"
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fleetthrottle/throttle"
	"github.com/fleetthrottle/throttle/memstore"
	"github.com/fleetthrottle/throttle/servers/proxy"
)

// secret stands in each request, and in no answer of the proxy.
const secret = "Bearer not-to-be-told"

// A scene is a proxy before an upstream.
type scene struct {
	*testing.T
	upstream string // its host and port
	address  string // of the proxy
	handler  *proxy.Handler
	roots    *x509.CertPool // of the upstream
	events   chan throttle.Event
	client   *http.Client // defaults to client
	front    *pipes       // of the proxy; nil if its connections are those of the machine
}

// newScene starts both. The policies are for the upstream, whose host is put before their patterns.
func newScene(t *testing.T, upstream http.HandlerFunc, change func(*proxy.Config), policies ...throttle.Policy) *scene {
	return newSceneOver(t, false, upstream, change, policies...)
}

// newSceneOver is newScene for an upstream that may speak HTTP/2.
func newSceneOver(t *testing.T, http2 bool, upstream http.HandlerFunc, change func(*proxy.Config), policies ...throttle.Policy) *scene {
	server := httptest.NewUnstartedServer(upstream)
	server.EnableHTTP2 = http2
	server.StartTLS()
	t.Cleanup(server.Close)
	s := &scene{T: t, upstream: server.Listener.Addr().String(), events: make(chan throttle.Event, 100)}
	base := proxy.NewBase("127.0.0.1")
	base.TLSClientConfig = &tls.Config{RootCAs: server.Client().Transport.(*http.Transport).TLSClientConfig.RootCAs}
	t.Cleanup(base.CloseIdleConnections)
	for i := range policies {
		policies[i].Match = s.upstream + "/" + policies[i].Match
	}
	s.serve(base, policies, change)
	return s
}

// serve starts the proxy.
func (s *scene) serve(base http.RoundTripper, policies []throttle.Policy, change func(*proxy.Config)) {
	transport, err := throttle.New(throttle.Config{
		MaxWait: throttle.Forever,
		Store:   memstore.New(), Policies: policies, Base: base,
		Observe: func(ctx context.Context, e throttle.Event) {
			proxy.Observe(ctx, e)
			if e.Kind != throttle.EventUnmatched { // nobody takes these events
				s.events <- e
			}
		},
	})
	require.NoError(s, err)
	table := proxy.NewTable(policies)
	c := proxy.Config{Transport: transport, Table: func() *proxy.Table { return table }, Local: true}
	if change != nil {
		change(&c)
	}
	h, err := proxy.New(c)
	require.NoError(s, err)
	s.handler = h
	s.address = s.listen(h)
}

// listen serves a handler for HTTP/1.1 and for HTTP/2 without TLS.
func (s *scene) listen(h http.Handler) (address string) {
	front := httptest.NewUnstartedServer(h)
	if s.front != nil {
		front.Listener.Close()
		front.Listener = s.front
	}
	front.Config.Protocols = new(http.Protocols)
	front.Config.Protocols.SetHTTP1(true)
	front.Config.Protocols.SetUnencryptedHTTP2(true)
	front.Config.ErrorLog = log.New(panics{s}, "", 0)
	front.Start()
	s.Cleanup(func() {
		ended, cancel := context.WithCancel(context.Background())
		cancel() // what a test leaves open is cut
		_ = s.handler.Shutdown(ended)
		front.Close()
	})
	return front.Listener.Addr().String()
}

// panics fails the test when a server tells of a panic. It takes no notice of what servers tell
// of attacks.
type panics struct{ *scene }

func (p panics) Write(text []byte) (int, error) {
	if strings.Contains(string(text), "panic") {
		p.Errorf("%s", text)
	}
	return len(text), nil
}

// newNamedScene starts a proxy before an upstream that is at each address of each name, such as
// api.example.com, and before policies as they are.
func newNamedScene(t *testing.T, http2 bool, upstream http.HandlerFunc, change func(*proxy.Config), policies ...throttle.Policy) *scene {
	server := httptest.NewUnstartedServer(upstream)
	server.EnableHTTP2 = http2
	s := &scene{T: t, upstream: server.Listener.Addr().String(), events: make(chan throttle.Event, 100)}
	s.serveNamed(server, func(ctx context.Context) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "tcp", s.upstream)
	}, change, policies)
	return s
}

// newVirtualScene is newNamedScene in a bubble of [synctest]: all connections are pipes, and time passes when nobody has anything to do.
func newVirtualScene(t *testing.T, upstream http.HandlerFunc, change func(*proxy.Config), policies ...throttle.Policy) *scene {
	t.Cleanup(func() { time.Sleep(time.Minute) }) // a server that shuts down looks now and then whether its connections have ended
	api, front := newPipes(), newPipes()
	transport := &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) { return front.dial(ctx) }}
	t.Cleanup(transport.CloseIdleConnections)
	s := &scene{T: t, upstream: "api", events: make(chan throttle.Event, 100), client: &http.Client{Transport: transport}, front: front}
	s.serveNamed(&httptest.Server{Listener: api, Config: &http.Server{Handler: upstream}}, api.dial, change, policies)
	return s
}

// serveNamed starts an upstream for all names, which dial reaches, and the proxy.
func (s *scene) serveNamed(server *httptest.Server, dial func(context.Context) (net.Conn, error), change func(*proxy.Config), policies []throttle.Policy) {
	server.Config.ErrorLog = log.New(io.Discard, "", 0)
	server.StartTLS()
	s.Cleanup(server.Close)

	base := proxy.NewBase()
	base.DialContext = func(ctx context.Context, _, _ string) (net.Conn, error) { return dial(ctx) }
	s.roots = server.Client().Transport.(*http.Transport).TLSClientConfig.RootCAs
	base.TLSClientConfig = &tls.Config{RootCAs: s.roots, ServerName: "example.com"}
	s.Cleanup(base.CloseIdleConnections)
	s.serve(base, policies, change)
}

// pipes are the listener of a server whose connections are those of [net.Pipe].
type pipes struct {
	accepted chan net.Conn
	closed   chan struct{}
	close    func()
	from     string // the address from which dial connects; empty if it is that of all pipes
}

func newPipes() *pipes {
	p := &pipes{accepted: make(chan net.Conn), closed: make(chan struct{})}
	p.close = sync.OnceFunc(func() { close(p.closed) })
	return p
}

// dial connects to the server.
func (p *pipes) dial(ctx context.Context) (net.Conn, error) {
	ours, theirs := net.Pipe()
	if p.from != "" {
		theirs = &farConn{theirs, p.from}
	}

	select {
	case p.accepted <- theirs:
		return ours, nil
	case <-p.closed:
		return nil, net.ErrClosed
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// Accept implements [net.Listener].
func (p *pipes) Accept() (net.Conn, error) {
	select {
	case conn := <-p.accepted:
		return conn, nil
	case <-p.closed:
		return nil, net.ErrClosed
	}
}

// Close implements [net.Listener].
func (p *pipes) Close() error { p.close(); return nil }

// Addr implements [net.Listener].
func (p *pipes) Addr() net.Addr { return pipesAddr{} }

// pipesAddr is the address of all pipes, which callers of a proxy may name in their Host fields.
type pipesAddr struct{}

// A farConn is a connection from an address.
type farConn struct {
	net.Conn
	from string
}

func (c *farConn) RemoteAddr() net.Addr {
	return net.TCPAddrFromAddrPort(netip.MustParseAddrPort(c.from))
}

func (pipesAddr) Network() string { return "pipe" }
func (pipesAddr) String() string  { return "localhost:80" }

// at is a policy for a pattern.
func at(pattern string, n int) throttle.Policy {
	return throttle.Policy{Name: pattern, Match: pattern, Limit: throttle.SlidingWindow(n, time.Hour)}
}

// dial connects to the proxy.
func (s *scene) dial() *wire {
	s.Helper()
	dial := func(context.Context) (net.Conn, error) { return net.Dial("tcp", s.address) }
	if s.front != nil {
		dial = s.front.dial
	}
	conn, err := dial(s.Context())
	require.NoError(s, err)
	s.Cleanup(func() { conn.Close() })
	return &wire{s, conn, bufio.NewReader(conn)}
}

// A wire is a connection on which a test writes bytes as it likes.
type wire struct {
	*scene
	net.Conn
	from *bufio.Reader
}

// send writes a text whose lines end with CRLF.
func (w *wire) send(lines string) {
	w.Helper()
	_, err := io.WriteString(w.Conn, strings.ReplaceAll(lines, "\n", "\r\n"))
	require.NoError(w, err)
}

// answer reads an answer with its body.
func (w *wire) answer(method string) (resp *http.Response, body string) {
	w.Helper()
	resp, err := http.ReadResponse(w.from, &http.Request{Method: method})
	require.NoError(w, err)
	text, err := io.ReadAll(resp.Body)
	require.NoError(w, err)
	return resp, string(text)
}

// ask sends one request on a connection of its own.
func (s *scene) ask(method, lines string) (resp *http.Response, body string) {
	s.Helper()
	w := s.dial()
	defer w.Conn.Close()
	w.send(method + " " + lines)
	return w.answer(method)
}

// client leaves answers as they are.
var client = &http.Client{
	Transport:     &http.Transport{DisableCompression: true, DisableKeepAlives: true},
	CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
}

// do sends a request through the proxy to a path of the upstream; headers are "Name: value".
func (s *scene) do(ctx context.Context, method, path string, body io.Reader, headers ...string) (*http.Response, error) {
	req, err := http.NewRequestWithContext(ctx, method, "http://"+s.address+path, body)
	require.NoError(s, err)
	req.Header.Set("Authorization", secret)
	for _, h := range headers {
		name, value, _ := strings.Cut(h, ": ")
		if name == "Host" {
			req.Host = value
		}
		req.Header.Add(name, value)
	}
	return cmp.Or(s.client, client).Do(req)
}

// get is do for a GET that has an answer.
func (s *scene) get(path string, headers ...string) (resp *http.Response, body string) {
	resp, err := s.do(s.Context(), http.MethodGet, path, nil, headers...)
	require.NoError(s, err)
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	require.NoError(s, err)
	return resp, string(text)
}

// refused requires that a GET has an answer of the proxy itself.
func (s *scene) refused(status int, path string, headers ...string) (h http.Header, problem map[string]any) {
	s.Helper()
	resp, body := s.get(path, headers...)
	require.Equal(s, status, resp.StatusCode, body)
	return resp.Header, s.problem(resp, body)
}

// problem requires the form of an answer of the proxy itself.
func (s *scene) problem(resp *http.Response, body string) (problem map[string]any) {
	s.Helper()
	require.Equal(s, "application/problem+json", resp.Header.Get("Content-Type"))
	require.Equal(s, "1.1 throttle", resp.Header.Get("Via"))
	require.Regexp(s, `^throttle;dur=[0-9.]+$`, resp.Header.Get("Server-Timing"))
	require.NoError(s, json.Unmarshal([]byte(body), &problem))
	require.EqualValues(s, resp.StatusCode, problem["status"])
	require.Equal(s, http.StatusText(resp.StatusCode), problem["title"])
	require.NotContains(s, body, "not-to-be-told")
	require.NotContains(s, body, s.upstream)
	return problem
}

// kind waits for an event of a kind.
func (s *scene) kind(k throttle.EventKind) {
	s.Helper()
	for {
		select {
		case e := <-s.events:
			if e.Kind == k {
				return
			}
		case <-s.Context().Done():
			s.Fatalf("no event %v", k)
		}
	}
}

// waits reports whether a request waits. If not, it has been answered.
func (s *scene) waits(status <-chan int) bool {
	s.Helper()
	for {
		select {
		case e := <-s.events:
			if e.Kind == throttle.EventWaiting {
				return true
			}
		case code := <-status:
			require.Equal(s, http.StatusOK, code)
			return false
		}
	}
}

func anything(n int) throttle.Policy {
	return throttle.Policy{Name: "api", Limit: throttle.SlidingWindow(n, time.Hour)}
}
