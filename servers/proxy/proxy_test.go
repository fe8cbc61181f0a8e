package proxy_test

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fleetthrottle/throttle"
	"github.com/fleetthrottle/throttle/feedback"
	"github.com/fleetthrottle/throttle/servers/proxy"
)

// TestBytes: what arrives is what was sent.
func TestBytes(t *testing.T) {
	t.Run("HTTP/1.1", func(t *testing.T) { testBytes(t, false) })
	t.Run("HTTP/2", func(t *testing.T) { testBytes(t, true) })
}

func testBytes(t *testing.T, http2 bool) {
	got := make(chan *http.Request, 1)
	s := newSceneOver(t, http2, func(_ http.ResponseWriter, r *http.Request) { got <- r }, nil, anything(1000))
	for _, path := range []string{
		"/", "/a/b", "/a%2Fb/c", "/a%2fb", "//double//slash/", "/a/../b/./c", "/a+b%20c", "/%E9%92%89", "/a^b|c{d}", "/a;b=c",
		"/x?", "/x?a=1;b=2&c=3", "/x?x=%zz&c=3&b=4", "/x?q=a+b&q=%2B&=&&", "/x?next=http://else.example.com/?a#b", "/127.0.0.1:1/x",
	} {
		conn, err := net.Dial("tcp", s.address)
		require.NoError(t, err)
		fmt.Fprintf(conn, "POST /%s%s HTTP/1.1\r\nHost: localhost\r\nContent-Length: 4\r\nX-Two: b\r\nX-Two: a\r\nX-Hop: 1\r\nConnection: close, X-Hop\r\n\r\nab\x00\xff", s.upstream, path)
		resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
		require.NoError(t, err)
		require.Equal(t, 200, resp.StatusCode, path)
		require.Empty(t, resp.Header.Get("Via"), "that is for answers of the proxy itself")
		require.Regexp(t, `^throttle;dur=[0-9.]+$`, resp.Header.Get("Server-Timing"))
		conn.Close()
		r := <-got
		require.Equal(t, http2, r.ProtoMajor == 2)
		require.Equal(t, path, r.RequestURI)
		require.Equal(t, s.upstream, r.Host)
		require.Equal(t, http.Header{"Via": {"1.1 throttle"}, "X-Two": {"b", "a"}, "Content-Length": {"4"}}, r.Header)
	}
	resp, err := s.do(t.Context(), "GET", "/"+s.upstream+"?a", nil)
	require.NoError(t, err)
	resp.Body.Close()
	require.Equal(t, "/?a", (<-got).RequestURI)
}

// TestBodies: bodies of all sizes arrive, with their trailers, whether their length is known or not.
func TestBodies(t *testing.T) {
	t.Run("HTTP/1.1", func(t *testing.T) { testBodies(t, false) })
	t.Run("HTTP/2", func(t *testing.T) { testBodies(t, true) })
}

func testBodies(t *testing.T, http2 bool) {
	s := newSceneOver(t, http2, func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			panic(http.ErrAbortHandler)
		}
		w.Header().Set("Trailer", "X-After")
		w.Write(body)
		w.Header().Set("X-After", r.Trailer.Get("X-Sum")+fmt.Sprint(r.ContentLength))
	}, nil, anything(1000))
	for _, size := range []int{0, 1, 1<<20 - 1, 1 << 20, 1<<20 + 1, 3 << 20} {
		for _, known := range []bool{true, false} {
			body := bytes.Repeat([]byte("\x00b"), size)[:size]
			var from io.Reader = bytes.NewReader(body)
			want := fmt.Sprint(size)
			if !known {
				from = io.MultiReader(from)
				want = "-1"
			}
			resp, err := s.do(t.Context(), "PUT", "/"+s.upstream+"/", from)
			require.NoError(t, err)
			text, err := io.ReadAll(resp.Body)
			require.NoError(t, err)
			resp.Body.Close()
			require.True(t, bytes.Equal(body, text), "%d bytes", size)
			if size > 0 {
				require.Equal(t, want, resp.Trailer.Get("X-After"))
			}
		}
	}
}

