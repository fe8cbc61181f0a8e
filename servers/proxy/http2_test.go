package proxy_test

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptrace"
	"net/textproto"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fleetthrottle/throttle"
	"github.com/fleetthrottle/throttle/servers/proxy"
)

// h2 is a client that speaks HTTP/2 from its first byte, as programs of gRPC without TLS do.
func (s *scene) h2() *http.Client {
	t := &http.Transport{Protocols: new(http.Protocols), DisableCompression: true}
	t.Protocols.SetUnencryptedHTTP2(true)
	t.DialContext = func(ctx context.Context, network, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, network, s.address)
	}
	s.Cleanup(t.CloseIdleConnections)
	return &http.Client{Transport: t}
}

// TestHTTP2 has HTTP/2 or HTTP/1.1 on both sides of the proxy.
func TestHTTP2(t *testing.T) {
	for _, out := range []bool{false, true} {
		s := newNamedScene(t, out, func(w http.ResponseWriter, r *http.Request) {
			body, _ := io.ReadAll(r.Body)
			w.Header().Set("X-Came", fmt.Sprint(r.ProtoMajor, " ", r.Host, " ", r.RequestURI, " ", r.Header.Get("Te"), r.Trailer.Get("X-Sum")))
			w.Header().Set("Trailer", "X-After")
			w.Write(body)
			w.Header().Set("X-After", "end")
			w.Header().Set(http.TrailerPrefix+"Grpc-Status", "0")
		}, nil, rows...)
		for name, c := range map[string]*http.Client{"2": s.h2(), "1": client} {
			body := bytes.Repeat([]byte("\x00\xff"), 1<<20)
			req, err := http.NewRequestWithContext(t.Context(), "POST", "http://"+s.address+"/api.example.com/v1/x%2f?a=1;b=%zz", io.MultiReader(bytes.NewReader(body)))
			require.NoError(t, err)
			req.Header.Set("Te", "trailers")
			req.Trailer = http.Header{"X-Sum": {"!"}}
			resp, err := c.Do(req)
			require.NoError(t, err)
			got, err := io.ReadAll(resp.Body)
			require.NoError(t, err)
			resp.Body.Close()
			require.Equal(t, name, fmt.Sprint(resp.ProtoMajor))
			require.True(t, bytes.Equal(body, got))
			major := map[bool]string{false: "1", true: "2"}[out]
			require.Equal(t, major+" api.example.com /v1/x%2f?a=1;b=%zz trailers!", resp.Header.Get("X-Came"))
			require.Equal(t, http.Header{"X-After": {"end"}, "Grpc-Status": {"0"}}, resp.Trailer)
		}
	}
}

// TestHTTP2Ways: the field :authority is the Host field, and there is neither a tunnel nor an upgrade.
func TestHTTP2Ways(t *testing.T) {
	s := newNamedScene(t, true, told, nil, rows...)
	for authority, path := range map[string]string{"api.example.com": "/v1/x", "localhost:1": "/api.example.com/v1/x"} {
		resp, err := s.h2().Get("http://" + authority + path)
		require.NoError(t, err)
		resp.Body.Close()
		require.Equal(t, "api.example.com /v1/x", resp.Header.Get("X-Came"))
	}
	req, err := http.NewRequestWithContext(t.Context(), "CONNECT", "http://api.example.com:443", nil)
	require.NoError(t, err)
	resp, err := s.h2().Do(req)
	require.NoError(t, err)
	text, err := io.ReadAll(resp.Body)
	require.NoError(t, err)
	require.Equal(t, 501, resp.StatusCode)
	s.problem(resp, string(text))
}

// TestBothWaysAtOnce: with HTTP/2 on both sides an answer begins before its request has ended.
func TestBothWaysAtOnce(t *testing.T) {
	s := newNamedScene(t, true, func(w http.ResponseWriter, r *http.Request) {
		c := http.NewResponseController(w)
		c.Flush()
		lines := bufio.NewScanner(r.Body)
		for lines.Scan() {
			fmt.Fprintln(w, "echo", lines.Text())
			c.Flush()
		}
	}, nil, rows...)
	body, feed := io.Pipe()
	resp, err := s.h2().Post("http://api.example.com/v1/", "text/plain", body)
	require.NoError(t, err)
	defer resp.Body.Close()
	from := bufio.NewReader(resp.Body)
	for i := range 3 {
		fmt.Fprintln(feed, i)
		line, err := from.ReadString('\n')
		require.NoError(t, err)
		require.Equal(t, fmt.Sprintf("echo %d\n", i), line)
	}
	feed.Close()
	_, err = from.ReadByte()
	require.Equal(t, io.EOF, err)
}

// TestHTTP2InTunnel: HTTP/2 from the first byte passes in a tunnel, and its requests are held one by one.
func TestHTTP2InTunnel(t *testing.T) {
	s := newNamedScene(t, true, told, nil, at("api.example.com/v1/", 1))
	c := s.h2()
	c.Transport.(*http.Transport).DialContext = func(context.Context, string, string) (net.Conn, error) {
		w := s.tunnel("api.example.com:80")
		return w.Conn, nil
	}
	for _, status := range []int{200, 429} {
		resp, err := c.Get("http://api.example.com/v1/x")
		require.NoError(t, err)
		resp.Body.Close()
		require.Equal(t, status, resp.StatusCode)
		require.Equal(t, 2, resp.ProtoMajor)
	}
}

