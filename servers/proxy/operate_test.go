package proxy_test

import (
	"bytes"
	"context"
	"encoding/base64"
	"io"
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

// hold sends a request that is held, and returns where its status will be.
func (s *scene) hold(headers ...string) <-chan int {
	s.Helper()
	status := make(chan int, 1)
	go func() {
		resp, err := s.do(s.Context(), "GET", "/"+s.upstream+"/", nil, headers...)
		if err != nil {
			status <- 0
			return
		}
		resp.Body.Close()
		status <- resp.StatusCode
	}()
	s.kind(throttle.EventWaiting)
	return status
}

// TestHeldPerBudget: a budget holds so many requests, and leaves the other places to others.
func TestHeldPerBudget(t *testing.T) {
	policy := anything(1)
	policy.Key = throttle.Header("X-Key")
	s := newScene(t, func(http.ResponseWriter, *http.Request) {}, func(c *proxy.Config) { c.MaxWait, c.Held, c.HeldPerBudget = 4*time.Hour, 3, 1 }, policy)
	for _, key := range []string{"X-Key: a", "X-Key: b"} {
		first, _ := s.get("/"+s.upstream+"/", key)
		require.Equal(t, 200, first.StatusCode)
		s.hold(key)
		ctx, stop := context.WithTimeout(t.Context(), time.Minute) // else a request that is held would hold the test
		resp, err := s.do(ctx, "GET", "/"+s.upstream+"/", nil, key)
		require.NoError(t, err)
		text, err := io.ReadAll(resp.Body)
		require.NoError(t, err)
		stop()
		require.Equal(t, 503, resp.StatusCode)
		p := s.problem(resp, string(text))
		require.Contains(t, p["detail"], "the same budget")
		require.Equal(t, "api", p["policy"])
		require.Contains(t, []string{"7200", "7201"}, resp.Header.Get("Retry-After"))
		s.kind(throttle.EventGaveUp)
	}
	require.Equal(t, 2, s.handler.Stats().Held)
	require.EqualValues(t, 2, s.handler.Stats().Refused["held"])
}

// TestStop: what cannot start in time is refused at once, what can is sent, and nothing enters.
func TestStop(t *testing.T) {
	s := newScene(t, func(http.ResponseWriter, *http.Request) {}, func(c *proxy.Config) { c.MaxWait = 2 * time.Hour },
		throttle.Policy{Name: "late", Match: "late", Limit: throttle.SlidingWindow(1, time.Hour)},
		throttle.Policy{Name: "soon", Match: "soon", Limit: throttle.SlidingWindow(1, 500*time.Millisecond)})
	ctx, stop := context.WithTimeout(t.Context(), time.Minute) // else a request that is held would hold the test
	defer stop()
	statuses := map[string]chan int{"late": make(chan int, 1), "soon": make(chan int, 1)}
	send := func(path string) {
		resp, err := s.do(ctx, "GET", "/"+s.upstream+"/"+path, nil)
		if err != nil {
			statuses[path] <- 0
			return
		}
		resp.Body.Close()
		statuses[path] <- resp.StatusCode
	}
	for _, path := range []string{"late", "soon"} {
		for waits := false; !waits; {
			s.get("/" + s.upstream + "/" + path)
			for len(s.events) > 0 {
				<-s.events
			}
			go send(path)

			// On a busy machine the second request of a window may come when the window is over.
			waits = s.waits(statuses[path])
		}
	}
	s.handler.Stop(30 * time.Minute)
	require.Equal(t, 503, <-statuses["late"])
	h, p := s.refused(503, "/"+s.upstream+"/other")
	require.Contains(t, p["detail"], "ends")
	require.Equal(t, "1", h.Get("Retry-After"))
	require.Equal(t, 200, <-statuses["soon"])
	require.EqualValues(t, 2, s.handler.Stats().Refused["stopping"])
}

// TestAborted: an answer that ends in the middle is counted, and ends in the middle for its caller.
func TestAborted(t *testing.T) {
	gone := make(chan bool)
	s := newScene(t, func(w http.ResponseWriter, r *http.Request) {
		io.WriteString(w, "begin")
		http.NewResponseController(w).Flush()
		if r.URL.Path != "/breaks" {
			<-r.Context().Done()
			close(gone)
		}
		panic(http.ErrAbortHandler) // an upstream that returned would end its answer well, and the proxy might still read that
	}, nil, anything(9))
	resp, err := s.do(t.Context(), "GET", "/"+s.upstream+"/breaks", nil)
	require.NoError(t, err)
	text, err := io.ReadAll(resp.Body)
	require.ErrorIs(t, err, io.ErrUnexpectedEOF)
	require.Equal(t, "begin", string(text))
	resp.Body.Close()

	ctx, leave := context.WithCancel(t.Context())
	resp, err = s.do(ctx, "GET", "/"+s.upstream+"/", nil)
	require.NoError(t, err)
	leave()
	resp.Body.Close()
	<-gone
	require.Eventually(t, func() bool { return s.handler.Stats().Aborted == 2 }, time.Minute, time.Millisecond)
	require.Zero(t, s.handler.Stats().Left)
}

// TestBodyMemory: bodies that are read ahead have the memory that Held says, also those of requests
// that wait no more.
func TestBodyMemory(t *testing.T) {
	arrived, answer := make(chan bool), make(chan bool)
	s := newScene(t, func(http.ResponseWriter, *http.Request) { arrived <- true; <-answer },
		func(c *proxy.Config) { c.Held = 2 }, anything(9))
	done := make(chan int)
	send := func(size int) {
		go func() {
			resp, err := s.do(t.Context(), "POST", "/"+s.upstream+"/", bytes.NewReader(make([]byte, size)))
			if err == nil {
				resp.Body.Close()
				done <- resp.StatusCode
			}
		}()
	}
	send(3 << 20) // of which the first MiB is in memory
	<-arrived
	send(1<<20 - 1)
	<-arrived
	require.EqualValues(t, 2<<20-1, s.handler.Stats().BodyBytes)
	ctx, stop := context.WithTimeout(t.Context(), time.Minute) // else a request that arrives would hold the test
	defer stop()
	resp, err := s.do(ctx, "POST", "/"+s.upstream+"/", strings.NewReader("ab"))
	require.NoError(t, err)
	text, err := io.ReadAll(resp.Body)
	require.NoError(t, err)
	require.Equal(t, 503, resp.StatusCode)
	require.Contains(t, s.problem(resp, string(text))["detail"], "memory")
	send(1)
	<-arrived
	close(answer)
	for range 3 {
		require.Equal(t, 200, <-done)
	}
	require.Eventually(t, func() bool { return s.handler.Stats().BodyBytes == 0 }, time.Minute, time.Millisecond)
}

// TestToken: callers need the token, in one of its forms, and it is not sent on.
func TestToken(t *testing.T) {
	const token = "0123456789abcdef.-_~+/="
	basic := func(text string) string { return "Basic " + base64.StdEncoding.EncodeToString([]byte(text)) }
	got := make(chan http.Header, 1)
	s := newScene(t, func(_ http.ResponseWriter, r *http.Request) { got <- r.Header },
		func(c *proxy.Config) {
			c.Token = token
			c.Waiting = http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { got <- r.Header })
		}, anything(1000))
	for _, header := range []string{
		"Proxy-Authorization: Bearer " + token, "proxy-authorization: bearer  " + token, "Proxy-Authorization: " + basic("x:"+token), "Authorization: " + basic("throttle:"+token),
	} {
		for _, path := range []string{"/" + s.upstream + "/", "/v1/acquire"} {
			resp, body := s.get(path, header)
			require.Equal(t, 200, resp.StatusCode, body)
			h := <-got
			require.Equal(t, []string{secret}, h["Authorization"], "the API's own")
			require.NotContains(t, h, "Proxy-Authorization")
		}
	}
	for _, header := range []string{
		"X-A: b", "Proxy-Authorization: Bearer " + token + "x", "Proxy-Authorization: " + token, "Proxy-Authorization: Bearer", "Proxy-Authorization: " + basic(token),
		"Authorization: Bearer " + token, "Authorization: " + basic("x:"+token), "Authorization: " + basic("throttle:"),
	} {
		for _, path := range []string{"/" + s.upstream + "/", "/v1/acquire"} {
			h, _ := s.refused(407, path, header)
			require.NotEmpty(t, h.Get("Proxy-Authenticate"))
		}
	}
	require.Empty(t, got)
	require.EqualValues(t, 16, s.handler.Stats().Refused["token"])
}

