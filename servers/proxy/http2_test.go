package proxy_test

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/cookiejar"
	"net/http/httptrace"
	"net/textproto"
	"net/url"
	"strings"
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

// TestBodiesAreReadByPolicies: over HTTP/1.1 and HTTP/2 a policy may take its key from the body, which arrives whole.
func TestBodiesAreReadByPolicies(t *testing.T) {
	row := at("api.example.com/", 1)
	row.Key = throttle.BodyMember("model")
	s := newNamedScene(t, true, func(w http.ResponseWriter, r *http.Request) { _, _ = io.Copy(w, r.Body) }, func(c *proxy.Config) { c.MaxWait = throttle.NoWait }, row)
	for name, c := range map[string]*http.Client{"2": s.h2(), "1": client} {
		for _, size := range []int{1, 100_000} {
			model := fmt.Sprint("of ", size, " by ", name)
			for _, status := range []int{200, 429} {
				sent := `{"messages":"` + strings.Repeat("x", size) + `","model":"` + model + `"}`
				resp, err := c.Post("http://"+s.address+"/api.example.com/v1/", "application/json", strings.NewReader(sent))
				require.NoError(t, err)
				got, err := io.ReadAll(resp.Body)
				require.NoError(t, err)
				resp.Body.Close()
				require.Equal(t, status, resp.StatusCode, model)
				if status == 200 {
					require.Equal(t, sent, string(got))
				}
			}
		}
	}
	require.Eventually(t, func() bool { return s.handler.Stats().BodyBytes == 0 }, time.Minute, time.Millisecond)
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

// ahead is how much of a body the proxy reads before a request waits.
const ahead = 1 << 20

// TestAnswerBeforeBody: an answer that comes before the end of a body reaches its caller, who may be
// slow or never send the rest; and the connection ends then.
func TestAnswerBeforeBody(t *testing.T) {
	s := newNamedScene(t, false, func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusUnauthorized)
		_, _ = io.WriteString(w, "who?")
	}, nil, at("api.example.com/v1/", 1000), at("api.example.com/none/", 1))
	s.get("/api.example.com/none/")
	begin := strings.Repeat("a", ahead+1)
	for name, request := range map[string]string{
		"length":         fmt.Sprintf("v1/ HTTP/1.1\nHost: localhost\nContent-Length: %d\n\n%s", ahead+100, begin),
		"chunks":         fmt.Sprintf("v1/ HTTP/1.1\nHost: localhost\nTransfer-Encoding: chunked\n\n%x\n%s\n5\na", len(begin), begin),
		"expect":         "v1/ HTTP/1.1\nHost: localhost\nExpect: 100-continue\nContent-Length: 100\n\n",
		"expect, no fit": "none/ HTTP/1.1\nHost: localhost\nExpect: 100-continue\nContent-Length: 100\n\n",
		"no fit":         fmt.Sprintf("none/ HTTP/1.1\nHost: localhost\nContent-Length: %d\n\n%s", ahead+100, begin),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel() // each ends after a second
			w := s.dial()
			require.NoError(t, w.SetDeadline(time.Now().Add(20*time.Second))) // else a body that is awaited would hold the test
			w.send("POST /api.example.com/" + request)
			want := http.StatusUnauthorized
			if strings.HasSuffix(name, "no fit") {
				want = http.StatusTooManyRequests
			}
			resp, err := http.ReadResponse(w.from, nil)
			require.NoError(t, err)
			if resp.StatusCode == http.StatusContinue {
				resp, err = http.ReadResponse(w.from, nil)
				require.NoError(t, err)
			}
			require.Equal(t, want, resp.StatusCode)
			_, err = io.ReadAll(resp.Body)
			require.NoError(t, err)
			_, err = w.from.ReadByte()
			require.ErrorIs(t, err, io.EOF)
		})
	}
}

