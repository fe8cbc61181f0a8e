//go:build unix

package waitclients

import (
	"bufio"
	"bytes"
	"context"
	"io"
	"log"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fleetthrottle/throttle"
	"github.com/fleetthrottle/throttle/internal/lab/redistest"
	"github.com/fleetthrottle/throttle/redisstore"
)

// policies is the file that the proxy follows. Each client has a key of its own.
const policies = `version: 1
policies:
  - {name: flights, match: none, keyed: yes, limit: 2 in flight}
  - {name: alone, match: none, keyed: yes, limit: 1 in flight}
  - {name: scarce, match: none, keyed: yes, limit: 1/h}
  - {name: tokens, match: none, keyed: yes, limit: 100/h}
`

// token is what the proxy asks for.
const token = "a-token-of-the-test-of-clients"

// A scene is a process of "throttle proxy" behind a tap, and an upstream.
type scene struct {
	*testing.T
	tap, upstream string // their URLs
	limiters      *throttle.Limiters
	programs      []program

	arrived    sync.Map     // of each query an *atomic.Int64
	inFlight   atomic.Int64 // at the upstream
	mostFlying atomic.Int64

	mu       sync.Mutex
	acquires map[string][]string // of each key of a budget, the Idempotency-Keys that came
	losesOf  string              // the key of the budget whose next answer is lost
}

// A program is how one client is started, with arguments POLICY KEY WAIT URL ORDER... behind it.
type program struct {
	name    string
	words   []string
	settles bool
	places  bool
}

// newScene finds the clients, and starts a proxy with a Redis, a tap before the proxy and the upstream.
func newScene(t *testing.T) *scene {
	s := &scene{T: t, acquires: make(map[string][]string)}
	dir := t.TempDir()
	s.programs = findPrograms(t, dir)
	file, binary := filepath.Join(dir, "policies.yaml"), filepath.Join(dir, "throttle")
	require.NoError(t, os.WriteFile(file, []byte(policies), 0o600))
	build(t, "../../../../cmd/throttle", "go", "build", "-o", binary, ".")
	require.NoError(t, os.WriteFile(file+".token", []byte(token), 0o600))
	redis := redistest.Single(t)
	proxy, err := url.Parse("http://" + startProxy(t, binary, "proxy", file, "--token-file", file+".token", "--redis", redis.URL(), "--listen", "127.0.0.1:0", "--max-wait", "2s"))
	require.NoError(t, err)

	var all []throttle.Policy
	for name, limit := range map[string]throttle.Limit{"flights": throttle.Concurrency(2), "alone": throttle.Concurrency(1), "scarce": throttle.PerHour(1), "tokens": throttle.PerHour(100)} {
		all = append(all, throttle.Policy{Name: name, Keyed: true, Limit: limit})
	}
	s.limiters, err = throttle.NewLimiters(throttle.Config{Store: redisstore.New(redis.Client(t), redisstore.Options{}), Policies: all})
	require.NoError(t, err)

	upstream := httptest.NewServer(http.HandlerFunc(s.serveWork))
	t.Cleanup(upstream.Close)
	s.upstream = upstream.URL
	through := &httputil.ReverseProxy{
		Rewrite: func(pr *httputil.ProxyRequest) {
			pr.SetURL(proxy)
			pr.Out.Host = ""
			maps.Copy(pr.Out.Header, http.Header{"Proxy-Authorization": pr.In.Header["Proxy-Authorization"]})
		},
		ErrorLog: log.New(io.Discard, "", 0), // which clients left
	}
	tap := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { s.pass(through, w, r) }))
	t.Cleanup(tap.Close)
	s.tap = tap.URL
	return s
}

// serveWork is the upstream.
func (s *scene) serveWork(_ http.ResponseWriter, r *http.Request) {
	now := s.inFlight.Add(1)
	defer s.inFlight.Add(-1)
	for most := s.mostFlying.Load(); now > most && !s.mostFlying.CompareAndSwap(most, now); most = s.mostFlying.Load() {
	}
	n, _ := s.arrived.LoadOrStore(r.URL.RawQuery, new(atomic.Int64))
	n.(*atomic.Int64).Add(1)
}

// arrivals returns how often a client has done work under a policy.
func (s *scene) arrivals(policy, key string) int64 {
	n, _ := s.arrived.LoadOrStore(policy+key, new(atomic.Int64))
	return n.(*atomic.Int64).Load()
}

