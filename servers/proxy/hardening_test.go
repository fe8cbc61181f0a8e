package proxy_test

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fleetthrottle/throttle"
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

// TestSmuggling sends what two parsers may read in two ways. The upstream gets what the proxy has
// read, in one form, or nothing; and what a caller hides in a request is no request.
func TestSmuggling(t *testing.T) {
	got := make(chan string, 10)
	s := newNamedScene(t, false, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/end" {
			w.Header().Set("X-End", "1")
			return
		}
		body, _ := io.ReadAll(r.Body)
		h := r.Header.Clone()
		for _, name := range []string{"Content-Length", "Via", "Accept-Encoding"} {
			h.Del(name)
		}
		got <- fmt.Sprintf("%s %s %s %q %v %d", r.Method, r.Host, r.RequestURI, body, h, r.ContentLength)
	}, nil, rows...)
	const to, hidden = "POST /api.example.com/a HTTP/1.1\nHost: localhost\n", "GET /api.example.com/hidden HTTP/1.1\nHost: localhost\n\n"
	for name, c := range map[string]struct {
		send     string
		statuses []int
		came     []string
	}{
		"two lengths":                {to + "Content-Length: 3\nContent-Length: 4\n\nabcd", []int{400}, nil},
		"two lengths in one field":   {to + "Content-Length: 3, 4\n\nabcd", []int{400}, nil},
		"one length, twice":          {to + "Content-Length: 3\nContent-Length: 3\n\nabc", []int{200}, []string{`POST api.example.com /a "abc" map[] 3`}},
		"a length with a sign":       {to + "Content-Length: +3\n\nabc", []int{400}, nil},
		"a negative length":          {to + "Content-Length: -1\n\nabc", []int{400}, nil},
		"a length in hexadecimal":    {to + "Content-Length: 0x3\n\nabc", []int{400}, nil},
		"an endless length":          {to + "Content-Length: 99999999999999999999\n\nabc", []int{400}, nil},
		"no length":                  {to + "Content-Length: \n\n", []int{400}, nil},
		"chunks beside a length":     {to + "Content-Length: 4\nTransfer-Encoding: chunked\n\n3\nabc\n0\n\n", []int{200}, []string{`POST api.example.com /a "abc" map[] -1`}},
		"requests behind chunks":     {to + "Content-Length: 60\nTransfer-Encoding: chunked\n\n0\n\n" + hidden, []int{200, 200}, []string{`POST api.example.com /a "" map[] -1`, `GET api.example.com /hidden "" map[] 0`}},
		"an unknown encoding":        {to + "Transfer-Encoding: xchunked\n\n3\nabc\n0\n\n", []int{501}, nil},
		"two encodings":              {to + "Transfer-Encoding: gzip, chunked\n\n3\nabc\n0\n\n", []int{501}, nil},
		"encodings in two fields":    {to + "Transfer-Encoding: chunked\nTransfer-Encoding: identity\n\n0\n\n", []int{501}, nil},
		"a vertical tab":             {to + "Transfer-Encoding:\vchunked\n\n0\n\n", []int{400}, nil},
		"a space before the colon":   {to + "Transfer-Encoding : chunked\n\n0\n\n", []int{400}, nil},
		"extensions of chunks":       {to + "Transfer-Encoding: chunked\n\n3;a=b;c=\"d\"\nabc\n0;x\n\n", []int{200}, []string{`POST api.example.com /a "abc" map[] -1`}},
		"a chunk that lies":          {to + "Transfer-Encoding: chunked\n\n2\nabc\n0\n\n", []int{400}, nil},
		"a chunk with a sign":        {to + "Transfer-Encoding: chunked\n\n+3\nabc\n0\n\n", []int{400}, nil},
		"a chunk in odd digits":      {to + "Transfer-Encoding: chunked\n\n0x3\nabc\n0\n\n", []int{400}, nil},
		"an endless chunk":           {to + "Transfer-Encoding: chunked\n\nfffffffffffffffff\nabc\n0\n\n", []int{400}, nil},
		"a folded line":              {to + "X-Fold: a\n b\nContent-Length: 0\n\n", []int{200}, []string{`POST api.example.com /a "" map[X-Fold:[a b]] 0`}},
		"a folded first line":        {"POST /api.example.com/a HTTP/1.1\n X: y\nHost: localhost\n\n", []int{400}, nil},
		"a length in a folded line":  {to + "X: a\n Content-Length: 3\n\n", []int{200}, []string{`POST api.example.com /a "" map[X:[a Content-Length: 3]] 0`}},
		"a NUL in a value":           {to + "X: a\x00b\nContent-Length: 0\n\n", []int{400}, nil},
		"a NUL in a name":            {to + "X\x00: a\nContent-Length: 0\n\n", []int{400}, nil},
		"a NUL in a path":            {"GET /api.example.com/a\x00b HTTP/1.1\nHost: localhost\n\n", []int{400}, nil},
		"a control byte in a path":   {"GET /api.example.com/a\x01b HTTP/1.1\nHost: localhost\n\n", []int{400}, nil},
		"DEL in a path":              {"GET /api.example.com/a\x7fb HTTP/1.1\nHost: localhost\n\n", []int{400}, nil},
		"a space in a path":          {"GET /api.example.com/a b HTTP/1.1\nHost: localhost\n\n", []int{400}, nil},
		"a bare CR in a value":       {to + "X: a\rContent-Length: 3\nContent-Length: 0\n\n", []int{400}, nil},
		"an escaped line end":        {"GET /api.example.com/a%0d%0aX:%20y HTTP/1.1\nHost: localhost\n\n", []int{200}, []string{`GET api.example.com /a%0d%0aX:%20y "" map[] 0`}},
		"two hosts":                  {"GET /api.example.com/a HTTP/1.1\nHost: localhost\nHost: api.example.com\n\n", []int{400}, nil},
		"no host":                    {"GET /api.example.com/a HTTP/1.1\n\n", []int{400}, nil},
		"a host and a path":          {"GET /api.example.com/a HTTP/1.1\nHost: localhost/else\n\n", []int{400}, nil},
		"a user in the host":         {"GET /a HTTP/1.1\nHost: u@api.example.com\n\n", []int{400}, nil},
		"another host in the target": {"GET http://api.example.com/a HTTP/1.1\nHost: odd.example.com\n\n", []int{200}, []string{`GET api.example.com /a "" map[] 0`}},
		"a body of GET":              {"GET /api.example.com/a HTTP/1.1\nHost: localhost\nContent-Length: " + fmt.Sprint(len(crlf(hidden))) + "\n\n" + hidden, []int{200}, []string{fmt.Sprintf("GET api.example.com /a %q map[] %d", crlf(hidden), len(crlf(hidden)))}},
		"a body behind no length":    {to + "\n" + hidden, []int{200, 200}, []string{`POST api.example.com /a "" map[] 0`, `GET api.example.com /hidden "" map[] 0`}},
		"a refused body":             {"POST /else.example.com/a HTTP/1.1\nHost: localhost\nContent-Length: " + fmt.Sprint(len(crlf(hidden))) + "\n\n" + hidden, []int{403}, nil},
		"refused chunks":             {"POST /else.example.com/a HTTP/1.1\nHost: localhost\nTransfer-Encoding: chunked\n\n0\n\n" + hidden, []int{403}, nil},
		"fields of one connection":   {"GET /api.example.com/a HTTP/1.1\nHost: localhost\nConnection: X-Hop, x-Two\nX-Hop: 1\nX-two: 2\nKeep-Alive: 5\nTe: gzip\nX-End: 3\nUpgrade: h2c\n\n", []int{200}, []string{`GET api.example.com /a "" map[X-End:[3]] 0`}},
		"a host of one connection":   {"GET /api.example.com/a HTTP/1.1\nHost: localhost\nConnection: Host, Via, Content-Length, close\n\n", []int{200}, []string{`GET api.example.com /a "" map[] 0`}},
		"what is for the proxy":      {"GET /api.example.com/a HTTP/1.1\nHost: localhost\nProxy-Authorization: Basic eA==\nProxy-Connection: keep-alive\nProxy-Anything: 1\nProxy-Authenticate: x\nAuthorization: mine\n\n", []int{200}, []string{`GET api.example.com /a "" map[Authorization:[mine]] 0`}},
		"what proxies add":           {"GET /api.example.com/a HTTP/1.1\nHost: localhost\nForwarded: for=x\nX-Forwarded-For: 1.2.3.4\nX-Forwarded-Host: evil\nX-Forwarded-Proto: http\n\n", []int{200}, []string{`GET api.example.com /a "" map[] 0`}},
		"a lower-case method":        {"get /api.example.com/a HTTP/1.1\nHost: localhost\n\n", []int{200}, []string{`get api.example.com /a "" map[] 0`}},
		"no method":                  {" /api.example.com/a HTTP/1.1\nHost: localhost\n\n", []int{400}, nil},
		"an old version":             {"GET /api.example.com/a HTTP/0.9\nHost: localhost\n\n", []int{505}, nil},
		"a new version":              {"GET /api.example.com/a HTTP/2.0\nHost: localhost\n\n", []int{505}, nil},
		"a trailer that is a length": {to + "Transfer-Encoding: chunked\nTrailer: Content-Length\n\n0\nContent-Length: 5\n\n", []int{400}, nil},
	} {
		w := s.dial()
		w.send(c.send)
		statuses := w.statuses()
		require.Equal(t, c.statuses, statuses, name)
		require.Len(t, got, len(c.came), name)
		for _, want := range c.came {
			require.Equal(t, want, <-got, name)
		}
	}
}

