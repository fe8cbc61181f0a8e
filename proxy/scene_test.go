package proxy_test

import (
	"bufio"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fleetthrottle/throttle"
	"github.com/fleetthrottle/throttle/memstore"
	"github.com/fleetthrottle/throttle/proxy"
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
		Store: memstore.New(), Policies: policies, Base: base,
		Observe: func(ctx context.Context, e throttle.Event) { proxy.Observe(ctx, e); s.events <- e },
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
	front.Config.Protocols = new(http.Protocols)
	front.Config.Protocols.SetHTTP1(true)
	front.Config.Protocols.SetUnencryptedHTTP2(true)
	front.Config.ErrorLog = log.New(io.Discard, "", 0) // of attacks
	front.Start()
	s.Cleanup(func() {
		ended, cancel := context.WithCancel(context.Background())
		cancel() // what a test leaves open is cut
		_ = s.handler.Shutdown(ended)
		front.Close()
	})
	return front.Listener.Addr().String()
}

// newNamedScene starts a proxy before an upstream that is at each address of each name, such as
// api.example.com, and before policies as they are.
func newNamedScene(t *testing.T, http2 bool, upstream http.HandlerFunc, change func(*proxy.Config), policies ...throttle.Policy) *scene {
	server := httptest.NewUnstartedServer(upstream)
	server.EnableHTTP2 = http2
	server.Config.ErrorLog = log.New(io.Discard, "", 0)
	server.StartTLS()
	t.Cleanup(server.Close)
	s := &scene{T: t, upstream: server.Listener.Addr().String(), events: make(chan throttle.Event, 100)}
	base := proxy.NewBase()
	base.DialContext = func(ctx context.Context, network, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, network, s.upstream)
	}
	s.roots = server.Client().Transport.(*http.Transport).TLSClientConfig.RootCAs
	base.TLSClientConfig = &tls.Config{RootCAs: s.roots, ServerName: "example.com"}
	t.Cleanup(base.CloseIdleConnections)
	s.serve(base, policies, change)
	return s
}

// at is a policy for a pattern.
func at(pattern string, n int) throttle.Policy {
	return throttle.Policy{Name: pattern, Match: pattern, Limit: throttle.SlidingWindow(n, time.Hour)}
}

// dial connects to the proxy.
func (s *scene) dial() *wire {
	s.Helper()
	conn, err := net.Dial("tcp", s.address)
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
	return client.Do(req)
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

func anything(n int) throttle.Policy {
	return throttle.Policy{Name: "api", Limit: throttle.SlidingWindow(n, time.Hour)}
}
