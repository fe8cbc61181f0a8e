package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fleetthrottle/throttle"
	"github.com/fleetthrottle/throttle/internal/lab/redistest"
	absence "github.com/fleetthrottle/throttle/internal/outage"
	"github.com/fleetthrottle/throttle/memstore"
	"github.com/fleetthrottle/throttle/servers/proxy"
	"github.com/fleetthrottle/throttle/store"
)

// A served is a proxy that runs as a process of its own.
type served struct {
	*testing.T
	cmd      *exec.Cmd
	talk     *bufio.Reader
	baseURL  string // "http://127.0.0.1:7070/"
	adminURL string
}

// startProxy starts a proxy that follows a file, or what is pushed if file is "", and may reach the
// host 127.0.0.1.
func startProxy(t *testing.T, file string, flags ...string) *served {
	args := []string{"proxy", "--listen", "127.0.0.1:0", "--private", "127.0.0.1", "--admin", "127.0.0.1:0"}
	if file != "" {
		args = append(args, file)
	}
	cmd, _ := startCommand(t, commandVariable, append(args, flags...)...)
	talk, err := cmd.StderrPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	t.Cleanup(func() { _ = cmd.Process.Kill() })
	s := &served{T: t, cmd: cmd, talk: bufio.NewReader(talk)}
	line := s.line("the admin is at ")
	s.adminURL = strings.TrimSuffix(line[strings.Index(line, "http://"):], "readyz\n")
	line = s.line("the proxy is at ")
	if strings.Contains(line, "http://") {
		s.baseURL = strings.TrimSuffix(line[strings.Index(line, "http://"):], "HOST/\n")
	}
	return s
}

// askAdmin returns the status and the text of a page of the admin.
func (s *served) askAdmin(path string) (status int, text string) {
	resp, err := http.Get(s.adminURL + path)
	require.NoError(s, err)
	defer resp.Body.Close()
	all, err := io.ReadAll(resp.Body)
	require.NoError(s, err)
	return resp.StatusCode, string(all)
}

// newUpstream starts an upstream that proxies trust, and returns its host and port.
func newUpstream(t *testing.T, f http.HandlerFunc) string {
	upstream := httptest.NewTLSServer(f)
	t.Cleanup(upstream.Close)
	return upstream.Listener.Addr().String()
}

// newFile returns the path of a file with one policy for a host.
func newFile(t *testing.T, host, limit string) string {
	path := filepath.Join(t.TempDir(), "policies.yaml")
	text := fmt.Sprintf("version: 1\npolicies:\n  - {name: api, match: \"%s/\", limit: %s}\n", host, limit)
	require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
	return path
}

// line reads stderr up to a line with a text.
func (s *served) line(with string) string {
	for {
		line, err := s.talk.ReadString('\n')
		require.NoError(s, err)
		if strings.Contains(line, with) {
			return line
		}
	}
}

// get returns the status of a request.
func (s *served) get(path string) int {
	resp, err := http.Get(s.baseURL + path)
	require.NoError(s, err)
	resp.Body.Close()
	return resp.StatusCode
}

// detail returns the answer of a request that the proxy refuses.
func (s *served) detail(path string) string {
	resp, err := http.Get(s.baseURL + path)
	require.NoError(s, err)
	defer resp.Body.Close()
	require.Equal(s, http.StatusForbidden, resp.StatusCode)
	text, err := io.ReadAll(resp.Body)
	require.NoError(s, err)
	return string(text)
}

