package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fleetthrottle/throttle/internal/lab/redistest"
)

const proxyToken = "not-to-be-told-0123456789"

// TestProxyStop: with SIGTERM a proxy is not ready, refuses what cannot start in time, lets the rest
// end, and ends.
func TestProxyStop(t *testing.T) {
	t.Parallel()
	arrived, answer := make(chan string), make(chan bool)
	end := sync.OnceFunc(func() { close(answer) })
	host := newUpstream(t, func(w http.ResponseWriter, r *http.Request) {
		arrived <- r.URL.Path
		<-answer
		io.WriteString(w, "whole")
	})
	s := startProxy(t, newFile(t, host, "1/h"), "--max-wait", "2h", "--stop-time", "1m")
	t.Cleanup(end) // a test that fails must not wait for the upstream's answer
	answers := make(chan string, 2)
	get := func(path string) {
		resp, err := http.Get(s.baseURL + host + path)
		if err != nil {
			answers <- err.Error()
			return
		}
		defer resp.Body.Close()
		text, _ := io.ReadAll(resp.Body)
		answers <- fmt.Sprint(resp.StatusCode, " ", string(text))
	}
	go get("/first")
	require.Equal(t, "/first", <-arrived)
	go get("/second")
	s.metric("throttle_proxy_held 1")
	status, _ := s.askAdmin("readyz")
	require.Equal(t, 200, status)
	require.NoError(t, s.cmd.Process.Signal(syscall.SIGTERM))
	refused := <-answers
	require.Contains(t, refused, "503 ")
	require.Contains(t, refused, "this server ends")
	status, text := s.askAdmin("readyz")
	require.Equal(t, 503, status)
	require.Equal(t, "not ready: the proxy ends\n", text)

	// The proxy closes its door a moment after it has refused the waiting requests. Until then whoever comes is refused, or cut
	// off.
	for {
		resp, err := http.Get(s.baseURL + host + "/third")
		if errors.Is(err, syscall.ECONNREFUSED) {
			break
		}
		if err == nil {
			resp.Body.Close()
			require.Equal(t, 503, resp.StatusCode)
		}
	}

	end()
	require.Equal(t, "200 whole", <-answers)
	require.NoError(t, s.cmd.Wait())
}

// metric waits for a line of the metrics.
func (s *served) metric(line string) {
	s.Helper()
	require.Eventually(s, func() bool {
		_, text := s.askAdmin("metrics")
		return strings.Contains(text, "\n"+line+"\n")
	}, time.Minute, 5*time.Millisecond, line)
}

// TestProxyStopNow: a second signal ends a proxy that waits for an answer, and so does the time to stop.
func TestProxyStopNow(t *testing.T) {
	t.Parallel()
	arrived := make(chan bool)
	host := newUpstream(t, func(_ http.ResponseWriter, r *http.Request) {
		arrived <- true
		<-r.Context().Done()
	})
	file := newFile(t, host, "100/h")
	for _, c := range []struct {
		stopTime string
		signals  []os.Signal
	}{
		{"1h", []os.Signal{syscall.SIGTERM, syscall.SIGTERM}},
		{"1h", []os.Signal{syscall.SIGTERM, os.Interrupt}},
		{"1h", []os.Signal{os.Interrupt, os.Interrupt}},
		{"1h", []os.Signal{os.Interrupt, syscall.SIGTERM}},
		{"1ms", []os.Signal{syscall.SIGTERM}},
	} {
		s := startProxy(t, file, "--stop-time", c.stopTime)
		go func() {
			resp, err := http.Get(s.baseURL + host + "/")
			if err == nil {
				resp.Body.Close()
			}
		}()
		<-arrived
		for i, signal := range c.signals {
			if i > 0 {
				require.Eventually(t, func() bool { status, _ := s.askAdmin("readyz"); return status == 503 }, time.Minute, time.Millisecond)
			}
			require.NoError(t, s.cmd.Process.Signal(signal))
		}
		_ = s.cmd.Wait() // with the signal's code, or 0
	}
}

// TestProxyPushed: without a file a proxy follows what is pushed.
func TestProxyPushed(t *testing.T) {
	t.Parallel()
	at := "--redis=" + redistest.Single(t).URL()
	require.Equal(t, exitUsage, run(t.Context(), []string{"proxy", "--listen", "127.0.0.1:0", at}, new(sink), new(sink)), "nothing is pushed")
	host := newUpstream(t, func(http.ResponseWriter, *http.Request) {})
	must(t, "push", newFile(t, host, "1/h"), "--by", "anna", "--reason", "begin", "--yes", "--wait", "0", at)
	s := startProxy(t, "", at)
	require.Equal(t, http.StatusOK, s.get(host+"/x"))
	require.Equal(t, http.StatusTooManyRequests, s.get(host+"/x"))
	must(t, "push", newFile(t, host, "2/h"), "--by", "anna", "--reason", "more", "--yes", "--loosen", "--wait", "0", at)
	s.line("loosens, and is in force in")
	require.Contains(t, must(t, "status", at), "throttle-proxy")
}