// TestLeaveHTTP2: a caller that resets its stream while its request is held gives its place back, whatever the size of its body.
func TestLeaveHTTP2(t *testing.T) {
	s := newNamedScene(t, true, told, func(c *proxy.Config) { c.MaxWait = 2 * time.Hour }, at("api.example.com/v1/", 1))
	resp, err := s.h2().Get("http://api.example.com/v1/x")
	require.NoError(t, err)
	resp.Body.Close()
	s.kind(throttle.EventStarted)
	ctx, leave := context.WithCancel(t.Context())
	left := make(chan error)
	go func() {
		req, _ := http.NewRequestWithContext(ctx, "POST", "http://api.example.com/v1/x", bytes.NewReader(make([]byte, 4<<20)))
		_, err := s.h2().Do(req)
		left <- err
	}()
	s.kind(throttle.EventWaiting)
	leave()
	require.ErrorIs(t, <-left, context.Canceled)
	s.kind(throttle.EventGaveUp)
}

// TestEarlyHints: answers before the answer pass, without fields of one connection, and their links lead back.
func TestEarlyHints(t *testing.T) {
	for _, out := range []bool{false, true} {
		s := newNamedScene(t, out, func(w http.ResponseWriter, r *http.Request) {
			h := w.Header()
			h.Set("Link", "</style.css>; rel=preload, <https://api.example.com/x>; rel=preload")
			h.Set("Proxy-Authenticate", "Basic")
			if r.ProtoMajor == 1 { // HTTP/2 has no such fields
				h.Set("Connection", "X-Hop, Keep-Alive")
				h.Set("Keep-Alive", "timeout=5")
				h.Set("X-Hop", "1")
				h.Set("Te", "trailers")
				h.Set("Upgrade", "x")
			}
			h.Set("X-Early", "1")
			w.WriteHeader(103)
			clear(h)
			h.Set("X-Late", "1")
			w.WriteHeader(200)
		}, nil, rows...)
		for name, c := range map[string]*http.Client{"2": s.h2(), "1": client} {
			var early []string
			ctx := httptrace.WithClientTrace(t.Context(), &httptrace.ClientTrace{Got1xxResponse: func(code int, h textproto.MIMEHeader) error {
				early = append(early, fmt.Sprint(code, " ", h))
				return nil
			}})
			req, err := http.NewRequestWithContext(ctx, "GET", "http://"+s.address+"/api.example.com/v1/", nil)
			require.NoError(t, err)
			resp, err := c.Do(req)
			require.NoError(t, err)
			resp.Body.Close()
			require.Equal(t, []string{fmt.Sprintf("103 map[Link:[</api.example.com/style.css>; rel=preload, <http://%s/api.example.com/x>; rel=preload] X-Early:[1]]", s.address)}, early, name)
			require.Equal(t, "1", resp.Header.Get("X-Late"))
			require.Empty(t, resp.Header.Get("X-Early"))
		}
		w := s.dial()
		w.send("GET /api.example.com/v1/ HTTP/1.0\nHost: localhost\n\n")
		resp, _ := w.answer("GET")
		require.Equal(t, 200, resp.StatusCode, "HTTP/1.0 knows no such answers")
	}
}

// TestNoBodies: answers that have no body have none, and keep what their headers say of one.
func TestNoBodies(t *testing.T) {
	for _, out := range []bool{false, true} {
		s := newNamedScene(t, out, func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Etag", `"a"`)
			switch r.URL.Path {
			case "/v1/204":
				w.WriteHeader(204)
			case "/v1/304":
				w.WriteHeader(304)
			default:
				w.Header().Set("Content-Length", "12345")
				w.Header().Set("Content-Encoding", "br")
			}
		}, nil, rows...)
		w := s.dial()
		for path, status := range map[string]int{"204": 204, "304": 304, "head": 200} {
			method := "GET"
			if path == "head" {
				method = "HEAD"
			}
			w.send(method + " /api.example.com/v1/" + path + " HTTP/1.1\nHost: localhost\nIf-None-Match: \"a\"\n\n")
			resp, body := w.answer(method) // on one connection: a body too many would be the begin of the next answer
			require.Equal(t, status, resp.StatusCode)
			require.Empty(t, body)
			require.Equal(t, `"a"`, resp.Header.Get("Etag"))
			require.Empty(t, resp.Header.Get("Transfer-Encoding"))
			if path == "head" {
				require.Equal(t, "12345", resp.Header.Get("Content-Length"))
				require.Equal(t, "br", resp.Header.Get("Content-Encoding"))
			}
			r, err := s.h2().Do(request(t, method, "http://api.example.com/v1/"+path))
			require.NoError(t, err)
			r.Body.Close()
			require.Equal(t, status, r.StatusCode)
		}
	}
}

func request(t *testing.T, method, url string) *http.Request {
	req, err := http.NewRequestWithContext(t.Context(), method, url, nil)
	require.NoError(t, err)
	return req
}
