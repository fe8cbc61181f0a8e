package proxy_test

import (
	"bufio"
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptrace"
	"net/url"
	"os"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fleetthrottle/throttle"
	"github.com/fleetthrottle/throttle/feedback"
	"github.com/fleetthrottle/throttle/servers/proxy"
)

// tunnel opens a tunnel.
func (s *scene) tunnel(to string, headers ...string) *wire {
	s.Helper()
	w := s.dial()
	w.send("CONNECT " + to + " HTTP/1.1\nHost: " + to + "\n")
	for _, h := range headers {
		w.send(h + "\n")
	}
	w.send("\n")
	resp, err := http.ReadResponse(w.from, &http.Request{Method: "CONNECT"})
	require.NoError(s, err)
	require.Equal(s, 200, resp.StatusCode)
	return w
}

// secure begins TLS in a tunnel.
func (w *wire) secure() (*tls.Conn, error) {
	conn := tls.Client(w.Conn, &tls.Config{RootCAs: w.roots, ServerName: "example.com"})
	return conn, conn.Handshake()
}

// secureClient is a client that has TLS in tunnels.
func (s *scene) secureClient() *http.Client {
	at, err := url.Parse("http://" + s.address)
	require.NoError(s, err)
	t := &http.Transport{Proxy: http.ProxyURL(at), TLSClientConfig: &tls.Config{RootCAs: s.roots}}
	s.Cleanup(t.CloseIdleConnections)
	return &http.Client{Transport: t}
}

// carried is a change of a configuration, by which tunnels of TLS to these hosts are carried.
func carried(policies []throttle.Policy, hosts ...string) func(*proxy.Config) {
	table := proxy.NewTable(policies, hosts...)
	return func(c *proxy.Config) { c.Table = func() *proxy.Table { return table } }
}

// TestP16_TunnelsOfTLS: a limit of a host never counts connections in silence. A tunnel of TLS to a host of the
// policies is refused, the answer and the operator are told what to write, and no start is spent.
func TestP16_TunnelsOfTLS(t *testing.T) {
	shadow := at("only-counted.example.com/", 1)
	shadow.Shadow = true
	policies := []throttle.Policy{at("api.example.com/", 1), at("*.wide.example.com/", 1), at("odd.example.com:8443/", 1), shadow}

	refusals := make(chan string, 10)
	s := newNamedScene(t, false, func(http.ResponseWriter, *http.Request) { t.Error("the upstream was reached") }, func(c *proxy.Config) {
		c.BlindTunnel = func(detail string) { refusals <- detail }
	}, policies...)

	for _, host := range []string{"api.example.com", "API.example.com.", "a.wide.example.com", "only-counted.example.com"} {
		resp, body := s.ask("CONNECT", host+":443 HTTP/1.1\nHost: x\n\n")
		require.Equal(t, 403, resp.StatusCode, host)
		detail := s.problem(resp, body)["detail"]
		require.Contains(t, detail, `"tunnels" of the policy file does not list the host`)
		require.Contains(t, detail, "use http://"+s.address+"/"+host+"/ as the base URL")
		require.Equal(t, detail, <-refusals)
	}

	_, err := s.tunnel("odd.example.com:8443").secure()
	require.ErrorContains(t, err, "access denied")

	for _, host := range []string{"else.example.com:443", "else.example.com:80", "api.example.com:22"} {
		resp, _ := s.ask("CONNECT", host+" HTTP/1.1\nHost: x\n\n")
		require.Equal(t, 403, resp.StatusCode, "no policy names %s", host)
	}
	require.Empty(t, s.events)
}