// TestProxy: two proxies share a budget, follow their file, and end when they are told to.
func TestProxy(t *testing.T) {
	t.Parallel()
	at := "--redis=" + redistest.Single(t).URL()
	var arrived atomic.Int64
	host := newUpstream(t, func(http.ResponseWriter, *http.Request) { arrived.Add(1) })

	file := filepath.Join(t.TempDir(), "policies.yaml")
	write := func(hosts ...string) {
		text := "version: 1\npolicies:\n"
		for i, host := range hosts {
			text += fmt.Sprintf("  - {name: api%d, match: \"%s/\", limit: 3/h}\n", i, host)
		}
		require.NoError(t, os.WriteFile(file, []byte(text), 0o600))
	}
	write(host)
	a, b := startProxy(t, file, at), startProxy(t, file, at)
	for _, s := range []*served{a, b, a} {
		require.Equal(t, http.StatusOK, s.get(host+"/x"))
	}
	require.Equal(t, http.StatusTooManyRequests, a.get(host+"/x"))
	require.Equal(t, http.StatusTooManyRequests, b.get(host+"/x"))
	require.EqualValues(t, 3, arrived.Load())
	require.Equal(t, 2, strings.Count(must(t, "status", at), "throttle-proxy"))

	require.Contains(t, a.detail("localhost:1/"), "no policy names this host")
	write(host, "localhost:1")
	a.line("is in force")
	require.Contains(t, a.detail("localhost:1/"), "not public")
	for _, s := range []*served{a, b} {
		require.NoError(t, s.cmd.Process.Signal(syscall.SIGTERM))
		require.NoError(t, s.cmd.Wait())
	}
}

// TestProxyUsage: what is unsafe, or has no meaning, is refused before anything is served.
func TestProxyUsage(t *testing.T) {
	const good = "../../policyfile/testdata/good.yaml"
	for _, args := range [][]string{
		{good, "--listen", "0.0.0.0:7070"}, {good, "--listen", ":7070"}, {good, "--listen", "[::]:7070"}, {good, "--listen", "example.com:7070"}, {good, "--listen", "7070"},
		{good, "--redis", "redis+moon://127.0.0.1:1"}, {good, "--listen", "127.0.0.1:0", "--token-file", "nothing"}, {good, "--listen", "127.0.0.1:0", "--token-file", "testdata/empty"}, {good, "--listen", "127.0.0.1:0", "--token-file", "go.mod"},
		{good, "--listen", "0.0.0.0:0", "--expose"}, {good, "--listen", "unix:" + good}, {good, "--listen", "unix:/nowhere/at/all"},
		{"nothing.yaml"}, {"../../policyfile/testdata/bad.yaml"}, {},
	} {
		require.Equal(t, exitUsage, run(t.Context(), append([]string{"proxy"}, args...), new(sink), new(sink)), "%v", args)
	}
}

// trusted starts an upstream whose certificate the proxies of the test trust.
func trusted(t *testing.T, handler http.HandlerFunc) (host string) {
	upstream := httptest.NewTLSServer(handler)
	t.Cleanup(upstream.Close)
	return upstream.Listener.Addr().String()
}

// writePolicies writes a file with a policy for each host.
func writePolicies(t *testing.T, file string, hosts ...string) {
	text := "version: 1\npolicies:\n"
	for i, host := range hosts {
		text += fmt.Sprintf("  - {name: api%d, match: \"%s/\", limit: 1000/h}\n", i, host)
	}
	require.NoError(t, os.WriteFile(file, []byte(text), 0o600))
}

// at reads stderr up to the address of a host.
func (s *served) at(host string) (base string) {
	line := s.line(host + " is at ")
	return strings.TrimSpace(line[strings.Index(line, "http://"):])
}

// TestProxyWays: a host has an address of its own, beside HTTP_PROXY and HTTP/2; and the process
// ends although there are tunnels.
func TestProxyWays(t *testing.T) {
	t.Parallel()
	host := trusted(t, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Link", "<https://docs.example.com/a>; rel=help")
		fmt.Fprint(w, r.Host, " ", r.RequestURI)
	})
	file := filepath.Join(t.TempDir(), "policies.yaml")
	writePolicies(t, file, host, "b.example.com")
	s := startProxy(t, file, "--upstream", "127.0.0.1:0="+host, "--upstream", "127.0.0.1:0=b.example.com")
	one := s.at(host)
	s.at("b.example.com")

	h2 := &http.Transport{Protocols: new(http.Protocols)}
	h2.Protocols.SetUnencryptedHTTP2(true)
	proxied := &http.Transport{Proxy: func(*http.Request) (*url.URL, error) { return url.Parse(s.baseURL) }}
	for base, way := range map[string]http.RoundTripper{one: http.DefaultTransport, s.baseURL + host + "/": h2, "http://" + host + "/": proxied} {
		resp, err := (&http.Client{Transport: way}).Get(base + "x/?a=%7e")
		require.NoError(t, err)
		text, err := io.ReadAll(resp.Body)
		require.NoError(t, err)
		resp.Body.Close()
		require.Equal(t, host+" /x/?a=%7e", string(text))
	}
	s.line("a link to docs.example.com, which leads round the proxy")

	tunnel, err := net.Dial("tcp", strings.Trim(strings.TrimPrefix(s.baseURL, "http:"), "/"))
	require.NoError(t, err)
	defer tunnel.Close()
	fmt.Fprint(tunnel, "CONNECT b.example.com:80 HTTP/1.1\r\nHost: b.example.com\r\n\r\n")
	resp, err := http.ReadResponse(bufio.NewReader(tunnel), &http.Request{Method: http.MethodConnect})
	require.NoError(t, err)
	require.Equal(t, http.StatusOK, resp.StatusCode)
	require.NoError(t, s.cmd.Process.Signal(syscall.SIGTERM))
	_, err = tunnel.Read(make([]byte, 1))
	require.Error(t, err)
	require.NoError(t, s.cmd.Wait())
}

