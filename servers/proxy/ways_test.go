package proxy_test

import (
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fleetthrottle/throttle"
	"github.com/fleetthrottle/throttle/memstore"
	"github.com/fleetthrottle/throttle/servers/proxy"
)

// told is an upstream that tells what has come to it.
func told(w http.ResponseWriter, r *http.Request) { w.Header().Set("X-Came", r.Host+" "+r.RequestURI) }

var rows = []throttle.Policy{at("api.example.com/v1/", 1000), at("odd.example.com:8443/", 1000), at("*.wide.example.com/", 1000), at("/any/", 1000)}

// odd are paths and queries that must stay as they are, in whatever form a request comes.
var odd = []string{"/", "//x//y/", "/a%2Fb/%2e%2ec", "/a/../b", "/a^b|c", "/x?", "/x?a=1;b=2&c=%zz", "/x?u=http://api.example.com/?b#c"}

// TestWays: each way to name a host leads there, with the path, the query and the Host field that
// the program would have sent to the host itself.
func TestWays(t *testing.T) {
	s := newNamedScene(t, false, told, nil, rows...)
	for _, c := range []struct{ target, host, came string }{
		{"/api.example.com", "localhost", "api.example.com"},
		{"/api.example.com:443", "127.0.0.1:1", "api.example.com:443"},
		{"/odd.example.com:8443", "[::1]:7070", "odd.example.com:8443"},
		{"/API.example.COM", s.address, "API.example.COM"},

		{"", "api.example.com", "api.example.com"},
		{"", "Api.Example.com", "Api.Example.com"},
		{"", "api.example.com:80", "api.example.com"},
		{"", "api.example.com:443", "api.example.com:443"},
		{"", "api.example.com" + s.address[len("127.0.0.1"):], "api.example.com"},
		{"", "odd.example.com", "odd.example.com"},
		{"", "odd.example.com:8443", "odd.example.com:8443"},
		{"", "s.wide.example.com", "s.wide.example.com"},

		{"http://api.example.com", "api.example.com", "api.example.com"},
		{"http://api.example.com", "else.example.com", "api.example.com"},
		{"http://api.example.com:80", "x", "api.example.com"},
		{"HTTP://api.example.com:443", "x", "api.example.com"},
		{"https://api.example.com", "x", "api.example.com"},
		{"http://odd.example.com", "x", "odd.example.com"},
		{"http://odd.example.com:8443", "x", "odd.example.com:8443"},
		{"http://" + s.address + "/api.example.com", "x", "api.example.com"},
	} {
		for _, path := range odd {
			resp, body := s.ask("GET", c.target+path+" HTTP/1.1\nHost: "+c.host+"\n\n")
			require.Equal(t, 200, resp.StatusCode, "%s%s %s: %s", c.target, path, c.host, body)
			require.Equal(t, c.came+" "+path, resp.Header.Get("X-Came"))
		}
	}
}