// TestTunnelOfTLS: where the file says that a host's tunnels are carried, a connection of TLS has one start, whatever
// the connection carries.
func TestTunnelOfTLS(t *testing.T) {
	policies := []throttle.Policy{at("api.example.com/", 2), at("odd.example.com:8443/", 1)}
	s := newNamedScene(t, false, told, carried(policies, "API.example.com.", "odd.example.com:8443"), policies...)
	c := s.secureClient()
	for range 3 {
		resp, err := c.Get("https://api.example.com/x?y=%7e")
		require.NoError(t, err)
		io.Copy(io.Discard, resp.Body)
		resp.Body.Close()
		require.Equal(t, "api.example.com /x?y=%7e", resp.Header.Get("X-Came"))
		require.Empty(t, resp.Header.Get("Server-Timing"))
	}
	c.CloseIdleConnections()
	resp, err := c.Get("https://api.example.com/")
	require.NoError(t, err)
	resp.Body.Close()
	c.CloseIdleConnections()
	resp, body := s.ask("CONNECT", "api.example.com:443 HTTP/1.1\nHost: x\n\n")
	require.Equal(t, 429, resp.StatusCode)
	require.NotEmpty(t, resp.Header.Get("Retry-After"))
	require.Equal(t, "api.example.com/", s.problem(resp, body)["policy"])

	_, err = s.tunnel("odd.example.com:8443").secure()
	require.NoError(t, err)
	_, err = s.tunnel("odd.example.com:8443").secure()
	require.ErrorContains(t, err, "access denied", "the first bytes have decided, so only TLS can say that there is no room")
}

// TestTunnelOfHTTP: plain HTTP in a tunnel is served request by request, and goes on by https.
func TestTunnelOfHTTP(t *testing.T) {
	s := newNamedScene(t, false, told, nil, at("api.example.com/v1/", 3), at("odd.example.com:8443/", 9))
	for to, came := range map[string]string{"api.example.com:80": "api.example.com", "odd.example.com:80": "odd.example.com", "odd.example.com:8443": "odd.example.com:8443"} {
		w := s.tunnel(to)
		for _, path := range odd {
			w.send("GET " + path + " HTTP/1.1\nHost: " + came + "\n\n")
			resp, _ := w.answer("GET")
			require.Equal(t, came+" "+path, resp.Header.Get("X-Came"))
			if len(odd) > 3 && to != "api.example.com:80" {
				break
			}
		}
		w.send("GET http://" + came + "/absolute HTTP/1.1\nHost: " + came + "\n\n")
		resp, _ := w.answer("GET")
		require.Equal(t, came+" /absolute", resp.Header.Get("X-Came"))
		for _, lines := range []string{"GET / HTTP/1.1\nHost: else.example.com\n\n", "GET http://else.example.com/ HTTP/1.1\nHost: " + came + "\n\n"} {
			w.send(lines)
			resp, body := w.answer("GET")
			require.Equal(t, 421, resp.StatusCode)
			s.problem(resp, body)
		}
	}
	w := s.tunnel("api.example.com:80")
	for _, status := range []int{200, 200, 200, 429} {
		w.send("GET /v1/x HTTP/1.1\nHost: api.example.com\n\n")
		resp, _ := w.answer("GET")
		require.Equal(t, status, resp.StatusCode)
	}
	w.send("CONNECT api.example.com:80 HTTP/1.1\nHost: api.example.com\n\n")
	resp, _ := w.answer("GET")
	require.Equal(t, 403, resp.StatusCode)
}

// TestTunnelPipelined: a caller may send its first request before it has read that the tunnel is there.
func TestTunnelPipelined(t *testing.T) {
	s := newNamedScene(t, false, told, nil, rows...)
	w := s.dial()
	w.send("CONNECT api.example.com:80 HTTP/1.1\nHost: x\n\nGET /early HTTP/1.1\nHost: api.example.com\n\n")
	resp, err := http.ReadResponse(w.from, &http.Request{Method: "CONNECT"})
	require.NoError(t, err)
	require.Equal(t, 200, resp.StatusCode)
	resp, _ = w.answer("GET")
	require.Equal(t, "api.example.com /early", resp.Header.Get("X-Came"))
}