// TestBodyBehindAnswer: a body that goes on behind the begin of its answer reaches the upstream, all of it.
func TestBodyBehindAnswer(t *testing.T) {
	const rest = 1000
	s := newNamedScene(t, false, func(w http.ResponseWriter, r *http.Request) {
		control := http.NewResponseController(w)
		require.NoError(t, control.EnableFullDuplex())
		require.NoError(t, control.Flush())
		body, err := io.ReadAll(r.Body)
		require.NoError(t, err)
		fmt.Fprint(w, len(body))
	}, nil, rows...)
	w := s.dial()
	require.NoError(t, w.SetDeadline(time.Now().Add(20*time.Second)))
	w.send("POST /api.example.com/v1/ HTTP/1.1\nHost: localhost\nTransfer-Encoding: chunked\n\n")
	w.send(fmt.Sprintf("%x\n%s\n", ahead+1, strings.Repeat("a", ahead+1)))
	resp, err := http.ReadResponse(w.from, nil)
	require.NoError(t, err, "the answer has begun")
	for range rest {
		w.send("1\na\n")
	}
	w.send("0\n\n")
	text, err := io.ReadAll(resp.Body)
	require.NoError(t, err)
	require.Equal(t, fmt.Sprint(ahead+1+rest), string(text))
}

// TestSlowBodyHoldsNoPlace: a caller whose body does not come takes no place among those that wait.
func TestSlowBodyHoldsNoPlace(t *testing.T) {
	s := newNamedScene(t, false, func(http.ResponseWriter, *http.Request) {}, func(c *proxy.Config) { c.Held = 1 }, rows...)
	s.dial().send("POST /api.example.com/v1/ HTTP/1.1\nHost: localhost\nContent-Length: 100\n\nabc")
	require.Eventually(t, func() bool { return s.handler.Stats().BodyBytes > 0 }, time.Minute, time.Millisecond)
	require.Zero(t, s.handler.Stats().Held)
	resp, _ := s.get("/api.example.com/v1/")
	require.Equal(t, http.StatusOK, resp.StatusCode)
}

// TestRefusedUploads: a caller that sends its whole body before it reads, on a connection that it wants closed or not, gets
// its answer, and no reset before or behind it.
func TestRefusedUploads(t *testing.T) {
	s := newNamedScene(t, false, func(w http.ResponseWriter, r *http.Request) { w.WriteHeader(http.StatusTeapot) },
		func(c *proxy.Config) { c.MaxWait = time.Millisecond }, at("api.example.com/v1/", 1000), at("api.example.com/once/", 1))
	s.get("/api.example.com/once/")

	for path, status := range map[string]int{
		"/none.example.com/":       http.StatusForbidden,
		"/api.example.com/v1/%2e.": http.StatusBadRequest,
		"/api.example.com/once/":   http.StatusTooManyRequests,
		"/api.example.com/v1/":     http.StatusTeapot,
	} {
		body := strings.Repeat("a", 3<<20)
		for _, rest := range []string{"Content-Length: 3145728\n\n" + body, "Transfer-Encoding: chunked\n\n300000\n" + body + "\n0\n\n"} {
			for _, wish := range []string{"Connection: close\n", ""} {
				w := s.dial()
				w.send("POST " + path + " HTTP/1.1\nHost: localhost\n" + wish + rest)

				resp, _ := w.answer("POST")
				require.Equal(t, status, resp.StatusCode, path)
				if resp.Close { // what the API has read to its end leaves the connection open
					_, err := w.from.ReadByte()
					require.Equal(t, io.EOF, err, path)
				}
			}
		}
	}
}

// redirects is a scene with an API that redirects to another one, which tells what it has got in X-Got.
func redirects(t *testing.T) *scene {
	return newNamedScene(t, false, func(w http.ResponseWriter, r *http.Request) {
		switch {
		case r.Host == "a.wide.example.com":
			http.SetCookie(w, &http.Cookie{Name: "session", Value: "of-a"})
			http.Redirect(w, r, "https://api.example.com/v1/up", http.StatusTemporaryRedirect)
		case r.URL.Path == "/v1/on":
			w.Header().Set("Link", "</v1/2>; rel=next, <https://api.example.com/v1/3>; rel=last")
			http.Redirect(w, r, "https://odd.example.com:8443/x", http.StatusTemporaryRedirect)
		default:
			w.Header().Set("X-Got", fmt.Sprintf("%q %q", r.Header.Get("Authorization"), r.Header.Get("Cookie")))
			fmt.Fprint(w, "at ", r.Host, r.URL)
		}
	}, nil, rows...)
}