// TestRefusedTargets: nothing is reached but the hosts of the policies.
func TestRefusedTargets(t *testing.T) {
	s := newScene(t, func(http.ResponseWriter, *http.Request) { t.Error("the upstream was reached") }, nil, anything(1000))
	for path, status := range map[string]int{
		"/else.example.com/":               403,
		"/127.0.0.1/":                      403,
		"/127.0.0.1:1/":                    403,
		"/" + s.upstream + "@example.com/": 400,
		"/a@" + s.upstream + "/":           400,
		"/http://" + s.upstream + "/":      403,
		"/":                                400,
		"//" + s.upstream + "/":            400,
		"/%31" + s.upstream[1:] + "/":      400,
		"/?x":                              400,
	} {
		s.refused(status, path)
	}
	for _, c := range []struct {
		status int
		header string
	}{
		{403, "Host: rebound.example.com"},
		{403, "Host: rebound.example.com:7070"},
		{403, "Sec-Fetch-Site: cross-site"},
		{403, "Origin: https://evil.example.com"},
		{508, "Via: 1.1 throttle"},
		{508, "Via: 1.0 a, 1.1 throttle (it)"},
	} {
		s.refused(c.status, "/"+s.upstream+"/", c.header)
	}
}

// TestDialIsGuarded: a name of the file that leads inside is refused when it is dialled.
func TestDialIsGuarded(t *testing.T) {
	s := &scene{T: t, upstream: "localhost", events: make(chan throttle.Event, 100)}
	s.serve(proxy.NewBase("127.0.0.1", "other.example.com"), []throttle.Policy{{Name: "inside", Match: "localhost/", Limit: throttle.SlidingWindow(9, time.Hour)},
		{Name: "mapped", Match: "[::ffff:127.0.0.1]/", Limit: throttle.SlidingWindow(9, time.Hour)},
		{Name: "metadata", Match: "169.254.169.254/", Limit: throttle.SlidingWindow(9, time.Hour)}}, nil)
	for _, path := range []string{"/localhost/x", "/[::ffff:127.0.0.1]/x", "/169.254.169.254/latest"} {
		h, p := s.refused(403, path)
		require.Contains(t, p["detail"], "not public")
		require.NotEmpty(t, h.Get("Server-Timing"))
	}
}

// TestPlainUpstream: an upstream that knows no TLS is named as that.
func TestPlainUpstream(t *testing.T) {
	upstream := httptest.NewServer(http.NotFoundHandler())
	defer upstream.Close()
	s := &scene{T: t, upstream: upstream.Listener.Addr().String(), events: make(chan throttle.Event, 100)}
	s.serve(proxy.NewBase("127.0.0.1"), []throttle.Policy{{Name: "plain", Match: s.upstream + "/", Limit: throttle.SlidingWindow(9, time.Hour)}}, nil)
	_, p := s.refused(502, "/"+s.upstream+"/x")
	require.Contains(t, p["detail"], "https alone")
}

// TestFull is a request that cannot start in time.
func TestFull(t *testing.T) {
	s := newScene(t, func(http.ResponseWriter, *http.Request) {}, nil, anything(1))
	s.get("/" + s.upstream + "/")
	h, p := s.refused(429, "/"+s.upstream+"/?token=not-to-be-told")
	require.Equal(t, "api", p["policy"])
	require.Contains(t, p["detail"], "MaxWait")
	require.Contains(t, []string{"3600", "3601"}, h.Get("Retry-After"))
	require.Equal(t, `"api";q=1;w=3600`, h.Get("RateLimit-Policy"))
	require.Equal(t, `"api";r=0;t=`+h.Get("Retry-After"), h.Get("RateLimit"))
	require.Equal(t, "https://iana.org/assignments/http-problem-types#quota-exceeded", p["type"])
	require.Equal(t, []any{"api"}, p["violated-policies"])
	require.Regexp(t, `^throttle;dur=[0-9.]+$`, h.Get("Server-Timing"))
}

// TestUpstreamAway is an upstream that cannot be reached, and one whose certificate nobody trusts.
func TestUpstreamAway(t *testing.T) {
	gone, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	gone.Close()
	untrusted := httptest.NewUnstartedServer(nil)
	untrusted.Config.ErrorLog = log.New(io.Discard, "", 0)
	untrusted.StartTLS()
	defer untrusted.Close()
	a, b := gone.Addr().String(), untrusted.Listener.Addr().String()
	s := &scene{T: t, upstream: a, events: make(chan throttle.Event, 100)}
	s.serve(proxy.NewBase("127.0.0.1"), []throttle.Policy{{Name: "a", Match: a + "/", Limit: throttle.SlidingWindow(9, time.Hour)},
		{Name: "b", Match: b + "/", Limit: throttle.SlidingWindow(9, time.Hour)}}, nil)
	s.refused(502, "/"+a+"/")
	_, p := s.refused(502, "/"+b+"/")
	require.Contains(t, p["detail"], "certificate")
}