// TestBlindTunnel: TLS is refused where a policy would see nothing, and the answer says what to use.
func TestBlindTunnel(t *testing.T) {
	key, cost, read, meter := at("x/", 9), at("x/", 9), at("x/", 9), at("x/", 9)
	key.Key = throttle.Header("Authorization")
	cost.Cost = func(*http.Request) int { return 1 }
	read.Answer = feedback.Codes{Fields: []string{"errcode"}}.Answer
	meter.Meter = func(*http.Response) throttle.Meter { return nil }
	adaptive := at("x/", 9)
	adaptive.Adaptive = true
	for reads, p := range map[string]throttle.Policy{
		"paths": at("x/v1/", 9), "methods": at("POST x/", 9), "a key": key, "the cost": cost, "answers": read,
		"answers ": meter, "answers  ": adaptive, "paths ": at("x/{$}", 9),
	} {
		p.Name = "row"
		for _, host := range []string{"api.example.com", ""} { // the second: the policy is for every host
			pattern := p
			method, rest := "", pattern.Match
			if pattern.Match[0] != 'x' {
				method, rest = "POST ", rest[len("POST "):]
			}
			pattern.Match = method + host + rest[1:]
			told := make(chan string, 2)
			s := newNamedScene(t, false, func(http.ResponseWriter, *http.Request) { t.Error("the upstream was reached") },
				func(c *proxy.Config) { c.BlindTunnel = func(detail string) { told <- detail } }, at("api.example.com/", 9), pattern)
			resp, body := s.ask("CONNECT", "api.example.com:443 HTTP/1.1\nHost: x\n\n")
			require.Equal(t, 403, resp.StatusCode, pattern.Match)
			refusal := s.problem(resp, body)
			require.Equal(t, "row", refusal["policy"])
			require.Equal(t, <-told, refusal["detail"])
			require.Contains(t, refusal["detail"], "http://"+s.address+"/api.example.com/ as the base URL")
			require.Contains(t, refusal["detail"], "http://api.example.com/ by this proxy")
			require.Contains(t, refusal["detail"], reads[:4])
			_, err := s.tunnel("api.example.com:80").secure()
			require.ErrorContains(t, err, "access denied")
			require.Equal(t, <-told, refusal["detail"])
		}
	}
}

// TestNotBlind: policies of other hosts, policies in Shadow, and penalties that nobody asked for keep no tunnel shut.
func TestNotBlind(t *testing.T) {
	listed := []string{"api.example.com", "api.example.com:8443", "else.example.com"}
	shadow, none, usual := at("api.example.com/v1/", 9), at("api.example.com/", 9), at("*.example.com/", 9)
	shadow.Shadow, none.Answer, usual.Answer = true, feedback.LeaveOpen, throttle.RetryAfter
	shadow.Answer = feedback.Codes{Fields: []string{"errcode"}}.Answer
	policies := []throttle.Policy{shadow, none, usual, at("else.example.com/v1/", 9), at("api.example.com:8443/v1/", 9)}
	s := newNamedScene(t, false, told, carried(policies, listed...), policies...)
	resp, err := s.secureClient().Get("https://api.example.com/v1/x")
	require.NoError(t, err)
	resp.Body.Close()
	require.Equal(t, "api.example.com /v1/x", resp.Header.Get("X-Came"))
	resp, body := s.ask("CONNECT", "else.example.com:443 HTTP/1.1\nHost: x\n\n")
	require.Equal(t, 403, resp.StatusCode, body)
	_, err = s.tunnel("api.example.com:8443").secure()
	require.ErrorContains(t, err, "access denied")
}

// TestNoTable: a handler that knows only which hosts there are carries no TLS.
func TestNoTable(t *testing.T) {
	s := newNamedScene(t, false, told, func(c *proxy.Config) { c.Hosts, c.Table = c.Table().Has, nil }, at("api.example.com/", 9), at("odd.example.com:8443/", 9))
	resp, body := s.ask("CONNECT", "api.example.com:443 HTTP/1.1\nHost: x\n\n")
	require.Equal(t, 403, resp.StatusCode, body)
	resp, _ = s.ask("GET", "http://api.example.com/x HTTP/1.1\nHost: x\n\n")
	require.Equal(t, "api.example.com /x", resp.Header.Get("X-Came"))
	resp, _ = s.ask("GET", "http://odd.example.com/x HTTP/1.1\nHost: x\n\n")
	require.Equal(t, 403, resp.StatusCode)
}