// TestUpstreamBesideSocket: the address of one host is as safe from web pages beside a socket as beside
// another address.
func TestUpstreamBesideSocket(t *testing.T) {
	t.Parallel()
	host := trusted(t, func(http.ResponseWriter, *http.Request) {})
	path := filepath.Join(t.TempDir(), "s")
	s := startProxy(t, newFile(t, host, "100/h"), "--listen", "unix:"+path, "--upstream", "127.0.0.1:0="+host)
	base := s.at(host)
	socket := &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "unix", path)
	}}
	for _, c := range []struct {
		url, field string
		way        http.RoundTripper
		want       int
	}{
		{base, "", http.DefaultTransport, http.StatusOK},
		{base, "page.example.com", http.DefaultTransport, http.StatusForbidden},
		{"http://proxy/" + host + "/", "", socket, http.StatusOK},
	} {
		req, err := http.NewRequest("GET", c.url, nil)
		require.NoError(t, err)
		req.Host = c.field
		resp, err := c.way.RoundTrip(req)
		require.NoError(t, err)
		resp.Body.Close()
		require.Equal(t, c.want, resp.StatusCode, "%+v", c)
	}
}

// TestUnaskedAnswers: what an upstream sends behind its answer stands in no log.
func TestUnaskedAnswers(t *testing.T) {
	t.Parallel()
	host := trusted(t, func(w http.ResponseWriter, _ *http.Request) {
		conn, _, err := http.NewResponseController(w).Hijack()
		require.NoError(t, err)
		defer conn.Close()
		_, _ = io.WriteString(conn, "HTTP/1.1 204 No Content\r\n\r\nnot-to-be-told")
		_, _ = io.Copy(io.Discard, conn) // until the proxy has read that, and has closed
	})
	s := startProxy(t, newFile(t, host, "100/h"))
	require.Equal(t, http.StatusNoContent, s.get(host+"/x"))
	require.NoError(t, s.cmd.Process.Signal(syscall.SIGTERM))
	rest, err := io.ReadAll(s.talk)
	require.NoError(t, err)
	require.Empty(t, string(rest))
	require.NoError(t, s.cmd.Wait())
}