// pass passes a request to the proxy, and loses its answer if it is that one's turn.
func (s *scene) pass(through http.Handler, w http.ResponseWriter, r *http.Request) {
	if r.URL.Path != "/v1/acquire" {
		through.ServeHTTP(w, r)
		return
	}
	var body bytes.Buffer
	_, _ = body.ReadFrom(r.Body)
	_, rest, _ := strings.Cut(body.String(), `"key"`)
	key := strings.Split(rest, `"`)[1]
	r.Body = http.NoBody
	r = r.Clone(r.Context())
	r.Body, r.ContentLength = struct {
		*bytes.Reader
		noCloser
	}{bytes.NewReader(body.Bytes()), noCloser{}}, int64(body.Len())
	s.mu.Lock()
	s.acquires[key] = append(s.acquires[key], r.Header.Get("Idempotency-Key"))
	lost := s.losesOf == key
	if lost {
		s.losesOf = ""
	}
	s.mu.Unlock()
	if lost {
		answer := httptest.NewRecorder()
		through.ServeHTTP(answer, r)
		require.Equal(s, 200, answer.Code, answer.Body.String())
		panic(http.ErrAbortHandler)
	}
	through.ServeHTTP(w, r)
}

type noCloser struct{}

func (noCloser) Close() error { return nil }

// asked returns the Idempotency-Keys with which a client has asked for permits.
func (s *scene) asked(key string) []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.acquires[key]
}

// start starts a client.
func (s *scene) start(t *testing.T, p program, policy, key, wait string, orders ...string) (*exec.Cmd, *bytes.Buffer) {
	words := append(append(p.words[1:len(p.words):len(p.words)], policy, key, wait, s.upstream+"/?"+policy+key), orders...)
	cmd := exec.CommandContext(t.Context(), p.words[0], words...)
	cmd.Env = append(os.Environ(), "THROTTLE_URL="+s.tap, "THROTTLE_TOKEN="+token, "HTTP_PROXY=http://127.0.0.1:1", "PYTHONDONTWRITEBYTECODE=1", "no_proxy="+strings.TrimPrefix(s.upstream, "http://"))
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	var talk bytes.Buffer
	cmd.Stdout, cmd.Stderr = &talk, &talk
	require.NoError(t, cmd.Start())
	return cmd, &talk
}

// run runs a client, and returns its exit code.
func (s *scene) run(t *testing.T, p program, policy, key, wait string, orders ...string) (code int, talk string) {
	cmd, text := s.start(t, p, policy, key, wait, orders...)
	_ = cmd.Wait()
	return cmd.ProcessState.ExitCode(), text.String()
}

// status returns what a budget is like.
func (s *scene) status(t *testing.T, policy, key string) throttle.Status {
	l, err := s.limiters.Limiter(policy)
	require.NoError(t, err)
	st, err := l.Status(t.Context(), key)
	require.NoError(t, err)
	return st
}

// startProxy returns the address of a proxy.
func startProxy(t *testing.T, binary string, args ...string) string {
	cmd := exec.CommandContext(context.WithoutCancel(t.Context()), binary, args...)
	talk, err := cmd.StderrPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	lines := bufio.NewScanner(talk)
	for lines.Scan() {
		if _, address, found := strings.Cut(lines.Text(), "the proxy is at http://"); found {
			go func() {
				for lines.Scan() {
					t.Log(lines.Text())
				}
			}()
			return strings.TrimSuffix(address, "/HOST/")
		}
	}
	t.Fatal("the proxy has ended")
	return ""
}

// findPrograms finds the programs of all languages.
func findPrograms(t *testing.T, dir string) []program {
	clients, err := filepath.Abs("../../../../examples/clients")
	require.NoError(t, err)
	for what, words := range map[string][]string{"Python": {"python3", "--version"}, "Node 20": {"node", "--eval", "Symbol.asyncDispose.toString()"}, "curl": {"curl", "--version"}, "Java": {"javac", "-version"}} {
		if exec.Command(words[0], words[1:]...).Run() != nil {
			t.Fatalf("no %s: run scripts/install-clients.sh", what)
		}
	}
	build(t, ".", "javac", "-d", dir, clients+"/Client.java", "Drive.java")
	return []program{
		{name: "Python", words: []string{"python3", "drive.py", clients}, settles: true, places: true},
		{name: "Node", words: []string{"node", "drive.mjs", clients}, settles: true, places: true},
		{name: "Java", words: []string{"java", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-classpath", dir, "Drive"}, settles: true},
		{name: "shell", words: []string{"./drive.sh", clients}},
	}
}

// build runs a command in a directory.
func build(t *testing.T, dir, name string, args ...string) {
	t.Helper()
	cmd := exec.Command(name, args...)
	cmd.Dir = dir
	out, err := cmd.CombinedOutput()
	require.NoError(t, err, "%s: %s", cmd, out)
}