// TestTunnelIsGuarded: a name that leads inside is refused when its tunnel is dialled.
func TestTunnelIsGuarded(t *testing.T) {
	s := &scene{T: t, upstream: "upstream", events: make(chan throttle.Event, 100)}
	policies := []throttle.Policy{at("localhost/", 9), at("169.254.169.254/", 9)}
	s.serve(proxy.NewBase(), policies, carried(policies, "localhost", "169.254.169.254"))
	for _, host := range []string{"localhost:443", "169.254.169.254:443"} {
		resp, body := s.ask("CONNECT", host+" HTTP/1.1\nHost: x\n\n")
		require.Equal(t, 403, resp.StatusCode)
		require.Contains(t, s.problem(resp, body)["detail"], "not public")
		require.NotEmpty(t, resp.Header.Get("Server-Timing"))
	}
}

// TestTunnelAdmission: CONNECT is refused as other requests are.
func TestTunnelAdmission(t *testing.T) {
	policies := []throttle.Policy{at("api.example.com/", 9)}
	s := newNamedScene(t, false, told, func(c *proxy.Config) {
		carried(policies, "api.example.com")(c)
		c.Tunnels = 1
	}, policies...)
	for headers, status := range map[string]int{"Sec-Fetch-Site: cross-site": 403, "Via: 1.1 throttle": 508, "Content-Length: 3": 400, "Transfer-Encoding: chunked": 400} {
		w := s.dial()
		w.send("CONNECT api.example.com:443 HTTP/1.1\nHost: x\n" + headers + "\n\n")
		resp, err := http.ReadResponse(w.from, nil)
		require.NoError(t, err)
		require.Equal(t, status, resp.StatusCode, headers)
	}
	open := s.tunnel("api.example.com:443")
	resp, body := s.ask("CONNECT", "api.example.com:443 HTTP/1.1\nHost: x\n\n")
	require.Equal(t, 503, resp.StatusCode)
	require.Contains(t, s.problem(resp, body)["detail"], "tunnels")
	open.Conn.Close()
	require.Eventually(t, func() bool {
		w := s.dial()
		defer w.Conn.Close()
		w.send("CONNECT api.example.com:443 HTTP/1.0\n\n")
		resp, err := http.ReadResponse(w.from, nil)
		return err == nil && resp.StatusCode == 200
	}, time.Minute, time.Millisecond)
}

// TestTunnelHolds: a caller that leaves while its tunnel is held gives its place back; and a slot is taken while a tunnel is there.
func TestTunnelHolds(t *testing.T) {
	for _, authority := range []string{"api.example.com:443", "api.example.com:8443"} {
		slot := throttle.Policy{Name: "slots", Match: "api.example.com/", Limit: throttle.Concurrency(1)}
		policies := []throttle.Policy{slot, at("api.example.com:8443/", 100), at("api.example.com:443/", 100)}
		s := newNamedScene(t, false, told, func(c *proxy.Config) {
			carried(policies, authority)(c)
			c.MaxWait = time.Hour
		}, policies...)
		first, err := s.tunnel(authority).secure()
		require.NoError(t, err)
		s.kind(throttle.EventStarted)
		second := s.dial()
		second.send("CONNECT " + authority + " HTTP/1.1\nHost: x\n\n")
		if authority == "api.example.com:8443" {
			_, err := http.ReadResponse(second.from, &http.Request{Method: "CONNECT"})
			require.NoError(t, err)
			second.Conn.Write([]byte{0x16, 3, 1, 0, 1})
		}
		s.kind(throttle.EventWaiting)
		second.Conn.Close()
		s.kind(throttle.EventGaveUp)
		first.Close()
		_, err = s.tunnel(authority).secure()
		require.NoError(t, err)
	}
}