// TestErrorsOfTheTransport have their statuses, and their texts are not told.
func TestErrorsOfTheTransport(t *testing.T) {
	for _, c := range []struct {
		err    error
		status int
		again  string
	}{
		{&throttle.StoreError{Err: errors.New("redis://:not-to-be-told@host")}, 503, "1"},
		{&throttle.ConfigError{Policy: "api", Err: errors.New("not-to-be-told")}, 500, ""},
		{&throttle.LimitError{Policy: "api", RetryAfter: throttle.Never}, 429, ""},
		{&url.Error{Op: "Get", URL: "https://127.0.0.1/?key=not-to-be-told", Err: context.DeadlineExceeded}, 504, ""},
		{errors.New("not-to-be-told"), 502, ""},
	} {
		s := &scene{T: t, upstream: "api.example.com"}
		policies := []throttle.Policy{{Name: "api", Match: "api.example.com/", Limit: throttle.SlidingWindow(9, time.Hour)}}
		s.serve(nil, policies, func(o *proxy.Config) {
			o.Transport = roundTripper(func(*http.Request) (*http.Response, error) { return nil, c.err })
		})
		h, _ := s.refused(c.status, "/api.example.com/")
		require.Equal(t, c.again, h.Get("Retry-After"))
	}
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// TestLeave: a caller that leaves while its request is held is not sent, and frees its place.
func TestLeave(t *testing.T) {
	for _, method := range []string{"GET", "POST"} {
		arrived := make(chan string, 10)
		s := newScene(t, func(_ http.ResponseWriter, r *http.Request) { arrived <- r.URL.Path },
			func(c *proxy.Config) { c.MaxWait, c.Held = 2*time.Hour, 1 }, anything(1))
		s.get("/" + s.upstream + "/first")
		s.kind(throttle.EventStarted)
		ctx, leave := context.WithCancel(t.Context())
		left := make(chan error)
		go func() {
			_, err := s.do(ctx, method, "/"+s.upstream+"/second", strings.NewReader("body"))
			left <- err
		}()
		s.kind(throttle.EventWaiting)
		_, p := s.refused(503, "/"+s.upstream+"/third") // while the second is held
		require.Contains(t, p["detail"], "too many")
		leave()
		require.ErrorIs(t, <-left, context.Canceled)
		s.kind(throttle.EventGaveUp)
		for { // the handler ends after its event
			resp, _ := s.get("/"+s.upstream+"/fourth", "Prefer: wait=0")
			if resp.StatusCode != 503 {
				require.Equal(t, 429, resp.StatusCode)
				break
			}
		}
		require.Equal(t, "/first", <-arrived)
		require.Empty(t, arrived)
	}
}

// TestBrokenBody: a body that ends before its length is not sent, and its request has no start.
func TestBrokenBody(t *testing.T) {
	s := newScene(t, func(http.ResponseWriter, *http.Request) {}, nil, anything(1))
	for _, framing := range []string{"Content-Length: 10\r\n\r\nabc", "Transfer-Encoding: chunked\r\n\r\n5\r\nab", "Transfer-Encoding: chunked\r\n\r\nzz\r\n"} {
		conn, err := net.Dial("tcp", s.address)
		require.NoError(t, err)
		fmt.Fprintf(conn, "POST /%s/ HTTP/1.1\r\nHost: localhost\r\n%s", s.upstream, framing)
		require.NoError(t, conn.(*net.TCPConn).CloseWrite())
		resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
		require.NoError(t, err)
		text, err := io.ReadAll(resp.Body)
		require.NoError(t, err)
		require.Equal(t, 400, resp.StatusCode)
		s.problem(resp, string(text))
		conn.Close()
	}
	resp, _ := s.get("/" + s.upstream + "/")
	require.Equal(t, 200, resp.StatusCode, "the only start is still there")
}

// TestExpect: a body is asked for when its request has its start, and not before.
func TestExpect(t *testing.T) {
	s := newScene(t, func(w http.ResponseWriter, r *http.Request) { io.Copy(w, r.Body) }, nil, anything(1))
	for _, status := range []int{100, 429} {
		conn, err := net.Dial("tcp", s.address)
		require.NoError(t, err)
		fmt.Fprintf(conn, "POST /%s/ HTTP/1.1\r\nHost: localhost\r\nExpect: 100-continue\r\nContent-Length: 4\r\n\r\n", s.upstream)
		from := bufio.NewReader(conn)
		resp, err := http.ReadResponse(from, nil)
		require.NoError(t, err)
		require.Equal(t, status, resp.StatusCode)
		for resp.StatusCode == 100 { // the upstream's own may follow
			if status == 100 {
				io.WriteString(conn, "body")
				status = 200
			}
			resp, err = http.ReadResponse(from, nil)
			require.NoError(t, err)
		}
		require.Equal(t, status, resp.StatusCode)
		conn.Close()
	}
}

// TestHeldCountsWaits: a request that was sent waits no more, however long its answer takes.
func TestHeldCountsWaits(t *testing.T) {
	arrived, answer := make(chan bool), make(chan bool)
	s := newScene(t, func(http.ResponseWriter, *http.Request) { arrived <- true; <-answer },
		func(c *proxy.Config) { c.Held = 1 }, anything(2))
	done := make(chan int, 2)
	for range 2 {
		go func() {
			resp, err := s.do(t.Context(), "GET", "/"+s.upstream+"/", nil)
			if err == nil {
				resp.Body.Close()
				done <- resp.StatusCode
			}
		}()
		<-arrived
	}
	close(answer)
	require.Equal(t, 200, <-done)
	require.Equal(t, 200, <-done)
}

// TestHeldCountsNoDials: a request that has its start waits no more, however long it takes to connect.
func TestHeldCountsNoDials(t *testing.T) {
	dials := make(chan bool)
	base := proxy.NewBase("127.0.0.1")
	base.DialContext = func(ctx context.Context, _, _ string) (net.Conn, error) {
		dials <- true
		<-ctx.Done()
		return nil, ctx.Err()
	}
	s := &scene{T: t, upstream: "127.0.0.1:443", events: make(chan throttle.Event, 100)}
	policy := anything(2)
	policy.Match = s.upstream + "/"
	s.serve(base, []throttle.Policy{policy}, func(c *proxy.Config) { c.Held = 1 })

	ctx, leave := context.WithCancel(t.Context())
	var all sync.WaitGroup
	answered := make(chan int, 2)
	for range 2 {
		all.Go(func() {
			if resp, err := s.do(ctx, "GET", "/"+s.upstream+"/", nil); err == nil {
				resp.Body.Close()
				answered <- resp.StatusCode
			}
		})
		select {
		case <-dials:
		case status := <-answered:
			require.Fail(t, "the request is not sent", "status %d", status)
		}
	}
	leave()
	all.Wait()
}

// TestStream: each part of an answer arrives before the next is sent.
func TestStream(t *testing.T) {
	next := make(chan string)
	s := newScene(t, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		for part := range next {
			io.WriteString(w, part)
			http.NewResponseController(w).Flush()
		}
	}, nil, anything(1))
	go func() { next <- "data: 0\n\n" }()
	resp, err := s.do(t.Context(), "GET", "/"+s.upstream+"/", nil)
	require.NoError(t, err)
	defer resp.Body.Close()
	body := bufio.NewReader(resp.Body)
	for i := range 3 {
		line, err := body.ReadString('\n')
		require.NoError(t, err)
		require.Equal(t, fmt.Sprintf("data: %d\n", i), line)
		_, err = body.ReadString('\n')
		require.NoError(t, err)
		if i < 2 {
			next <- fmt.Sprintf("data: %d\n\n", i+1)
		}
	}
	close(next)
	_, err = body.ReadByte()
	require.Equal(t, io.EOF, err)
}