// TestWaysRefused: no way leads to hosts that the policies do not name, and none can be read in two ways.
func TestWaysRefused(t *testing.T) {
	s := newNamedScene(t, false, func(http.ResponseWriter, *http.Request) { t.Error("the upstream was reached") }, nil, rows...)
	for _, c := range []struct {
		status     int
		line, host string
	}{
		{403, "GET /api.example.com/ HTTP/1.1", "else.example.com"},
		{403, "GET /api.example.com/ HTTP/1.1", "wide.example.com"},
		{403, "GET /api.example.com/ HTTP/1.1", "api.example.com:1"},
		{403, "GET /api.example.com/ HTTP/1.1", "odd.example.com:443"},
		{403, "GET http://else.example.com/ HTTP/1.1", "api.example.com"},
		{403, "GET http://api.example.com:1/ HTTP/1.1", "api.example.com"},
		{403, "GET http://odd.example.com:443/ HTTP/1.1", "localhost"},
		{403, "GET https://odd.example.com/ HTTP/1.1", "localhost"},
		{403, "GET http://127.0.0.1/ HTTP/1.1", "localhost"},
		{403, "GET http://" + s.address + "/else.example.com/ HTTP/1.1", "localhost"},
		{400, "GET http://u@api.example.com/ HTTP/1.1", "localhost"},
		{400, "GET http://u:p@api.example.com/ HTTP/1.1", "localhost"},
		{400, "GET http://api.example.com%2f@else.example.com/ HTTP/1.1", "localhost"},
		{400, "GET http://api.example.com#@else.example.com/ HTTP/1.1", "localhost"},
		{400, "GET http:///api.example.com/ HTTP/1.1", "api.example.com"},
		{400, "GET http:api.example.com/ HTTP/1.1", "localhost"},
		{400, "GET ftp://api.example.com/ HTTP/1.1", "localhost"},
		{400, "GET * HTTP/1.1", "localhost"},
		{403, "CONNECT else.example.com:443 HTTP/1.1", "api.example.com"},
		{403, "CONNECT api.example.com:22 HTTP/1.1", "localhost"},
		{400, "CONNECT api.example.com HTTP/1.1", "localhost"},
		{400, "CONNECT api.example.com: HTTP/1.1", "localhost"},
		{400, "CONNECT /api.example.com/ HTTP/1.1", "localhost"},
	} {
		method, lines, _ := strings.Cut(c.line, " ")
		resp, body := s.ask(method, lines+"\nHost: "+c.host+"\n\n")
		require.Equal(t, c.status, resp.StatusCode, "%v: %s", c, body)
		if resp.Header.Get("Content-Type") == "application/problem+json" {
			s.problem(resp, body)
		}
	}
}

// TestExposed: where other machines reach the proxy by a name of its own, that name is no host.
func TestExposed(t *testing.T) {
	s := newNamedScene(t, false, told, func(c *proxy.Config) { c.Local = false }, rows...)
	resp, _ := s.ask("GET", "/api.example.com/x HTTP/1.1\nHost: proxy.example.org:7070\n\n")
	require.Equal(t, "api.example.com /x", resp.Header.Get("X-Came"))
	resp, _ = s.ask("GET", "/api.example.com/x HTTP/1.0\n\n")
	require.Equal(t, "api.example.com /x", resp.Header.Get("X-Came"))
}

// TestUpstreamAddress: at the address of one host everything goes there.
func TestUpstreamAddress(t *testing.T) {
	table := proxy.NewTable(rows)
	s := newNamedScene(t, false, told, func(c *proxy.Config) { c.Table = func() *proxy.Table { return table } }, rows...)
	s.address = s.listen(s.handler.Upstream("odd.example.com:8443"))
	for _, host := range []string{"localhost", s.address, "odd.example.com", "api.example.com"} {
		for _, path := range append(odd, "/api.example.com/v1/") {
			resp, body := s.ask("GET", path+" HTTP/1.1\nHost: "+host+"\n\n")
			require.Equal(t, "odd.example.com:8443 "+path, resp.Header.Get("X-Came"), body)
		}
	}
	for _, target := range []string{"http://" + s.address + "/x", "http://odd.example.com:8443/x"} {
		resp, body := s.ask("GET", target+" HTTP/1.1\nHost: x\n\n")
		require.Equal(t, "odd.example.com:8443 /x", resp.Header.Get("X-Came"), body)
	}
	for _, line := range []string{"GET http://api.example.com/ HTTP/1.1\nHost: x", "CONNECT odd.example.com:8443 HTTP/1.1\nHost: x", "GET / HTTP/1.1\nHost: rebound.example.org"} {
		method, lines, _ := strings.Cut(line, " ")
		resp, body := s.ask(method, lines+"\n\n")
		require.Equal(t, 403, resp.StatusCode, line)
		s.problem(resp, body)
	}
	table = proxy.NewTable([]throttle.Policy{at("api.example.com/", 1)})
	_, p := s.refused(403, "/x")
	require.Contains(t, p["detail"], "no policy names the host of this address any more")
}