// TestUpgradeInTunnel: a WebSocket of a program with HTTP_PROXY is plain HTTP in a tunnel.
func TestUpgradeInTunnel(t *testing.T) {
	s := newNamedScene(t, false, func(w http.ResponseWriter, _ *http.Request) {
		conn, rw, err := http.NewResponseController(w).Hijack()
		if err != nil {
			return
		}
		defer conn.Close()
		io.WriteString(conn, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n")
		line, _ := rw.ReadString('\n')
		io.WriteString(conn, "echo "+line)
	}, nil, rows...)
	w := s.tunnel("api.example.com:80")
	w.send("GET /v1/ HTTP/1.1\nHost: api.example.com\nConnection: Upgrade\nUpgrade: websocket\n\n")
	resp, err := http.ReadResponse(w.from, nil)
	require.NoError(t, err)
	require.Equal(t, 101, resp.StatusCode)
	w.send("hello\n")
	line, err := w.from.ReadString('\n')
	require.NoError(t, err)
	require.Equal(t, "echo hello\r\n", line)
}

// TestTunnelHalfClosed: a caller that has sent everything still gets the answer.
func TestTunnelHalfClosed(t *testing.T) {
	policies := []throttle.Policy{at("api.example.com/", 9)}
	s := newNamedScene(t, false, told, carried(policies, "api.example.com"), policies...)
	conn, err := s.tunnel("api.example.com:443").secure()
	require.NoError(t, err)
	io.WriteString(conn, "GET /x HTTP/1.0\r\n\r\n")
	require.NoError(t, conn.NetConn().(*net.TCPConn).CloseWrite())
	resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
	require.NoError(t, err)
	require.Equal(t, 200, resp.StatusCode)
}

// TestShutdown ends what callers have taken over: a tunnel of TLS, one of HTTP when its request
// has its answer, one without a first byte, and a WebSocket. Then there are no new ones.
func TestShutdown(t *testing.T) {
	arrived, answer := make(chan bool), make(chan bool)
	policies := []throttle.Policy{at("api.example.com/", 100)}
	s := newNamedScene(t, false, func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Upgrade") == "" {
			arrived <- true
			<-answer
			return
		}
		conn, _, err := http.NewResponseController(w).Hijack()
		if err == nil {
			defer conn.Close()
			io.WriteString(conn, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n")
			io.Copy(io.Discard, conn)
		}
	}, carried(policies, "api.example.com"), policies...)
	silent, plain, idle, socket := s.tunnel("api.example.com:80"), s.tunnel("api.example.com:80"), s.tunnel("api.example.com:80"), s.dial()
	secure, err := s.tunnel("api.example.com:443").secure()
	require.NoError(t, err)
	idle.send("GET /gone HTTP/1.1\nHost: else.example.com\n\n")
	idle.answer("GET")
	plain.send("GET /x HTTP/1.1\nHost: api.example.com\n\n")
	<-arrived
	const upgrade = "GET /api.example.com/ HTTP/1.1\nHost: localhost\nConnection: Upgrade\nUpgrade: websocket\n\n"
	socket.send(upgrade)
	resp, err := http.ReadResponse(socket.from, nil)
	require.NoError(t, err)
	require.Equal(t, 101, resp.StatusCode)

	ended := make(chan error)
	go func() { ended <- s.handler.Shutdown(context.Background()) }()
	for _, r := range []io.Reader{silent.from, idle.from, socket.from, secure} {
		_, err := r.Read(make([]byte, 1))
		require.Error(t, err)
	}
	answer <- true
	resp, _ = plain.answer("GET")
	require.Equal(t, 200, resp.StatusCode)
	require.NoError(t, <-ended)
	require.NoError(t, s.handler.Shutdown(context.Background()))

	late := s.dial()
	late.send("CONNECT api.example.com:80 HTTP/1.1\nHost: x\n\n")
	io.Copy(io.Discard, late.from)
	again := s.dial()
	again.send(upgrade)
	resp, err = http.ReadResponse(again.from, nil)
	require.NoError(t, err)
	require.Equal(t, 503, resp.StatusCode)
}

// TestShutdownCuts: what does not end in time is cut.
func TestShutdownCuts(t *testing.T) {
	arrived := make(chan bool)
	s := newNamedScene(t, false, func(w http.ResponseWriter, r *http.Request) { arrived <- true; <-r.Context().Done() }, nil, at("api.example.com/", 100))
	w := s.tunnel("api.example.com:80")
	w.send("GET /x HTTP/1.1\nHost: api.example.com\n\n")
	<-arrived
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	require.ErrorIs(t, s.handler.Shutdown(ctx), context.Canceled)
	_, err := w.from.ReadByte()
	require.Error(t, err)
}