// TestCompressed: an answer in gzip arrives as it was sent, and the ban in it is seen.
func TestCompressed(t *testing.T) {
	var packed bytes.Buffer
	z := gzip.NewWriter(&packed)
	io.WriteString(z, `{"errcode":90018,"errmsg":"too many"}`)
	z.Close()
	codings := make(chan string, 1)
	policy := anything(1000)
	policy.Answer = feedback.Codes{Fields: []string{"errcode"}, Lasts: map[string]time.Duration{"90018": time.Hour}}.Answer
	s := newScene(t, func(w http.ResponseWriter, r *http.Request) {
		codings <- r.Header.Get("Accept-Encoding")
		w.Header().Set("Content-Encoding", "gzip")
		w.Write(packed.Bytes())
	}, nil, policy)
	resp, body := s.get("/"+s.upstream+"/", "Accept-Encoding: gzip, deflate")
	require.Equal(t, "gzip, deflate", <-codings)
	require.Equal(t, "gzip", resp.Header.Get("Content-Encoding"))
	require.Equal(t, packed.String(), body)
	_, p := s.refused(429, "/"+s.upstream+"/")
	require.Contains(t, p["detail"], "penalty")
}

// TestUpgrade: a WebSocket passes, and no other protocol does.
func TestUpgrade(t *testing.T) {
	s := newScene(t, func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Upgrade") == "" {
			return
		}
		conn, rw, err := http.NewResponseController(w).Hijack()
		if err != nil {
			return
		}
		defer conn.Close()
		io.WriteString(conn, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n")
		line, _ := rw.ReadString('\n')
		io.WriteString(conn, "echo "+line)
	}, nil, anything(10))
	for protocol, status := range map[string]int{"websocket": 101, "h2c": 200, "websocket, h2c": 200} {
		conn, err := net.Dial("tcp", s.address)
		require.NoError(t, err)
		fmt.Fprintf(conn, "GET /%s/ HTTP/1.1\r\nHost: localhost\r\nConnection: Upgrade, HTTP2-Settings\r\nUpgrade: %s\r\nHTTP2-Settings: AAMAAABkAARAAAAAAAIAAAAA\r\n\r\n", s.upstream, protocol)
		from := bufio.NewReader(conn)
		resp, err := http.ReadResponse(from, nil)
		require.NoError(t, err)
		require.Equal(t, status, resp.StatusCode, protocol)
		if status == 101 {
			io.WriteString(conn, "hello\n")
			line, err := from.ReadString('\n')
			require.NoError(t, err)
			require.Equal(t, "echo hello\n", line)
		}
		conn.Close()
	}
}

