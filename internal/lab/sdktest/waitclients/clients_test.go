//go:build unix

package waitclients

import (
	"context"
	"encoding/json"
	"errors"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fleetthrottle/throttle"
	"github.com/fleetthrottle/throttle/memstore"
	"github.com/fleetthrottle/throttle/store"
)

// TestClients: programs in four languages do work under permits of one process, over one Redis.
func TestClients(t *testing.T) {
	s := newScene(t)
	t.Run("together", s.testTogether)
	for _, p := range s.programs {
		t.Run(p.name, func(t *testing.T) {
			t.Parallel()
			t.Run("refused", func(t *testing.T) { s.testRefused(t, p) })
			t.Run("held for long", func(t *testing.T) { s.testHeldForLong(t, p) })
			t.Run("lost answer", func(t *testing.T) { s.testLostAnswer(t, p) })
			t.Run("killed", func(t *testing.T) { s.testKilled(t, p) })
			t.Run("failed", func(t *testing.T) { s.testFailed(t, p) })
			if p.places {
				t.Run("placed", func(t *testing.T) { s.testPlaced(t, p) })
			}
			if p.settles {
				t.Run("settled", func(t *testing.T) { s.testSettled(t, p) })
			}
		})
	}
}

// testTogether: no more are in flight than the limit, of all languages together.
func (s *scene) testTogether(t *testing.T) {
	var all sync.WaitGroup
	for _, p := range s.programs {
		for range 3 {
			all.Go(func() {
				code, talk := s.run(t, p, "flights", "all", "60")
				if code != 0 {
					t.Errorf("%s: %d %s", p.name, code, talk)
				}
			})
		}
	}
	all.Wait()
	require.EqualValues(t, 12, s.arrivals("flights", "all"))
	require.LessOrEqual(t, s.mostFlying.Load(), int64(2))
	require.Zero(t, s.status(t, "flights", "all").Used)
}

// testRefused: what cannot start in time is not done, and the program learns why.
func (s *scene) testRefused(t *testing.T, p program) {
	_, err := s.limiters.Acquire(t.Context(), throttle.Demand{Policy: "scarce", Key: p.name})
	require.NoError(t, err)
	code, talk := s.run(t, p, "scarce", p.name, "5")
	require.Equal(t, 75, code, talk)
	require.Contains(t, talk, "scarce")
	require.Zero(t, s.arrivals("scarce", p.name))
	code, talk = s.run(t, p, "no-such", p.name, "5")
	require.Equal(t, 75, code, talk)
}

// testHeldForLong: a client that waits for longer than one answer may take asks again.
func (s *scene) testHeldForLong(t *testing.T, p program) {
	permit, err := s.limiters.Acquire(t.Context(), throttle.Demand{Policy: "alone", Key: p.name})
	require.NoError(t, err)
	before := len(s.asked(p.name))
	cmd, talk := s.start(t, p, "alone", p.name, "60")
	await(t, func() bool { return len(s.asked(p.name)) >= before+2 })
	require.Zero(t, s.arrivals("alone", p.name))
	permit.Release()
	require.NoError(t, cmd.Wait(), talk.String())
	require.EqualValues(t, 1, s.arrivals("alone", p.name))
	require.Zero(t, s.status(t, "alone", p.name).Used)
}

// testLostAnswer: a client whose answer is lost gets its permit all the same, and pays once.
func (s *scene) testLostAnswer(t *testing.T, p program) {
	s.mu.Lock()
	for s.losesOf != "" { // a client beside this one
		s.mu.Unlock()
		time.Sleep(time.Millisecond)
		s.mu.Lock()
	}
	s.losesOf = p.name
	s.mu.Unlock()
	before, used := len(s.asked(p.name)), s.status(t, "tokens", p.name).Used
	code, talk := s.run(t, p, "tokens", p.name, "60")
	require.Zero(t, code, talk)
	keys := s.asked(p.name)[before:]
	require.Len(t, keys, 2)
	require.Equal(t, keys[0], keys[1])
	require.EqualValues(t, 1, s.arrivals("tokens", p.name))
	require.Equal(t, used+1, s.status(t, "tokens", p.name).Used)
}