// TestTunnelBaseHooks: a base calls the hooks by which starts are checked.
func TestTunnelBaseHooks(t *testing.T) {
	s := newNamedScene(t, false, told, nil, rows...)
	base := proxy.NewBase("127.0.0.1")
	var called []string
	ctx := httptrace.WithClientTrace(t.Context(), &httptrace.ClientTrace{
		GetConn: func(at string) { called = append(called, "get "+at) }, GotConn: func(i httptrace.GotConnInfo) { called = append(called, "got "+i.Conn.RemoteAddr().String()) },
		WroteHeaders: func() { called = append(called, "wrote") },
	})
	req := (&http.Request{Method: "CONNECT", URL: &url.URL{Scheme: "tunnel", Host: s.upstream, Path: "/"}, Header: http.Header{}}).WithContext(ctx)
	resp, err := base.RoundTrip(req)
	require.NoError(t, err)
	resp.Body.Close()
	require.Equal(t, []string{"get " + s.upstream, "got " + s.upstream, "wrote"}, called)
}

// TestPlainAt443: plain HTTP in a tunnel to the port of TLS is served, and not carried.
func TestPlainAt443(t *testing.T) {
	policies := []throttle.Policy{at("api.example.com/", 2)}
	s := newNamedScene(t, false, told, carried(policies, "api.example.com"), policies...)
	w := s.tunnel("api.example.com:443")
	for _, status := range []int{200, 429} { // the tunnel has had a start as well
		w.send("GET /x HTTP/1.1\nHost: api.example.com\n\n")
		resp, _ := w.answer("GET")
		require.Equal(t, status, resp.StatusCode)
	}
}

// Clients whose addresses differ. The last two are one: they are in the same /64.
const (
	greedy  = "192.0.2.1:1000"
	other   = "192.0.2.2:1000"
	fresh   = "[::ffff:192.0.2.3]:1000"
	third   = "[2001:db8::1]:1000"
	third64 = "[2001:db8::2]:1000"
)

// newTunnelScene is a virtual scene with a bound of tunnels, in which a path "/slow" has its answer after a minute.
func newTunnelScene(t *testing.T, most int) *scene {
	policies := []throttle.Policy{at("api.example.com/", 1000)}
	return newVirtualScene(t, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/slow" {
			time.Sleep(time.Minute)
		}
		told(w, r)
	}, func(c *proxy.Config) {
		carried(policies, "api.example.com")(c)
		c.Tunnels, c.MaxWait = most, time.Hour
	}, policies...)
}

// tunnelFrom opens a tunnel for a client, or returns nil if there is none for the client.
func (s *scene) tunnelFrom(client, to string) *wire {
	s.Helper()
	s.front.from = client
	w := s.dial()
	w.send("CONNECT " + to + " HTTP/1.1\nHost: " + to + "\n\n")
	resp, err := http.ReadResponse(w.from, &http.Request{Method: "CONNECT"})
	require.NoError(s, err)
	if resp.StatusCode == http.StatusServiceUnavailable {
		require.NotEmpty(s, resp.Header.Get("Retry-After"))
		return nil
	}
	require.Equal(s, 200, resp.StatusCode)
	return w
}

// isOpen reports whether the proxy has left a tunnel open on which nothing is under way.
func (w *wire) isOpen() bool {
	w.Helper()
	synctest.Wait()

	_ = w.Conn.SetReadDeadline(time.Now().Add(time.Microsecond)) // which fails if the tunnel has ended
	_, err := w.from.Peek(1)
	require.Error(w, err)
	_ = w.Conn.SetReadDeadline(time.Time{})
	return errors.Is(err, os.ErrDeadlineExceeded)
}

// use sends a request in a tunnel, and reads its answer.
func (w *wire) use() {
	w.Helper()
	w.send("GET / HTTP/1.1\nHost: api.example.com\n\n")
	resp, _ := w.answer("GET")
	require.Equal(w, 200, resp.StatusCode)
}