// TestNew: a configuration that lacks something is refused.
func TestNew(t *testing.T) {
	all := func(string) bool { return true }
	for _, c := range []proxy.Config{{}, {Transport: http.DefaultTransport}, {Hosts: all}, {Transport: http.DefaultTransport, Hosts: all, Held: -1},
		{Transport: http.DefaultTransport, Hosts: all, HeldPerBudget: -1}, {Transport: http.DefaultTransport, Hosts: all, Token: "0123456789abcdef01234"},
		{Transport: http.DefaultTransport, Hosts: all, Token: "0123456789abcdef012345 7"}} {
		_, err := proxy.New(c)
		require.Error(t, err)
	}

	_, err := proxy.New(proxy.Config{Held: -1, HeldPerBudget: -1, Token: "short"})
	for _, wrong := range []string{"Transport", "Hosts", "Held is", "HeldPerBudget is", "token"} {
		require.ErrorContains(t, err, wrong, "all mistakes at once")
	}
}

// TestHosts: a policy names its host, at its port.
func TestHosts(t *testing.T) {
	hosts := proxy.Hosts([]throttle.Policy{
		{Match: "GET a.example.com/v1/{id}"}, {Match: "b.example.com:8443/"}, {Match: "*.c.example.com/"}, {Match: "{shop}.d.example.com/x/"},
		{Match: ""}, {Match: "/x/"}, {Match: "{a}.{b}/"}, {Match: "*.{b}/"}, {Match: "[2001:db8::1]/"},
	})
	for host, want := range map[string]bool{
		"a.example.com": true, "A.Example.com.": true, "a.example.com:443": true, "a.example.com:22": false,
		"b.example.com:8443": true, "b.example.com": false, "x.y.c.example.com": true, "c.example.com": false,
		"s.d.example.com": true, "d.example.com": false, "e.example.com": false, "x.org": false, "": false, "[2001:db8::1]": true,
	} {
		require.Equal(t, want, hosts(host), host)
	}
}