// TestP14_RedirectCarriesNoCredential: a client that follows a redirect from one API to another one is held there, and
// brings neither the Authorization nor the cookies of the first.
func TestP14_RedirectCarriesNoCredential(t *testing.T) {
	s := redirects(t)
	_, port, _ := strings.Cut(s.address, ":")
	jar, err := cookiejar.New(nil)
	require.NoError(t, err)

	for _, name := range []string{"127.0.0.1", "localhost"} {
		begin := "http://" + name + ":" + port + "/a.wide.example.com/x"

		req, err := http.NewRequest(http.MethodGet, begin, nil)
		require.NoError(t, err)
		req.Header.Set("Authorization", secret)
		c := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}, Jar: jar}
		resp, err := c.Do(req)
		require.NoError(t, err)
		text, err := io.ReadAll(resp.Body)
		require.NoError(t, err)
		resp.Body.Close()
		require.Equal(t, "at api.example.com/v1/up", string(text), "by the proxy")
		require.Equal(t, `"" ""`, resp.Header.Get("X-Got"))
		require.NotEmpty(t, resp.Header.Get("Server-Timing"))
		jar, err = cookiejar.New(nil)
		require.NoError(t, err)
	}
}

// TestP14_ChainOfRedirects: the second redirect of a chain does not lead back to the origin of the first API. Clients such
// as curl would send the credential of the first API to the third.
func TestP14_ChainOfRedirects(t *testing.T) {
	s := redirects(t)
	for name, other := range map[string]string{"127.0.0.1": "localhost", "localhost": "127.0.0.1"} {
		first, _ := s.get("/a.wide.example.com/x", "Host: "+name+":7070")
		second := first.Header.Get("Location")
		require.Equal(t, "http://"+other+":7070/-/api.example.com/v1/up", second)

		on, _ := s.get("/-/api.example.com/v1/on", "Host: "+other+":7070")
		third := on.Header.Get("Location")
		require.Equal(t, "http://"+other+":7070/-/odd.example.com:8443/x", third)
		require.Equal(t, "</-/api.example.com/v1/2>; rel=next, <http://"+other+":7070/-/api.example.com/v1/3>; rel=last", on.Header.Get("Link"))

		resp, _ := s.get("/-/odd.example.com:8443/x", "Host: "+other+":7070")
		require.NotEmpty(t, resp.Header.Get("Server-Timing"), "by the proxy")
	}

	resp, _ := s.get("/-/api.example.com/v1/on", "Host: 127.0.0.2:7070")
	require.Equal(t, "https://odd.example.com:8443/x", resp.Header.Get("Location"), "an address without a second name")
	for _, path := range []string{"/-", "/-/", "/-/-/api.example.com/v1/", "/-/else.example.com/"} {
		resp, _ := s.get(path)
		require.GreaterOrEqual(t, resp.StatusCode, 400, path)
	}
}

// TestRedirectByProxy: with HTTP_PROXY a link of https to another API stays one of https, and is told; one of http comes to the
// proxy as it is.
func TestRedirectByProxy(t *testing.T) {
	s := redirects(t)
	proxied, err := url.Parse("http://" + s.address)
	require.NoError(t, err)
	c := &http.Client{
		Transport:     &http.Transport{Proxy: http.ProxyURL(proxied), DisableKeepAlives: true},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}

	resp, err := c.Get("http://a.wide.example.com/x")
	require.NoError(t, err)
	resp.Body.Close()
	require.Equal(t, "https://api.example.com/v1/up", resp.Header.Get("Location"))
	require.EqualValues(t, 1, s.handler.Stats().LinksRound)
}

// TestRedirectElsewhere: where the proxy has no second name, the link stays as the API has sent it.
func TestRedirectElsewhere(t *testing.T) {
	s := redirects(t)
	for _, host := range []string{"127.0.0.2:7070", "a.wide.example.com"} {
		target := "/a.wide.example.com/x"
		if host == "a.wide.example.com" {
			target = "/x"
		}
		resp, _ := s.ask("GET", target+" HTTP/1.1\nHost: "+host+"\n\n")
		require.Equal(t, "https://api.example.com/v1/up", resp.Header.Get("Location"), host)
	}
}