// TestProxyMistakes: all mistakes of the flags are told at once.
func TestProxyMistakes(t *testing.T) {
	t.Parallel()
	const good = "../../policyfile/testdata/good.yaml"
	mistakes := func(args ...string) string {
		talk := new(strings.Builder)
		require.Equal(t, exitUsage, run(t.Context(), append([]string{"proxy"}, args...), new(sink), talk), "%v", args)
		return talk.String()
	}
	require.Equal(t, `throttle: proxy follows a file, and stdin is none
--max-wait: use more than 0
--stop-time: use more than 0
--held: use 1 or more
--held-per-budget: use 1 or more
--connections: use 1 or more
--listen: other machines would reach this address, and could send requests: pass --expose as well
--admin: other machines would reach this address, which needs no token: pass --expose as well
--caller-idle: use more than 0
--permit-lifetime: use more than 0
--permit-penalty-max: use 0 or more
--tunnels: use 0 or more
--private localhost:8443: use a host, without a scheme, a port and a path
--private https://localhost: use a host, without a scheme, a port and a path
--upstream 0.0.0.0:7071=a.example.com: other machines would reach this address, and could send requests: pass --expose as well
--upstream 127.0.0.1:7072: use ADDRESS:PORT=HOST, such as 127.0.0.1:7071=api.example.com
--upstream 127.0.0.1:7073=https://a.example.com: what follows = is a host, without a scheme and without a path
--upstream unix:=a.example.com: use ADDRESS:PORT=HOST, such as 127.0.0.1:7071=api.example.com
--upstream 0.0.0.0:7070=a.example.com: other machines would reach this address, and could send requests: pass --expose as well
--upstream 0.0.0.0:7070=a.example.com: another flag has this address
`, mistakes("-", "--max-wait", "0", "--stop-time", "0", "--caller-idle", "0", "--admin", "0.0.0.0:7079", "--held", "0", "--held-per-budget", "0", "--connections", "0", "--permit-lifetime", "0", "--permit-penalty-max", "-1s", "--tunnels", "-1",
		"--private", "localhost:8443,https://localhost,localhost,::1,[::1]", "--listen", "0.0.0.0:7070", "--upstream", "0.0.0.0:7071=a.example.com", "--upstream", "127.0.0.1:7072", "--upstream", "127.0.0.1:7073=https://a.example.com",
		"--upstream", "unix:=a.example.com", "--upstream", "0.0.0.0:7070=a.example.com"))
	require.Contains(t, mistakes(good, "--expose", "--upstream", "0.0.0.0:0=api.example.com"), "--expose: each machine that reaches the address could send requests")
	require.Contains(t, mistakes(good, "--upstream", "127.0.0.1:0=a.nowhere.example", "--upstream", "127.0.0.1:0=b.nowhere.example"),
		"--upstream 127.0.0.1:0=a.nowhere.example: no policy of the file names this host\n--upstream 127.0.0.1:0=b.nowhere.example: no policy of the file names this host\n")
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer taken.Close()
	a, b := taken.Addr().String(), "127.0.0.1:0"
	require.Contains(t, mistakes(good, "--listen", a), "address already in use")
	file := filepath.Join(t.TempDir(), "policies.yaml")
	writePolicies(t, file, "a.example.com")
	for _, upstream := range []string{a, b} {
		admin := map[string]string{a: b, b: a}[upstream]
		told := mistakes(file, "--listen", b, "--admin", admin, "--upstream", b+"=a.example.com", "--upstream", upstream+"=a.example.com")
		require.Contains(t, told, "address already in use")
		require.NotContains(t, told, " is at ", "nothing is served")
	}
}

// TestProxyLosesHost: a file that does not have the host of an address any more is no mistake, and is told.
func TestProxyLosesHost(t *testing.T) {
	var talk strings.Builder
	s := &proxyServer{sidecar: sidecar{talk: &talk}, upstreams: []upstreamAt{{"127.0.0.1:7071", "a.example.com"}, {"127.0.0.1:7072", "b.example.com"}}}
	with := func(match string) *proxy.Table { return proxy.NewTable([]throttle.Policy{{Name: "api", Match: match}}) }
	s.use(with("*.example.com/"))
	s.use(with("b.example.com/"))
	require.Equal(t, "throttle: --upstream 127.0.0.1:7071=a.example.com: no policy of the file names this host any more, and requests to the address are refused\n", talk.String())
}

// TestSayUnmatched: requests that no policy matches are told once for each host.
func TestSayUnmatched(t *testing.T) {
	var talk strings.Builder
	s := &sidecar{talk: &talk}
	for _, host := range []string{"a.example.com", "b.example.com", "a.example.com"} {
		s.observe(t.Context(), throttle.Event{Kind: throttle.EventUnmatched, Host: host})
	}
	require.Equal(t, "throttle: no policy matches some requests to a.example.com: they are not held\n"+
		"throttle: no policy matches some requests to b.example.com: they are not held\n", talk.String())
}

// TestSayOnce: each line is told once, and not more of them than an operator would read.
func TestSayOnce(t *testing.T) {
	var talk strings.Builder
	s := &proxyServer{sidecar: sidecar{talk: &talk}}
	for i := range 2 * (mostFirsts + 1) {
		s.tellOutside(fmt.Sprint("h", i/2, "\x1b.example.com"))
	}
	s.tellBlind("use another")
	require.Equal(t, mostFirsts, strings.Count(talk.String(), "\n"))
	require.Equal(t, 1, strings.Count(talk.String(), "a link to h0"))
	require.NotContains(t, talk.String(), "\x1b")
}