// testKilled: the place of a client that is killed while it waits is free.
func (s *scene) testKilled(t *testing.T, p program) {
	permit, err := s.limiters.Acquire(t.Context(), throttle.Demand{Policy: "alone", Key: p.name})
	require.NoError(t, err)
	defer permit.Release()
	arrived := s.arrivals("alone", p.name)
	cmd, _ := s.start(t, p, "alone", p.name, "60")
	await(t, func() bool { return s.status(t, "alone", p.name).Waiting == 1 })
	require.NoError(t, syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL)) // and its children, as a terminal does
	_ = cmd.Wait()
	await(t, func() bool { return s.status(t, "alone", p.name).Waiting == 0 })
	require.Equal(t, arrived, s.arrivals("alone", p.name))
}

// testFailed: a permit is released when the work fails.
func (s *scene) testFailed(t *testing.T, p program) {
	code, talk := s.run(t, p, "alone", p.name, "60", "fail")
	require.Equal(t, 3, code, talk)
	require.Zero(t, s.status(t, "alone", p.name).Used)
}

// testPlaced: a client that would have to wait is told a place, and starts with it when there is room.
func (s *scene) testPlaced(t *testing.T, p program) {
	permit, err := s.limiters.Acquire(t.Context(), throttle.Demand{Policy: "alone", Key: p.name})
	require.NoError(t, err)
	arrived := s.arrivals("alone", p.name)
	code, talk := s.run(t, p, "alone", p.name, "0.1", "place=")
	require.Equal(t, 74, code, talk)
	code, talk = s.run(t, p, "alone", p.name, "0.1", "place="+strings.TrimSpace(talk))
	require.Equal(t, 74, code, talk)
	require.Equal(t, arrived, s.arrivals("alone", p.name))
	permit.Release()
	code, talk = s.run(t, p, "alone", p.name, "5", "place="+strings.TrimSpace(talk))
	require.Zero(t, code, talk)
	require.Equal(t, arrived+1, s.arrivals("alone", p.name))
}

// testSettled: a client tells what the work cost, and that it was refused.
func (s *scene) testSettled(t *testing.T, p program) {
	used := s.status(t, "tokens", p.name).Used
	code, talk := s.run(t, p, "tokens", p.name, "60", "settle=7", "penalize=3000")
	require.Zero(t, code, talk)
	st := s.status(t, "tokens", p.name)
	require.Equal(t, used+7, st.Used)
	require.Greater(t, st.Paused, 40*time.Minute)
}

// await waits until something is so.
func await(t *testing.T, is func() bool) {
	t.Helper()
	for end := time.Now().Add(time.Minute); !is(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("it does not come to be")
		}
	}
}

// pipes is a listener whose connections are pipes, so that a server on it is in virtual time.
type pipes struct {
	conns  chan net.Conn
	closed chan struct{}
	once   sync.Once
}

func (p *pipes) Accept() (net.Conn, error) {
	select {
	case conn := <-p.conns:
		return conn, nil
	case <-p.closed:
		return nil, net.ErrClosed
	}
}

func (p *pipes) Close() error {
	p.once.Do(func() { close(p.closed) })
	return nil
}

func (p *pipes) Addr() net.Addr { return &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 7070} }

// An awayStore can be away.
type awayStore struct {
	*memstore.Store
	away bool
}

var errAway = errors.New("the store is away")

func (s *awayStore) Book(ctx context.Context, b *store.Booking) (store.Grant, error) {
	if s.away {
		return store.Grant{}, errAway
	}
	return s.Store.Book(ctx, b)
}

func (s *awayStore) Settle(ctx context.Context, b *store.Booking, g store.Grant, costs []int) error {
	if s.away {
		return errAway
	}
	return s.Store.Settle(ctx, b, g, costs)
}

func (s *awayStore) Refuse(ctx context.Context, c store.Charge, r store.Refusal) (from, to float64, err error) {
	if s.away {
		return 0, 0, errAway
	}
	return s.Store.Refuse(ctx, c, r)
}

