package proxy_test

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"io"
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
	c := proxy.Config{Transport: transport, Hosts: proxy.Hosts(policies), Local: true}
	if change != nil {
		change(&c)
	}
	h, err := proxy.New(c)
	require.NoError(s, err)
	s.handler = h
	front := httptest.NewServer(h)
	s.Cleanup(front.Close)
	s.address = front.Listener.Addr().String()
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