// TestSharedBudgets: the address of one host has the budgets of the handler.
func TestSharedBudgets(t *testing.T) {
	s := newNamedScene(t, false, told, func(c *proxy.Config) { c.MaxWait = -1 }, at("api.example.com/", 1))
	s.get("/api.example.com/")
	_, p := s.refused(429, "/api.example.com/")
	require.Equal(t, "api.example.com/", p["policy"])
	s.address = s.listen(s.handler.Upstream("api.example.com"))
	_, p = s.refused(429, "/")
	require.Equal(t, "api.example.com/", p["policy"])
}

// TestProxyVariable: a client of net/http whose proxy is the handler keeps http URLs, and the handler goes on by https.
func TestProxyVariable(t *testing.T) {
	s := newNamedScene(t, false, told, nil, rows...)
	at, err := url.Parse("http://" + s.address)
	require.NoError(t, err)
	c := &http.Client{Transport: &http.Transport{Proxy: http.ProxyURL(at), DisableKeepAlives: true}}
	resp, err := c.Get("http://api.example.com/v1/x?y=%7e")
	require.NoError(t, err)
	resp.Body.Close()
	require.Equal(t, "api.example.com /v1/x?y=%7e", resp.Header.Get("X-Came"))
}

// ExampleHandler_Upstream gives one host an address of its own.
func ExampleHandler_Upstream() {
	policies := []throttle.Policy{{Name: "api", Match: "api.example.com/", Limit: throttle.SlidingWindow(10, time.Second)}}
	table := proxy.NewTable(policies)
	transport := throttle.Must(throttle.New(throttle.Config{MaxWait: throttle.Forever, Store: memstore.New(), Policies: policies, Base: proxy.NewBase()}))
	h, err := proxy.New(proxy.Config{Transport: transport, Table: func() *proxy.Table { return table }, Local: true})
	if err != nil {
		panic(err)
	}
	all := httptest.NewServer(h) // http://127.0.0.1:7070/api.example.com/v1
	defer all.Close()
	one := httptest.NewServer(h.Upstream("api.example.com")) // http://127.0.0.1:7071/v1
	defer one.Close()
}

// TestWaitingPaths: the handler's own paths are those of its own address. The same path at a host
// of the policies is the host's.
func TestWaitingPaths(t *testing.T) {
	s := newNamedScene(t, false, told, func(c *proxy.Config) {
		c.Waiting = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { w.Header().Set("X-Came", "waiting "+r.URL.Path) })
	}, rows...)
	for _, c := range [][3]string{
		{"/v1/acquire", "localhost", "waiting /v1/acquire"},
		{"http://" + s.address + "/v1/acquire", "x", "waiting /v1/acquire"},
		{"/v1/acquire", "api.example.com", "api.example.com /v1/acquire"},
		{"http://api.example.com/v1/acquire", "x", "api.example.com /v1/acquire"},
		{"/api.example.com/v1/acquire", "localhost", "api.example.com /v1/acquire"},
	} {
		resp, body := s.ask("GET", c[0]+" HTTP/1.1\nHost: "+c[1]+"\n\n")
		require.Equal(t, c[2], resp.Header.Get("X-Came"), body)
	}
	w := s.tunnel("api.example.com:80")
	w.send("GET /v1/acquire HTTP/1.1\nHost: api.example.com\n\n")
	resp, _ := w.answer("GET")
	require.Equal(t, "api.example.com /v1/acquire", resp.Header.Get("X-Came"))
	s.address = s.listen(s.handler.Upstream("api.example.com"))
	resp, _ = s.ask("GET", "/v1/acquire HTTP/1.1\nHost: localhost\n\n")
	require.Equal(t, "api.example.com /v1/acquire", resp.Header.Get("X-Came"))
}