// TestPages: what the pages show runs as it stands there, before the file that they show.
func TestPages(t *testing.T) {
	readme, err := os.ReadFile("../../../../cmd/throttle/README.md")
	require.NoError(t, err)
	_, section, found := strings.Cut(string(readme), "\n## The waiting API\n")
	require.True(t, found)
	section, _, _ = strings.Cut(section, "\n## ")
	page, err := os.ReadFile("../../../../docs/use/other-languages.md")
	require.NoError(t, err)

	dir := t.TempDir()
	findPrograms(t, dir)
	require.NoError(t, os.WriteFile(dir+"/shop.yaml", []byte(block(t, section, "yaml", "version: 1")), 0o600))
	build(t, "../../../../cmd/throttle", "go", "build", "-o", dir+"/throttle", ".")
	start := func() string {
		return startProxy(t, dir+"/throttle", "proxy", dir+"/shop.yaml", "--listen", "127.0.0.1:0")
	}
	address := start()
	var arrived atomic.Int64
	upstream := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { arrived.Add(1) }))
	defer upstream.Close()
	clients, err := filepath.Abs("../../../../examples/clients")
	require.NoError(t, err)
	t.Setenv("THROTTLE_URL", "http://"+start()) // another: the lines of the section end with a penalty
	t.Setenv("PATH", clients+":"+os.Getenv("PATH"))
	t.Setenv("PYTHONPATH", clients)
	t.Setenv("PYTHONDONTWRITEBYTECODE", "1")
	run := func(words ...string) string {
		t.Helper()
		out, err := exec.Command(words[0], words[1:]...).CombinedOutput()
		require.NoError(t, err, "%s", out)
		return string(out)
	}

	var lines []string
	for _, line := range regexp.MustCompile(`(?m)^curl http://127\.0\.0\.1:7070/.*$`).FindAllString(section, -1) {
		lines = append(lines, strings.Replace(line, "127.0.0.1:7070", address, 1)+" --silent --show-error --fail-with-body")
	}
	require.Len(t, lines, 4)
	var answer struct{ Permit string }
	require.NoError(t, json.Unmarshal([]byte(run("sh", "-c", lines[0])), &answer))
	for _, line := range lines[1:] {
		require.Empty(t, run("sh", "-c", "permit="+answer.Permit+"\n"+line))
	}

	run("python3", "-c", "def fetch_orders(shop): return [shop]\n"+block(t, string(page), "python", "with acquire"))
	script := strings.ReplaceAll(block(t, string(page), "js", "await acquire"), "'./", "'"+clients+"/")
	require.NoError(t, os.WriteFile(dir+"/page.mjs", []byte("const fetchOrders = async shop => [shop]\n"+script), 0o600))
	run("node", dir+"/page.mjs")
	source := "class Page { static void fetchOrders(String shop) {} public static void main(String[] args) throws Exception {" + block(t, string(page), "java", "Client.acquire") + "}}"
	require.NoError(t, os.WriteFile(dir+"/Page.java", []byte(source), 0o600))
	run("java", "-classpath", dir, dir+"/Page.java")
	run("java", clients+"/Client.java", "imports")
	run("sh", "-c", strings.ReplaceAll(block(t, string(page), "sh", "throttled shop"), "https://acme.example.com", upstream.URL))
	require.EqualValues(t, 1, arrived.Load())

	terraform := regexp.MustCompile("`(THROTTLE_WAIT=.*) terraform apply").FindStringSubmatch(string(page))
	require.NotNil(t, terraform)
	require.Equal(t, "applied\n", run("sh", "-c", terraform[1]+" echo applied"))
}

// block returns the block of code of a page that has some text.
func block(t *testing.T, page, language, with string) string {
	t.Helper()
	for _, b := range regexp.MustCompile("(?ms)^```"+language+"\n(.*?)^```").FindAllStringSubmatch(page, -1) {
		if strings.Contains(b[1], with) {
			return b[1]
		}
	}
	t.Fatalf("no %s with %q", language, with)
	return ""
}