// statuses reads answers until the connection ends, which it asks for when the first is there.
// It leaves out the answer to that.
func (w *wire) statuses() (all []int) {
	for {
		resp, err := http.ReadResponse(w.from, nil)
		if err != nil {
			return all
		}
		_, err = io.Copy(io.Discard, resp.Body)
		require.NoError(w, err)
		all = append(all, resp.StatusCode)
		switch {
		case resp.Header.Get("X-End") != "":
			return all[:len(all)-1]
		case len(all) == 1 && !resp.Close:
			w.send("GET /api.example.com/end HTTP/1.1\nHost: localhost\n\n")
		}
	}
}

// crlf ends lines as HTTP does.
func crlf(lines string) string { return strings.ReplaceAll(lines, "\n", "\r\n") }

// TestStatusThatIsNone: an upstream that answers with a status that is none has not answered.
func TestStatusThatIsNone(t *testing.T) {
	s := newNamedScene(t, false, func(w http.ResponseWriter, r *http.Request) {
		conn, _, err := http.NewResponseController(w).Hijack()
		require.NoError(t, err)
		defer conn.Close()
		_, err = io.WriteString(conn, "HTTP/1.1 "+r.URL.Query().Get("status")+" Odd\r\nContent-Length: 2\r\n\r\nok")
		require.NoError(t, err)
	}, nil, rows...)
	for _, status := range []string{"000", "099"} {
		s.refused(http.StatusBadGateway, "/api.example.com/v1/?status="+status)
	}
	resp, body := s.get("/api.example.com/v1/?status=999")
	require.Equal(t, "999 ok", resp.Status[:3]+" "+body)
	require.EqualValues(t, 2, s.handler.Stats().Refused["upstream"])
}