// overTLS returns a tunnel with TLS in it.
func (w *wire) overTLS() *wire {
	w.Helper()
	conn, err := w.secure()
	require.NoError(w, err)
	return &wire{w.scene, conn, bufio.NewReader(conn)}
}

// fill takes tunnels for a client, a second apart, and uses each once. The port says whether they carry TLS.
func (s *scene) fill(client, port string, n int) (all []*wire) {
	s.Helper()
	for range n {
		w := s.tunnelFrom(client, "api.example.com"+port)
		require.NotNil(s, w)
		if port == ":443" {
			w = w.overTLS()
		}
		w.use()
		all = append(all, w)
		time.Sleep(time.Second)
	}
	return all
}

// requireEnded requires that of these tunnels some have ended, by their place, and no others.
func requireEnded(t *testing.T, all []*wire, ended ...int) {
	t.Helper()
	for i, w := range all {
		require.Equal(t, !slices.Contains(ended, i), w.isOpen(), "tunnel %d", i)
	}
}

// TestP12_IdleTunnelsMakeRoom: a client that has all tunnels and does not use them leaves one to another client at once,
// the one that was idle for longest. A tunnel that was in use a moment ago stays.
func TestP12_IdleTunnelsMakeRoom(t *testing.T) {
	for _, port := range []string{":80", ":443"} {
		synctest.Test(t, func(t *testing.T) {
			s := newTunnelScene(t, 4)
			held := s.fill(greedy, port, 4)
			require.Nil(t, s.tunnelFrom(other, "api.example.com"+port), "the tunnels were in use a moment ago")

			time.Sleep(6 * time.Second)
			begun := time.Now()
			require.NotNil(t, s.tunnelFrom(other, "api.example.com"+port))
			require.Zero(t, time.Since(begun))
			requireEnded(t, held, 0)
			require.EqualValues(t, 1, s.handler.Stats().TunnelsEnded)

			require.NotNil(t, s.tunnelFrom(greedy, "api.example.com"+port), "a client takes its own idle tunnels")
			requireEnded(t, held, 0, 1)
		})
	}
}

// TestP12_TunnelsAreShared: room comes from the client with the most tunnels, and nobody takes it from a client that has
// no more than the one who asks.
func TestP12_TunnelsAreShared(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newTunnelScene(t, 6)
		few := s.fill(other, ":80", 1)
		many := s.fill(greedy, ":80", 3)
		some := s.fill(third, ":80", 2)
		time.Sleep(6 * time.Second)

		require.NotNil(t, s.tunnelFrom(fresh, "api.example.com:80"))
		requireEnded(t, few)
		requireEnded(t, many, 0)
		require.NotNil(t, s.tunnelFrom(third64, "api.example.com:80"), "nobody has more than the client")
		requireEnded(t, some, 0)
		requireEnded(t, many, 0)

		time.Sleep(time.Second)
		for _, w := range append(some[1:], many[1:]...) {
			w.use()
		}
		require.Nil(t, s.tunnelFrom(greedy, "api.example.com:80"), "what is idle is the one tunnel of a client that has fewer")
		requireEnded(t, few)
	})
}

// TestP12_AwaitedTunnelsEndLast: a tunnel in which the caller waits for an answer ends after those in which nobody waits.
func TestP12_AwaitedTunnelsEndLast(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newTunnelScene(t, 3)
		awaited := s.fill(greedy, ":80", 1)[0]
		awaited.send("GET /slow HTTP/1.1\nHost: api.example.com\n\n")
		time.Sleep(time.Second)
		idle := s.fill(greedy, ":80", 2)
		time.Sleep(6 * time.Second)

		for i := range idle {
			require.NotNil(t, s.tunnelFrom(other, "api.example.com:80"))
			requireEnded(t, idle[:i+1], []int{0, 1}[:i+1]...)
			time.Sleep(6 * time.Second)
		}
		resp, _ := awaited.answer("GET")
		require.Equal(t, 200, resp.StatusCode)
	})
}