// TestNews: each change is told once, however many callers meet it.
func TestNews(t *testing.T) {
	now := time.Unix(1_000_000, 0)
	n := news{now: func() time.Time { return now }}
	event := func(k throttle.EventKind, d time.Duration) throttle.Event {
		return throttle.Event{Kind: k, Budget: "user/ab12", Duration: d, Err: errors.New("refused connection")}
	}
	const refused = ": the upstream refused a request"
	require.Equal(t, "user/ab12 is closed for 5m0s"+refused, n.of(event(throttle.EventPenalized, 5*time.Minute)))
	require.Empty(t, n.of(event(throttle.EventPenalized, 5*time.Minute)), "the answer of another request")
	now = now.Add(time.Minute)
	require.Empty(t, n.of(event(throttle.EventClosed, 4*time.Minute)), "the same end")
	require.Equal(t, "user/ab12 is closed for 10m0s"+refused, n.of(event(throttle.EventPenalized, 10*time.Minute)))
	require.Equal(t, "user/ab12 is open again", n.of(event(throttle.EventOpened, 0)))
	require.Empty(t, n.of(event(throttle.EventOpened, 0)))

	byHand := event(throttle.EventClosed, time.Hour)
	byHand.Note = store.PauseNote{By: "anna@desk", Reason: "the shop moves"}
	require.Equal(t, `user/ab12 is closed for 1h0m0s: paused by anna@desk: "the shop moves"`, n.of(byHand))
	byHand.Budget, byHand.Note = "other/cd34", store.PauseNote{}
	require.Equal(t, "other/cd34 is closed for 1h0m0s: another program was refused, or an operator paused it", n.of(byHand))

	off := event(throttle.EventOff, 0)
	off.Note = store.PauseNote{By: "anna@desk", Reason: "the limits are wrong"}
	require.Equal(t, `throttle is off by anna@desk: "the limits are wrong": requests pass without a limit`, n.of(off))
	for range 3 {
		now = now.Add(time.Minute)
		require.Empty(t, n.of(off))
	}
	now = now.Add(time.Minute + time.Second)
	require.NotEmpty(t, n.of(off), "it was on meanwhile")
}

// TestNewsAreBounded: budgets that are open by now make room for others.
func TestNewsAreBounded(t *testing.T) {
	now := time.Unix(1_000_000, 0)
	n := news{now: func() time.Time { return now }}
	for i := range mostClosed + 10 {
		line := n.of(throttle.Event{Kind: throttle.EventPenalized, Budget: fmt.Sprint(i), Duration: time.Minute})
		require.Equal(t, i < mostClosed, line != "")
	}
	now = now.Add(2 * time.Minute)
	require.NotEmpty(t, n.of(throttle.Event{Kind: throttle.EventPenalized, Budget: "late", Duration: time.Minute}))
	require.Equal(t, 1, len(n.closed))
}

// TestProxyTellsOfABan, on stderr.
func TestProxyTellsOfABan(t *testing.T) {
	t.Parallel()
	host := newUpstream(t, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Retry-After", "300")
		w.WriteHeader(http.StatusTooManyRequests)
	})
	s := startProxy(t, newFile(t, host, "100/h"))
	require.Equal(t, http.StatusTooManyRequests, s.get(host+"/"))
	require.Contains(t, s.line(" is closed for "), "the upstream refused a request")
}

// An unsteadyStore is a store in memory that loses budgets for a while, as a Redis does that has stopped: whoever books waits.
type unsteadyStore struct {
	throttle.Store

	mu     sync.Mutex
	groups map[string]string // of the budgets that were booked, by policy
	lost   map[string]bool   // groups whose budgets are lost
	reads  bool              // lost budgets can be read
}

// lose loses the budgets of policies, which were booked before. With reads they can still be read.
func (s *unsteadyStore) lose(reads bool, policies ...string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.lost, s.reads = make(map[string]bool), reads
	for _, p := range policies {
		s.lost[s.groups[p]] = true
	}
}

