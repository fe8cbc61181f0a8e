package redistest

import (
	"fmt"
	"os"
	"sync/atomic"

	"github.com/redis/go-redis/v9"
)

// poolSize lets each goroutine of a large test have a connection of its own,
// which virtual time needs: a connection that is handed over brings timers of
// a second bubble with it.
const poolSize = 256

// A Server is one running redis-server, or one logical database of it. Its
// methods fail the test when they cannot do their work, so they are for the
// test's own goroutine, one at a time.
type Server struct {
	Addr string // host and port
	DB   int    // the logical database, which is 0 unless the server is shared

	// Namespace is different for each Server of a test binary. It keeps
	// apart what logical databases do not: channels are common to all.
	Namespace string

	t TB
	p *process
}

// Single starts one server. Further arguments are passed on to it.
func Single(t TB, args ...string) *Server {
	t.Helper()
	p, err := start(t.TempDir(), func(port int) []string {
		return append(options(port), args...)
	})
	if err != nil {
		t.Fatal(err)
	}
	s := newServer(t, p, 0)
	t.Cleanup(p.kill)
	return s
}

var namespaces atomic.Int64

func namespace() string { return fmt.Sprintf("test%d", namespaces.Add(1)) }

// newServer returns the view that test t has of database db.
func newServer(t TB, p *process, db int) *Server {
	return &Server{Addr: p.addr(), DB: db, Namespace: namespace(), t: t, p: p}
}

// options are the arguments that all servers but sentinels have in common.
func options(port int) []string {
	return []string{
		"--port", fmt.Sprint(port),
		"--bind", "127.0.0.1",
		"--save", "",
		"--appendonly", "no",
		// Replicas of a test connect all at once or not at all.
		"--repl-diskless-sync-delay", "0",
		// A server that is told to stop does not wait for its replicas.
		"--shutdown-timeout", "0",
	}
}

// URL returns the address in the form that redis.ParseURL reads.
func (s *Server) URL() string { return fmt.Sprintf("redis://%s/%d", s.Addr, s.DB) }

// PID returns the id of the server's process.
func (s *Server) PID() int { return s.p.cmd.Process.Pid }

// Options returns the options of [Server.Client], for tests that change some.
func (s *Server) Options() *redis.Options {
	return &redis.Options{Addr: s.Addr, DB: s.DB, PoolSize: poolSize}
}

// Client returns a client that is closed when t ends.
func (s *Server) Client(t TB) *redis.Client {
	c := redis.NewClient(s.Options())
	closeAfter(t, c)
	return c
}

// Stop ends the server in an orderly way, as an operator would, and returns
// when it is gone.
func (s *Server) Stop() { s.p.stop() }

// Kill ends the server as a crash would, and returns when it is gone.
func (s *Server) Kill() { s.p.kill() }

// Restart kills the server, if it still runs, and starts an empty one on the
// same port.
func (s *Server) Restart() {
	s.t.Helper()
	s.p.kill()
	if err := s.p.run(); err != nil {
		s.t.Fatal(err)
	}
}

// Pause keeps the server from running, as a machine that hangs would: its
// connections stay open and nobody answers. [Server.Continue] ends that, and
// so do Stop, Kill and Restart.
func (s *Server) Pause() {
	s.t.Helper()
	s.signal(PauseSignal)
}

// Continue lets a paused server run on.
func (s *Server) Continue() {
	s.t.Helper()
	s.signal(ContinueSignal)
}

func (s *Server) signal(sig os.Signal) {
	s.t.Helper()
	if err := s.p.cmd.Process.Signal(sig); err != nil {
		s.t.Fatalf("redistest: %v for %s: %v", sig, s.Addr, err)
	}
}

// closeAfter closes a client when t ends.
func closeAfter(t TB, c redis.UniversalClient) {
	t.Cleanup(func() {
		if err := c.Close(); err != nil {
			t.Errorf("redistest: closing a client: %v", err)
		}
	})
}