// TestProxyFollowHosts: a pushed file opens no host, and takes no key of requests, that the proxy's own file does not have.
func TestProxyFollowHosts(t *testing.T) {
	t.Parallel()
	at := "--redis=" + redistest.Single(t).URL()
	host := newUpstream(t, func(http.ResponseWriter, *http.Request) {})
	ceiling := newFile(t, host, "1/h")
	push := func(file string) {
		must(t, "push", file, "--by", "anna", "--reason", "more", "--yes", "--loosen", "--wait", "0", at)
	}

	push(newFile(t, host, "1/h"))
	s := startProxy(t, "", "--follow-hosts", ceiling, at)
	push(newFile(t, "127.0.0.1:1", "1/h"))
	require.Contains(t, s.line("is not in force"), `the file opens what `+ceiling+` does not: policy "api" names the host "127.0.0.1:1"`)
	require.Contains(t, s.detail("127.0.0.1:1/"), "no policy names this host")

	spy := newFile(t, host, "1/h")
	text, err := os.ReadFile(spy)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(spy, fmt.Appendf(text, "  - {name: spy, match: \"%s/\", limit: 9/s, shadow: true, key: \"{query.pin}\"}\n", host), 0o600))
	push(spy)
	require.Contains(t, s.line("is not in force"), `policy "spy" makes keys of requests, by {query.pin}`)

	talk := new(strings.Builder)
	require.NotZero(t, run(t.Context(), []string{"proxy", "--listen", "127.0.0.1:0", "--follow-hosts", ceiling, at}, new(sink), talk), "what is pushed opens too much")
	require.Contains(t, talk.String(), "the file opens what")
	require.Equal(t, exitUsage, run(t.Context(), []string{"proxy", ceiling, "--listen", "127.0.0.1:0", "--follow-hosts", ceiling, at}, new(sink), talk))
	require.Contains(t, talk.String(), "--follow-hosts bounds what is pushed, and FILE is followed")
}

// TestProxyAdmin: the pages of an operator say what is, and no credential.
func TestProxyAdmin(t *testing.T) {
	server := redistest.Single(t)
	t.Setenv(addressVariable, server.URL())
	t.Setenv("THROTTLE_PROXY_TOKEN", proxyToken)
	host := newUpstream(t, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/ban" {
			w.Header().Set("Retry-After", "600")
			w.WriteHeader(http.StatusTooManyRequests)
		}
	})
	file := filepath.Join(t.TempDir(), "policies.yaml")
	require.NoError(t, os.WriteFile(file, []byte(fmt.Sprintf("version: 1\npolicies:\n  - {name: api, match: \"%s/\", key: \"{header.X-Key}\", limit: 100/h}\n", host)), 0o600))
	s := startProxy(t, file, "--budget-metrics")
	send := func(path string) int {
		req, err := http.NewRequest("GET", s.baseURL+host+path, nil)
		require.NoError(t, err)
		req.Header.Set("Proxy-Authorization", "Bearer "+proxyToken)
		req.Header.Set("X-Key", "not-to-be-told")
		resp, err := http.DefaultClient.Do(req)
		require.NoError(t, err)
		resp.Body.Close()
		return resp.StatusCode
	}
	require.Equal(t, http.StatusProxyAuthRequired, s.get(host+"/x"))
	require.Equal(t, http.StatusOK, send("/x"))
	pages := func(want map[string]int) (all string) {
		for path, status := range want {
			got, text := s.askAdmin(path)
			require.Equal(t, status, got, "%s: %s", path, text)
			all += text
		}
		require.NotContains(t, all, "not-to-be-told")
		return all
	}
	pages(map[string]int{"livez": 200, "readyz": 200, "upstreams": 200, "metrics": 200, "": 404})
	require.Equal(t, http.StatusTooManyRequests, send("/ban"))
	require.Eventually(t, func() bool { status, _ := s.askAdmin("upstreams"); return status == 503 }, time.Minute, 10*time.Millisecond)
	pages(map[string]int{"livez": 200, "readyz": 200, "upstreams": 503})
	var result upstreamsResult
	_, text := s.askAdmin("upstreams")
	require.NoError(t, json.Unmarshal([]byte(text), &result))
	require.True(t, result.Complete)
	require.Len(t, result.Closed, 1)
	require.Equal(t, "api", result.Closed[0].Policy)
	require.Equal(t, 1, result.Closed[0].Budgets)
	require.WithinDuration(t, time.Now().Add(10*time.Minute), result.Closed[0].Until, time.Minute)
	require.Equal(t, http.StatusTooManyRequests, send("/x"))
	_, text = s.askAdmin("metrics")
	for _, line := range []string{
		`throttle_proxy_refused_total{reason="limit"} 1`, `throttle_proxy_refused_total{reason="token"} 1`, `throttle_proxy_refused_total{reason="held"} 0`,
		`throttle_requests_total{policy="api",result="refused"} 1`, `throttle_budgets{policy="api"} 1`, "throttle_proxy_held 0", "throttle_proxy_file_applied 1",
		"throttle_proxy_links_round_total 0", "throttle_proxy_unreadable_total 0", "throttle_proxy_aborted_total 0", "throttle_proxy_tunnels_ended_total 0", "process_resident_memory_bytes ",
	} {
		require.Contains(t, text, "\n"+line)
	}
	req, err := http.NewRequest("GET", s.adminURL+"metrics", nil)
	require.NoError(t, err)
	req.Host = "rebound.example.com"
	resp, err := http.DefaultClient.Do(req)
	require.NoError(t, err)
	resp.Body.Close()
	require.Equal(t, http.StatusForbidden, resp.StatusCode)

	server.Kill()
	require.Eventually(t, func() bool { status, _ := s.askAdmin("readyz"); return status == 503 }, time.Minute, 10*time.Millisecond)
	pages(map[string]int{"livez": 200, "readyz": 503})
}

