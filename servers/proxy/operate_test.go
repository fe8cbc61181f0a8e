package proxy_test

import (
	"bytes"
	"context"
	"encoding/base64"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fleetthrottle/throttle"
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
		ctx, stop := context.WithTimeout(t.Context(), 20*time.Second) // else a request that is held would hold the test
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
	ctx, stop := context.WithTimeout(t.Context(), 20*time.Second) // else a request that is held would hold the test
	defer stop()
	statuses := make(map[string]chan int)
	for _, path := range []string{"late", "soon"} {
		s.get("/" + s.upstream + "/" + path)
		statuses[path] = make(chan int, 1)
		go func() {
			resp, err := s.do(ctx, "GET", "/"+s.upstream+"/"+path, nil)
			if err != nil {
				statuses[path] <- 0
				return
			}
			resp.Body.Close()
			statuses[path] <- resp.StatusCode
		}()
		s.kind(throttle.EventWaiting)
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
	ctx, stop := context.WithTimeout(t.Context(), 20*time.Second) // else a request that arrives would hold the test
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