func (s *unsteadyStore) isLost(b throttle.Budget, reads bool) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if b.Policy != "" {
		s.groups[b.Policy] = b.Group
	}
	return s.lost[b.Group] && !(reads && s.reads)
}

// await waits until a budget is there, for maxWait at the most.
func (s *unsteadyStore) await(ctx context.Context, b throttle.Budget, reads bool, maxWait time.Duration) error {
	if maxWait != store.AnyWait {
		bounded, stop := context.WithTimeout(ctx, maxWait)
		defer stop()
		ctx = bounded
	}

	away := errors.New("refused connection")
	for told := false; s.isLost(b, reads); told = true {
		if o := absence.From(ctx); o != nil && !told {
			o.StoreAway(away)
		}
		select {
		case <-ctx.Done():
			return errors.Join(away, ctx.Err())
		case <-time.After(10 * time.Millisecond):
		}
	}
	return nil
}

func (s *unsteadyStore) Book(ctx context.Context, b *store.Booking) (store.Grant, error) {
	for _, c := range b.Charges {
		if c.Node {
			continue
		}
		if err := s.await(ctx, c.Budget, false, b.MaxWait); err != nil {
			return store.Grant{}, err
		}
	}
	return s.Store.Book(ctx, b)
}

func (s *unsteadyStore) Status(ctx context.Context, c store.Charge) (throttle.Status, error) {
	if err := s.await(ctx, c.Budget, true, store.AnyWait); err != nil {
		return throttle.Status{}, err
	}
	return s.Store.Status(ctx, c)
}

func (s *unsteadyStore) Traits() store.Traits { return store.Traits{} }

// An outagePlay is a sidecar whose store is away for a while.
type outagePlay struct {
	*testing.T
	store     *unsteadyStore
	off       *store.Switch
	transport *throttle.Transport
}

// send sends a request under a policy, and returns its error. The request waits for 10 seconds at the most.
func (p *outagePlay) send(policy string) error {
	ctx := throttle.WithMaxWait(p.Context(), 10*time.Second)
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "https://"+policy+".com/", nil)
	require.NoError(p, err)
	_, err = p.transport.RoundTrip(req)
	return err
}

// starts sends requests that start, with enough time between them for any news.
func (p *outagePlay) starts(policies ...string) {
	for _, policy := range policies {
		require.NoError(p, p.send(policy), policy)
		time.Sleep(3 * time.Second)
	}
}

// fails sends a request that waits for the store in vain.
func (p *outagePlay) fails(policy string) {
	require.ErrorAs(p, p.send(policy), new(*throttle.StoreError))
}

// TestNewsOfAnOutage: stderr tells once that the store does not answer, and once that it answers again, whatever starts
// meanwhile.
func TestNewsOfAnOutage(t *testing.T) {
	scenes := map[string]func(*outagePlay){
		"a row of the scope node": func(p *outagePlay) {
			p.store.lose(false, "shared", "other", "shadow", "slow")
			p.fails("shared")
			p.starts("own")
			p.fails("shared")
			p.starts("own")
		},
		"shadows": func(p *outagePlay) {
			p.store.lose(false, "shared", "other", "shadow", "slow")
			p.starts("shadow", "shadow", "shadow")
		},
		"a start that was booked before": func(p *outagePlay) {
			booked, failed := make(chan error, 1), make(chan error, 1)
			p.starts("slow")
			require.NoError(p, p.send("slow"))
			go func() { booked <- p.send("slow") }()
			time.Sleep(50 * time.Millisecond)
			p.store.lose(false, "shared", "other", "shadow", "slow")
			go func() { failed <- p.send("shared") }()
			require.NoError(p, <-booked)
			require.Error(p, <-failed)
			p.fails("shared")
		},
		"throttle is off": func(p *outagePlay) {
			p.store.lose(false, "shared", "other", "shadow", "slow")
			p.fails("shared")
			p.off.TurnOff(store.Off{By: "anna"})
			p.starts("shared")
			p.off.TurnOn()
			p.fails("shared")
		},
		"another server of the cluster": func(p *outagePlay) {
			p.store.lose(false, "shared")
			p.fails("shared")
			p.starts("other", "other")
			p.fails("shared")
			p.starts("other", "other")
		},
		"a store that can be read and not written": func(p *outagePlay) {
			p.store.lose(true, "shared", "other", "shadow", "slow")
			p.fails("shared")
			p.starts("shadow", "own", "shadow")
			p.fails("shared")
			p.starts("own", "own")
		},
	}

	for name, scene := range scenes {
		t.Run(name, func(t *testing.T) { synctest.Test(t, func(t *testing.T) { playOutage(t, scene) }) })
	}
}