// TestUpgradeBeforeAnswer: an upstream of HTTP/2 cannot make a caller believe that the connection is
// another protocol's now.
func TestUpgradeBeforeAnswer(t *testing.T) {
	s := newNamedScene(t, true, func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusSwitchingProtocols)
		_, _ = io.WriteString(w, "ok")
	}, nil, rows...)
	w := s.dial()
	w.send("GET /api.example.com/v1/ HTTP/1.1\nHost: localhost\n\n")
	resp, err := http.ReadResponse(bufio.NewReader(w.Conn), nil)
	require.NoError(t, err)
	require.Equal(t, http.StatusOK, resp.StatusCode)
	body, err := io.ReadAll(resp.Body)
	require.NoError(t, err)
	require.Equal(t, "ok", string(body))
}

// endless reads zeros without end.
type endless struct{}

func (endless) Read(p []byte) (int, error) { clear(p); return len(p), nil }

// TestStalledCallerHoldsNoSlot: a caller that stops in the middle of its body, or does not take its answer, loses its slot to the
// one that waits for the slot.
func TestStalledCallerHoldsNoSlot(t *testing.T) {
	slot := throttle.Policy{Name: "slot", Match: "api.example.com/", Limit: throttle.Concurrency(1)}
	upload := strings.Repeat("a", ahead+1)
	for name, request := range map[string]string{
		"upload":         fmt.Sprintf("POST /api.example.com/x HTTP/1.1\nHost: localhost\nContent-Length: %d\n\n%s", 3*ahead, upload),
		"upload, chunks": fmt.Sprintf("POST /api.example.com/x HTTP/1.1\nHost: localhost\nTransfer-Encoding: chunked\n\n%x\n%s\n", len(upload), upload),
		"expect":         "POST /api.example.com/x HTTP/1.1\nHost: localhost\nExpect: 100-continue\nContent-Length: 100\n\n",
		"answer":         "GET /api.example.com/large HTTP/1.1\nHost: localhost\n\n",
		"tunnel":         "CONNECT api.example.com:80 HTTP/1.1\nHost: x\n\nGET /large HTTP/1.1\nHost: api.example.com\n\n",
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				more := make(chan bool)
				s := newVirtualScene(t, func(w http.ResponseWriter, r *http.Request) {
					if _, err := io.Copy(io.Discard, r.Body); err != nil {
						panic(http.ErrAbortHandler) // half a body is no request
					}
					if r.URL.Path == "/large" {
						_, _ = io.WriteString(w, "x")
						_ = http.NewResponseController(w).Flush()
						<-more
						_, _ = io.Copy(w, io.LimitReader(endless{}, 64<<20))
					}
				}, func(c *proxy.Config) { c.MaxWait, c.CallerIdle = time.Minute, time.Second }, slot)
				w := s.dial()
				w.send(request)
				if name == "tunnel" {
					_, err := http.ReadResponse(w.from, &http.Request{Method: http.MethodConnect})
					require.NoError(t, err)
				}
				s.kind(throttle.EventStarted)

				// Who sends a body takes its answers all the while: net/http may write 100 Continue twice.
				statuses := make(chan int, 3)
				takes := strings.HasPrefix(name, "upload") || name == "expect"
				if takes {
					go func() {
						defer close(statuses)
						for resp, err := http.ReadResponse(w.from, nil); err == nil; resp, err = http.ReadResponse(w.from, nil) {
							statuses <- resp.StatusCode
						}
					}()
				}

				// Once the answer has begun, its rest is written by one goroutine, which a mutex does not keep from sleeping.
				if strings.Contains(request, "/large") {
					resp, err := http.ReadResponse(w.from, nil)
					require.NoError(t, err)
					_, err = io.ReadFull(resp.Body, make([]byte, 1))
					require.NoError(t, err)
					synctest.Wait()
					close(more)
				}

				resp, _ := s.get("/api.example.com/x")
				require.Equal(t, http.StatusOK, resp.StatusCode, "the slot has come back")

				if takes {
					last := 0
					for status := range statuses {
						last = status
					}
					require.Equal(t, http.StatusRequestTimeout, last)
				}
			})
		})
	}
}

// TestSilentUpstream: the silence of an API is not that of its caller: a stream goes on after a pause of any length.
func TestSilentUpstream(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newVirtualScene(t, func(w http.ResponseWriter, _ *http.Request) {
			for i := range 3 {
				_, _ = fmt.Fprintf(w, "data: %d\n\n", i)
				_ = http.NewResponseController(w).Flush()
				time.Sleep(time.Hour)
			}
		}, func(c *proxy.Config) { c.CallerIdle = time.Second }, rows...)

		resp, err := s.do(t.Context(), "GET", "/api.example.com/v1/", nil)
		require.NoError(t, err)
		defer resp.Body.Close()
		for i := range 3 {
			event := make([]byte, len("data: 0\n\n"))
			_, err := io.ReadFull(resp.Body, event)
			require.NoError(t, err)
			require.Equal(t, fmt.Sprintf("data: %d\n\n", i), string(event))
		}
		_, err = resp.Body.Read(make([]byte, 1))
		require.ErrorIs(t, err, io.EOF)
	})
}
