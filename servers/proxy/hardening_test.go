package proxy_test

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fleetthrottle/throttle/servers/proxy"
)

// TestDotsInDisguise: a path whose segments "." or ".." are encoded, or hidden between encoded slashes, is refused: servers would serve
// another path than the one that the policies see.
func TestDotsInDisguise(t *testing.T) {
	s := newNamedScene(t, false, told, nil, at("api.example.com/send", 1), at("api.example.com/", 1000))
	for _, path := range []string{
		"/x/%2e%2e/send", "/x/%2E./send", "/%2e/send", "/x/.%2e/send?q", "/x/..%2fsend", "/x%2f..%2Fsend", `/x/..\send`, "/x/..%5csend", "/x/%2e%2e%5Csend", "/x/%2e%2e",
	} {
		for _, target := range []string{"/api.example.com" + path, "http://api.example.com" + path} {
			resp, body := s.ask("GET", target+" HTTP/1.1\nHost: localhost\n\n")
			require.Equal(t, http.StatusBadRequest, resp.StatusCode, target)
			s.problem(resp, body)
		}
	}

	for _, path := range []string{"/x/%2e%2ec", "/a%2Fb", "/x/...", "/x/%2e%2e%2e", "/x/a%2f.b", "/v1/x?u=/%2e%2e/"} {
		resp, body := s.ask("GET", "/api.example.com"+path+" HTTP/1.1\nHost: localhost\n\n")
		require.Equal(t, http.StatusOK, resp.StatusCode, "%s: %s", path, body)
	}
	for i, path := range []string{"/x/../send", "/%73end", "/./send", "/x//../send"} {
		want := http.StatusTooManyRequests
		if i == 0 {
			want = http.StatusOK
		}
		resp, _ := s.ask("GET", "/api.example.com"+path+" HTTP/1.1\nHost: localhost\n\n")
		require.Equal(t, want, resp.StatusCode, path)
	}
}

// TestSpaceInTarget: a path with a space, which HTTP/2 may carry, would end the target in a request of HTTP/1.
func TestSpaceInTarget(t *testing.T) {
	s := newNamedScene(t, false, told, nil, rows...)
	protocols := new(http.Protocols)
	protocols.SetUnencryptedHTTP2(true)
	c := &http.Client{Transport: &http.Transport{Protocols: protocols}}
	defer c.CloseIdleConnections()

	req, err := http.NewRequest(http.MethodGet, "http://"+s.address+"/", nil)
	require.NoError(t, err)
	req.URL.Opaque = "/api.example.com/v1/a b"
	resp, err := c.Do(req)
	require.NoError(t, err)
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	require.NoError(t, err)
	require.Equal(t, http.StatusBadRequest, resp.StatusCode)
	s.problem(resp, string(text))
}

// TestNoHeaderAppears: an answer without a Content-Type has none for the caller either, whatever its body looks like.
func TestNoHeaderAppears(t *testing.T) {
	for _, http2 := range []bool{false, true} {
		s := newNamedScene(t, http2, func(w http.ResponseWriter, _ *http.Request) {
			w.Header()["Content-Type"] = nil
			_, _ = io.WriteString(w, "<html><script>")
		}, nil, rows...)
		for range 20 {
			resp, body := s.get("/api.example.com/v1/")
			require.Equal(t, "<html><script>", body)
			require.NotContains(t, resp.Header, "Content-Type")
		}
	}
}

// some is a waiting API that serves one path.
type some struct{}

func (some) Serves(path string) bool { return path == "/v1/acquire" }

func (some) ServeHTTP(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusTeapot) }

// TestLostHost: a path under /v1/ that the waiting API does not know is one whose host was dropped, and the answer says so.
func TestLostHost(t *testing.T) {
	s := newNamedScene(t, false, told, func(c *proxy.Config) { c.Waiting = some{} }, rows...)
	for _, path := range []string{"/v1/chat/completions", "/v1/acquire/", "/v1/", "/chat/completions"} {
		_, problem := s.refused(http.StatusForbidden, path)
		require.Contains(t, problem["detail"], "no policy names this host")
		require.Contains(t, problem["detail"], "drops the host of the API")
	}

	resp, _ := s.get("/v1/acquire?x")
	require.Equal(t, http.StatusTeapot, resp.StatusCode)
	resp, _ = s.get("/v1/acquire", "Host: api.example.com")
	require.Equal(t, http.StatusOK, resp.StatusCode)
}

// TestBodiesToCome: memory is taken for what has come of bodies, not for what may come.
func TestBodiesToCome(t *testing.T) {
	s := newScene(t, func(http.ResponseWriter, *http.Request) {}, func(c *proxy.Config) { c.Held = 1 }, anything(100))
	for range 4 {
		s.dial().send("POST /" + s.upstream + "/ HTTP/1.1\nHost: localhost\nTransfer-Encoding: chunked\n\n")
		s.dial().send(fmt.Sprintf("POST /%s/ HTTP/1.1\nHost: localhost\nContent-Length: %d\n\nabc", s.upstream, ahead))
	}
	require.Eventually(t, func() bool { return s.handler.Stats().BodyBytes >= 4*512 }, time.Minute, time.Millisecond)

	resp, err := s.do(t.Context(), "POST", "/"+s.upstream+"/", strings.NewReader("0123456789"))
	require.NoError(t, err)
	resp.Body.Close()
	require.Equal(t, http.StatusOK, resp.StatusCode)

	resp, err = s.do(t.Context(), "POST", "/"+s.upstream+"/", bytes.NewReader(make([]byte, ahead)))
	require.NoError(t, err)
	resp.Body.Close()
	require.Equal(t, http.StatusServiceUnavailable, resp.StatusCode)
}

// TestReferer: where browsers send neither Origin nor Sec-Fetch-Site, a page of another origin shows by its Referer.
func TestReferer(t *testing.T) {
	s := newNamedScene(t, false, told, func(c *proxy.Config) { c.Local = false }, rows...)
	for referer, want := range map[string]int{
		"http://evil.example/": 403, "http://evil.example:7070/x": 403, "http://" + s.address + "/page": 200, "http://api.example.com/docs": 200, "https://shop.example/": 200, "": 200,
	} {
		lines := "/api.example.com/v1/ HTTP/1.1\nHost: " + s.address + "\n"
		if referer != "" {
			lines += "Referer: " + referer + "\n"
		}
		resp, _ := s.ask("GET", lines+"\n")
		require.Equal(t, want, resp.StatusCode, referer)
	}

	resp, _ := s.ask("GET", "http://api.example.com/v1/ HTTP/1.1\nHost: x\nReferer: http://evil.example/\n\n")
	require.Equal(t, 200, resp.StatusCode, "a browser that uses the proxy as its HTTP_PROXY")
}

// TestWithoutTokenTheConnectionEnds: a connection without the token takes no place of those with it.
func TestWithoutTokenTheConnectionEnds(t *testing.T) {
	let := 0
	s := newNamedScene(t, false, told, func(c *proxy.Config) {
		c.Token = strings.Repeat("t", 32)
		c.LetIn = func(*http.Request) { let++ }
	}, rows...)
	for _, request := range []string{"GET /api.example.com/v1/", "CONNECT api.example.com:443"} {
		w := s.dial()
		w.send(request + " HTTP/1.1\nHost: localhost\n\n")
		resp, _ := w.answer("GET")
		require.Equal(t, http.StatusProxyAuthRequired, resp.StatusCode)
		require.True(t, resp.Close)
		_, err := w.from.ReadByte()
		require.ErrorIs(t, err, io.EOF)
	}
	require.Zero(t, let)
}