// playOutage has requests start, and then a scene whose store is lost. Once the store is back, requests start again.
func playOutage(t *testing.T, scene func(*outagePlay)) {
	_, server := newProxyWith()
	out := new(strings.Builder)
	server.talk = out
	p := &outagePlay{T: t, store: &unsteadyStore{Store: memstore.New(), groups: make(map[string]string)}, off: new(store.Switch)}
	transport, _, err := server.enforce(store.WithSwitch(p.store, p.off), answers{})
	require.NoError(t, err)
	p.transport = transport
	require.NoError(t, transport.SetPolicies([]throttle.Policy{
		{Name: "shared", Match: "shared.com/", Limit: throttle.PerSecond(100)},
		{Name: "other", Match: "other.com/", Limit: throttle.PerSecond(100)},
		{Name: "slow", Match: "slow.com/", Limit: throttle.SlidingWindow(1, 100*time.Millisecond)},
		{Name: "shadow", Match: "shadow.com/", Limit: throttle.PerSecond(100), Shadow: true},
		{Name: "own", Match: "own.com/", Limit: throttle.PerSecond(100), Scope: throttle.ScopeNode},
	}))

	p.starts("shared", "other", "slow", "shadow", "own")
	synctest.Wait()
	require.Empty(t, out.String())
	scene(p)
	p.store.lose(false)
	server.say("the store is back")
	p.starts("shared", "other", "slow", "shadow", "own", "shared")

	synctest.Wait()
	var told []string
	for line := range strings.Lines(out.String()) {
		if strings.Contains(line, "the store") {
			told = append(told, line)
		}
	}
	require.Equal(t, []string{
		"throttle: the store does not answer: throttle: the store could not be asked: refused connection\n",
		"throttle: the store is back\n",
		"throttle: the store answers again\n",
	}, told)
}

// TestProxyTellsOfAnOutage: a Redis that is stopped, and started again, is told of twice, though meanwhile requests start that
// do not need Redis.
func TestProxyTellsOfAnOutage(t *testing.T) {
	t.Parallel()
	server, host := redistest.Single(t), newUpstream(t, func(http.ResponseWriter, *http.Request) {})
	file := filepath.Join(t.TempDir(), "policies.yaml")
	text := "version: 1\npolicies:\n" +
		"  - {name: shared, match: \"HOST/shared\", limit: 100/s}\n" +
		"  - {name: own, match: \"HOST/own\", limit: 100/s, scope: node}\n" +
		"  - {name: shadow, match: \"HOST/shadow\", limit: 100/s, shadow: true}\n"
	require.NoError(t, os.WriteFile(file, []byte(strings.ReplaceAll(text, "HOST", host)), 0o600))

	s := startProxy(t, file, "--redis="+server.URL(), "--max-wait", "1s")
	require.Equal(t, http.StatusOK, s.get(host+"/shared"))
	server.Kill()
	for range 2 {
		require.Equal(t, http.StatusServiceUnavailable, s.get(host+"/shared"))
		require.Equal(t, http.StatusOK, s.get(host+"/own"))
		require.Equal(t, http.StatusOK, s.get(host+"/shadow"))
	}

	server.Restart()
	require.Contains(t, s.line("the store "), "the store does not answer: ")
	require.Eventually(t, func() bool { return s.get(host+"/shared") == http.StatusOK }, time.Minute, 10*time.Millisecond)
	require.Contains(t, s.line("the store "), "the store answers again")
	require.NoError(t, s.cmd.Process.Signal(syscall.SIGTERM))
	rest, err := io.ReadAll(s.talk)
	require.NoError(t, err)
	require.NotContains(t, string(rest), "the store")
	require.NoError(t, s.cmd.Wait())
}