// TestProxySocket: a proxy at a socket, which its owner alone may use, and which is there no longer than
// the proxy.
func TestProxySocket(t *testing.T) {
	t.Parallel()
	host := newUpstream(t, func(http.ResponseWriter, *http.Request) {})
	folder, err := os.MkdirTemp("", "s") // a short path, because a socket's has 107 bytes
	require.NoError(t, err)
	t.Cleanup(func() { os.RemoveAll(folder) })
	path := filepath.Join(folder, "socket")
	file := newFile(t, host, "100/h")

	stale, err := net.Listen("unix", path)
	require.NoError(t, err)
	stale.(*net.UnixListener).SetUnlinkOnClose(false)
	require.Equal(t, exitUsage, run(t.Context(), []string{"proxy", file, "--listen", "unix:" + path}, new(sink), new(sink)), "somebody listens")
	stale.Close()

	s := startProxy(t, file, "--listen", "unix:"+path)
	found, err := os.Lstat(path)
	require.NoError(t, err)
	require.Equal(t, fs.ModeSocket|0o600, found.Mode())
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true, DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "unix", path)
	}}}
	resp, err := client.Get("http://proxy/" + host + "/")
	require.NoError(t, err)
	resp.Body.Close()
	require.Equal(t, http.StatusOK, resp.StatusCode)
	require.NoError(t, s.cmd.Process.Signal(syscall.SIGTERM))
	require.NoError(t, s.cmd.Wait())
	left, err := os.ReadDir(folder)
	require.NoError(t, err)
	require.Empty(t, left)
}

// TestProxyConnections: one connection too many is told so, and there is room again when one ends. A connection that has not been
// let in leaves its place to another one.
func TestProxyConnections(t *testing.T) {
	t.Parallel()
	host := newUpstream(t, func(http.ResponseWriter, *http.Request) {})
	s := startProxy(t, newFile(t, host, "100/h"), "--connections", "2")
	address := strings.Trim(strings.TrimPrefix(s.baseURL, "http://"), "/")
	var idle []net.Conn
	for range 2 {
		conn, err := net.Dial("tcp", address)
		require.NoError(t, err)
		defer conn.Close()
		fmt.Fprintf(conn, "GET /%s/ HTTP/1.1\r\nHost: localhost\r\n\r\n", host)
		resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
		require.NoError(t, err)
		resp.Body.Close()
		idle = append(idle, conn)
	}
	s.metric("throttle_proxy_connections 2")
	status := func() int {
		conn, err := net.Dial("tcp", address)
		require.NoError(t, err)
		defer conn.Close()
		fmt.Fprintf(conn, "GET /%s/ HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n", host)
		resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
		require.NoError(t, err)
		_, err = io.ReadAll(resp.Body)
		require.NoError(t, err)
		return resp.StatusCode
	}
	require.Equal(t, http.StatusServiceUnavailable, status())
	s.metric("throttle_proxy_connections_refused_total 1")
	idle[0].Close()
	require.Eventually(t, func() bool { return status() == http.StatusOK }, time.Minute, time.Millisecond)

	s.metric("throttle_proxy_connections 1") // the last one has ended, and leaves its place
	silent, err := net.Dial("tcp", address)
	require.NoError(t, err)
	defer silent.Close()
	require.Eventually(t, func() bool { return status() == http.StatusOK }, time.Minute, time.Millisecond)
	_, err = silent.Read(make([]byte, 1))
	require.Error(t, err, "it was the oldest that has not been let in")
}