// TestTokenOfATunnel: CONNECT needs the token, and what is in its tunnel does not.
func TestTokenOfATunnel(t *testing.T) {
	const token = "0123456789abcdef.-_~+/="
	got := make(chan http.Header, 1)
	s := newNamedScene(t, false, func(_ http.ResponseWriter, r *http.Request) { got <- r.Header }, func(c *proxy.Config) { c.Token = token }, at("api.example.com/", 9))
	resp, _ := s.ask("CONNECT", "api.example.com:80 HTTP/1.1\nHost: x\n\n")
	require.Equal(t, 407, resp.StatusCode)
	require.Equal(t, `Basic realm="throttle"`, resp.Header.Get("Proxy-Authenticate"))
	w := s.dial()
	w.send("CONNECT api.example.com:80 HTTP/1.1\nHost: x\nProxy-Authorization: Basic " + base64.StdEncoding.EncodeToString([]byte("throttle:"+token)) + "\n\n")
	resp, err := http.ReadResponse(w.from, &http.Request{Method: "CONNECT"})
	require.NoError(t, err)
	require.Equal(t, 200, resp.StatusCode)
	w.send("GET /x HTTP/1.1\nHost: api.example.com\nProxy-Authorization: Bearer " + token + "\n\n")
	resp, body := w.answer("GET")
	require.Equal(t, 200, resp.StatusCode, body)
	require.NotContains(t, <-got, "Proxy-Authorization")
}

// TestWaiting: paths under /v1/ have another handler, behind the same checks.
func TestWaiting(t *testing.T) {
	s := newScene(t, func(http.ResponseWriter, *http.Request) { t.Error("the upstream was reached") },
		func(c *proxy.Config) {
			c.Waiting = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { io.WriteString(w, r.URL.Path) })
		}, anything(1))
	_, body := s.get("/v1/acquire")
	require.Equal(t, "/v1/acquire", body)
	s.refused(403, "/v1/acquire", "Origin: https://evil.example.com")
	s.refused(403, "/v10/acquire")
}

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