// TestProxyStrangers: callers without the token, as many as like to, do not shut out the one who has it.
func TestProxyStrangers(t *testing.T) {
	host := newUpstream(t, func(http.ResponseWriter, *http.Request) {})
	const token = "0123456789abcdef0123456789abcdef"
	t.Setenv("THROTTLE_PROXY_TOKEN", token)
	s := startProxy(t, newFile(t, host, "100/h"), "--connections", "4")
	address := strings.Trim(strings.TrimPrefix(s.baseURL, "http://"), "/")
	ask := func(more string) (net.Conn, *http.Response) {
		conn, err := net.Dial("tcp", address)
		require.NoError(t, err)
		t.Cleanup(func() { conn.Close() })
		fmt.Fprintf(conn, "GET /%s/ HTTP/1.1\r\nHost: localhost\r\n%s\r\n", host, more)
		resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
		require.NoError(t, err)
		return conn, resp
	}

	for range 5 {
		conn, resp := ask("")
		require.Equal(t, http.StatusProxyAuthRequired, resp.StatusCode)
		require.True(t, resp.Close)
		_, err := io.Copy(io.Discard, conn)
		require.NoError(t, err, "the connection ends behind its answer")
	}
	for range 5 {
		conn, err := net.Dial("tcp", address) // and says nothing
		require.NoError(t, err)
		t.Cleanup(func() { conn.Close() })
	}
	s.metric("throttle_proxy_connections 4")

	owner, resp := ask("Proxy-Authorization: Bearer " + token + "\r\n")
	require.Equal(t, http.StatusOK, resp.StatusCode)
	for range 5 {
		conn, err := net.Dial("tcp", address)
		require.NoError(t, err)
		t.Cleanup(func() { conn.Close() })
	}
	_, resp = ask("Proxy-Authorization: Bearer " + token + "\r\n")
	require.Equal(t, http.StatusOK, resp.StatusCode)
	fmt.Fprintf(owner, "GET /%s/ HTTP/1.1\r\nHost: localhost\r\nProxy-Authorization: Bearer %s\r\n\r\n", host, token)
	again, err := http.ReadResponse(bufio.NewReader(owner), nil)
	require.NoError(t, err)
	require.Equal(t, http.StatusOK, again.StatusCode, "who was let in keeps its connection")
}

// TestProxyLimits: headers that are too long, and requests that are none, cost nothing but their
// connection, and nothing of them is logged.
func TestProxyLimits(t *testing.T) {
	t.Parallel()
	host := newUpstream(t, func(http.ResponseWriter, *http.Request) {})
	s := startProxy(t, newFile(t, host, "100/h"))
	address := strings.Trim(strings.TrimPrefix(s.baseURL, "http://"), "/")
	for text, want := range map[string]int{
		"GET /" + host + "/ HTTP/1.1\r\nHost: localhost\r\nX-Long: " + strings.Repeat("not-to-be-told", 10000) + "\r\n\r\n":                                      431,
		"GET /" + host + "/ HTTP/1.1\r\nHost: localhost\r\nContent-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\nGET /not-to-be-told HTTP/1.1\r\n\r\n": 200,
		"not-to-be-told\r\n\r\n": 400,
		"POST /" + host + "/ HTTP/1.1\r\nHost: localhost\r\nContent-Length: 3\r\nContent-Length: 4\r\n\r\nabcd": 400,
	} {
		conn, err := net.Dial("tcp", address)
		require.NoError(t, err)
		_, err = io.WriteString(conn, text)
		require.NoError(t, err)
		resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
		require.NoError(t, err)
		require.Equal(t, want, resp.StatusCode, "%.60q", text)
		conn.Close()
	}
	require.NoError(t, s.cmd.Process.Signal(syscall.SIGTERM))
	rest, err := io.ReadAll(s.talk)
	require.NoError(t, err)
	require.Empty(t, string(rest))
	require.NoError(t, s.cmd.Wait())
}

// TestPanics: where a panic was is told, and its value is not.
func TestPanics(t *testing.T) {
	var lines []string
	log := panics(func(line string) { lines = append(lines, line) })
	fmt.Fprintf(log, "http: TLS handshake error\n")
	fmt.Fprintf(log, "http: panic serving 127.0.0.1:1: not-to-be-told\ngoroutine 1 [running]:\nmain.f()\n")
	require.Equal(t, []string{"a request ended in a panic, which is a mistake in throttle:\ngoroutine 1 [running]:\nmain.f()\n"}, lines)
}
