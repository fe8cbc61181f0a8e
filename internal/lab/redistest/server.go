// Package redistest starts real redis-server processes for tests and stops
// them again: one server ([Single], [Shared]), three masters of a cluster
// ([Cluster]), or a master and a replica watched by a sentinel ([Sentinel]).
//
// Every server listens on a free port of the loopback interface, keeps nothing
// on disk, and is gone when its test is over. On Linux it is gone even when
// the test binary is killed. A missing server fails the test: nothing is ever
// skipped. The environment variable REDIS_SERVER names a different binary, such as
// valkey-server; Redis 7 is the oldest that works.
//
// Start servers outside of testing/synctest bubbles. The goroutine that keeps
// a server waits for its process, so a bubble that holds it would never be
// idle.
package redistest

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/fleetthrottle/throttle/internal/lab/crew"
	"github.com/fleetthrottle/throttle/internal/lab/servers"
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

// Single starts one server, with further arguments if there are any, and kills it when t ends.
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
	if err := servers.Pause(s.p.cmd.Process); err != nil {
		s.t.Fatalf("redistest: pausing %s: %v", s.Addr, err)
	}
}

// Continue lets a paused server run on.
func (s *Server) Continue() {
	s.t.Helper()
	if err := servers.Continue(s.p.cmd.Process); err != nil {
		s.t.Fatalf("redistest: continuing %s: %v", s.Addr, err)
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

// databases is how many logical databases the shared server has. They cost
// next to nothing, and are used again from the first when all were used.
const databases = 1024

// shared are the servers that tests of the binary use by turns. One more is started when none is free.
var shared struct {
	sync.Mutex
	main bool // Main runs, so the servers will be stopped
	all  []*lent
}

// A lent server belongs to one test at a time, since messages, scripts and
// settings are the server's and not a database's.
type lent struct {
	p    *process
	used int // how many databases it has given away
	by   TB  // the test that has the server; nil: it is free
}

// Main runs the tests, stops the servers of [Shared], and returns the code for
// [os.Exit]. A package that uses Shared has
//
//	func TestMain(m *testing.M) { os.Exit(redistest.Main(m)) }
func Main(m *testing.M) int {
	shared.Lock()
	shared.main = true
	shared.Unlock()

	code := m.Run()

	shared.Lock()
	defer shared.Unlock()
	for _, l := range shared.all {
		l.p.kill()
	}
	return code
}

// Shared returns a logical database of its own, empty, on a server that the tests
// of the binary use by turns, which saves starts of servers. Tests that run side
// by side have different servers, and all calls of a test the same. A test that
// stops, pauses or flushes the whole server needs [Single] instead. The package's
// TestMain must call [Main].
func Shared(t TB) *Server {
	t.Helper()
	shared.Lock()
	defer shared.Unlock()

	if !shared.main {
		t.Fatal("redistest: Shared needs a TestMain that calls redistest.Main")
	}

	l := lend(t)
	s := newServer(t, l.p, l.used%databases)
	l.used++
	if err := s.Client(t).FlushDB(context.Background()).Err(); err != nil {
		t.Fatalf("redistest: emptying database %d of %s: %v", s.DB, s.Addr, err)
	}

	return s
}

// lend returns the server that t has, or gives it a free or a new one until t ends. The lock of shared is held.
func lend(t TB) *lent {
	for _, l := range shared.all {
		if l.by == t {
			return l
		}
	}

	i := slices.IndexFunc(shared.all, func(l *lent) bool { return l.by == nil })
	if i < 0 {
		p, err := start(os.TempDir(), func(port int) []string {
			return append(options(port), "--databases", fmt.Sprint(databases))
		})
		if err != nil {
			t.Fatal(err)
		}

		i = len(shared.all)
		shared.all = append(shared.all, &lent{p: p})
	}

	l := shared.all[i]
	l.by = t
	t.Cleanup(func() {
		shared.Lock()
		defer shared.Unlock()
		l.by = nil
	})

	return l
}

// errInUse says that a foreign program listens on the port that a server was to
// have.
var errInUse = errors.New("redistest: address already in use")

// longestWait bounds every wait for a condition. It is only ever used up by
// something that is broken, so it is long enough for a very busy machine.
const longestWait = 30 * time.Second

// A process is one server, and after a restart its successor on the same port.
type process struct {
	bin  string
	dir  string
	port int
	args []string

	cmd  *exec.Cmd
	log  *bytes.Buffer   // the server's output; complete once gone is closed
	gone <-chan struct{} // closed when the process has ended and been reaped
}

// start runs a server on a free port, with the arguments that args returns for
// that port, and waits until it answers.
func start(dir string, args func(port int) []string) (*process, error) {
	bin, err := binary()
	if err != nil {
		return nil, err
	}

	for {
		port, err := servers.FreePort()
		if err != nil {
			return nil, err
		}

		p := &process{bin: bin, dir: dir, port: port, args: args(port)}
		err = p.run()
		if err == nil {
			return p, nil
		}

		// Another program was faster between the look at the port and
		// its use. servers.FreePort never offers the same port twice, so this ends.
		if !errors.Is(err, errInUse) {
			return nil, err
		}
	}
}

func (p *process) addr() string { return fmt.Sprintf("127.0.0.1:%d", p.port) }

// run starts the process and waits until it answers.
func (p *process) run() error {
	p.log = new(bytes.Buffer)
	p.cmd = exec.Command(p.bin, p.args...)
	p.cmd.Dir = p.dir
	p.cmd.Stdout, p.cmd.Stderr = p.log, p.log

	// A forked child of the server may hold the output open a little longer
	// than the server lives; nobody needs its output.
	p.cmd.WaitDelay = time.Second
	var err error
	if p.gone, err = crew.Spawn(p.cmd); err != nil {
		return fmt.Errorf("redistest: starting %s: %w", p.bin, err)
	}

	if err := p.awaitAnswer(); err != nil {
		p.kill()
		if strings.Contains(p.log.String(), "in use") {
			return errInUse
		}
		return fmt.Errorf("redistest: %s on %s: %w\n%s", p.bin, p.addr(), err, p.log)
	}

	return nil
}

// awaitAnswer waits until the process answers on its port.
func (p *process) awaitAnswer() error {
	return poll(func() (bool, error) {
		select {
		case <-p.gone:
			return false, errors.New("ended before it answered")
		default:
			return p.answers(), nil
		}
	})
}

// answers reports whether this very process answers, by its process id: a foreign program may listen on the port. answers
// does not use go-redis, which does not dial again for a second after it was refused.
func (p *process) answers() bool {
	conn, err := net.Dial("tcp", p.addr())
	if err != nil {
		return false
	}

	defer conn.Close()
	if err := conn.SetDeadline(time.Now().Add(time.Second)); err != nil {
		return false
	}

	fmt.Fprint(conn, "INFO server\r\n")
	want := fmt.Sprintf("process_id:%d", p.cmd.Process.Pid)

	lines := bufio.NewScanner(conn)
	for lines.Scan() {
		if lines.Text() == want {
			return true
		}
	}

	return false
}

// stop asks the process to end and waits until it has ended. It kills a process that is still there after longestWait.
func (p *process) stop() {
	// A paused process receives SIGTERM only when it runs again. Errors say that it is gone already.
	_ = servers.Continue(p.cmd.Process)
	_ = p.cmd.Process.Signal(syscall.SIGTERM)
	select {
	case <-p.gone:
	case <-time.After(longestWait):
		p.kill()
	}
}

// kill ends the process, paused or not, and waits until it is gone.
func (p *process) kill() {
	_ = p.cmd.Process.Kill() // an error says that it is gone already
	<-p.gone
}

// binary finds the server's program.
func binary() (string, error) {
	names := []string{"redis-server", "valkey-server"}
	if name := os.Getenv("REDIS_SERVER"); name != "" {
		names = []string{name}
	}
	for _, name := range names {
		if bin, err := exec.LookPath(name); err == nil {
			return bin, nil
		}
	}
	return "", fmt.Errorf("redistest: no %s on PATH: run `make redis`, or install it "+
		"(apt-get install redis-server, brew install redis, apk add redis), "+
		"or name another program in REDIS_SERVER", strings.Join(names, " or "))
}

// poll calls done until it returns true or an error. It returns that error, or one of its own after longestWait.
func poll(done func() (bool, error)) error {
	deadline := time.Now().Add(longestWait)
	for {
		switch ok, err := done(); {
		case err != nil:
			return err
		case ok:
			return nil
		case time.Now().After(deadline):
			return fmt.Errorf("not so after %v", longestWait)
		}
		time.Sleep(2 * time.Millisecond)
	}
}

// Rights returns the rights that a page of docs gives a user: what follows
// "ACL SETUSER NAME on >PASSWORD" there.
func Rights(t TB, page, name string) []string {
	t.Helper()
	text, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	m := regexp.MustCompile(`(?m)^ACL SETUSER `+name+` on >PASSWORD (.*)$`).FindAllSubmatch(text, -1)
	if len(m) != 1 {
		t.Fatalf("redistest: %s has %d lines for the user %q", page, len(m), name)
	}
	return strings.Fields(string(m[0][1]))
}

// Password is the password of all users that tests make.
const Password = "sesame-52"

// User makes a user with exactly the given rights, and returns the options of its clients.
func (s *Server) User(t TB, name string, rights []string) *redis.Options {
	t.Helper()
	words := []any{"ACL", "SETUSER", name, "reset", "on", ">" + Password}
	for _, right := range rights {
		words = append(words, right)
	}
	if err := s.Client(t).Do(context.Background(), words...).Err(); err != nil {
		t.Fatalf("redistest: %v on %s: %v", words, s.Addr, err)
	}
	o := s.Options()
	o.Username, o.Password = name, Password
	return o
}

// ReadValue reads one value of the Redis protocol, of version 2 or 3, and
// returns its bytes as they came.
func ReadValue(r *bufio.Reader) ([]byte, error) {
	var raw []byte

	// left is how many values are still to be read: a value with parts adds them.
	for left := 1; left > 0; left-- {
		line, err := r.ReadBytes('\n')
		if err != nil {
			return nil, err
		}

		raw = append(raw, line...)
		size, err := sizeOf(line)
		if err != nil {
			return nil, err
		}

		switch line[0] {
		case '$', '=', '!':
			if size < 0 {
				continue // a null
			}

			text := make([]byte, size+len("\r\n"))
			if _, err := io.ReadFull(r, text); err != nil {
				return nil, err
			}

			raw = append(raw, text...)

		case '*', '~', '>':
			left += max(0, size) // a null has the size -1
		case '%':
			left += 2 * size // keys and values
		}
	}

	return raw, nil
}

// sizeOf returns the number in the first line of a value that has parts, or 0 for
// values that have none.
func sizeOf(line []byte) (int, error) {
	if !bytes.ContainsRune([]byte("$=!*~>%"), rune(line[0])) {
		return 0, nil
	}
	size, err := strconv.Atoi(string(bytes.TrimSpace(line[1:])))
	if err != nil {
		return 0, fmt.Errorf("redistest: not the Redis protocol: %q", line)
	}
	return size, nil
}

// pushed reports whether a value is no reply but came by itself.
func pushed(raw []byte) bool { return raw[0] == '>' }

// commandName returns the name of a command, in lower case, or "" if there is none.
func commandName(raw []byte) string {
	lines := bytes.SplitN(raw, []byte("\r\n"), 4) // *3, $7, its name, the rest
	if len(lines) < 4 {
		return ""
	}
	return strings.ToLower(string(lines[2]))
}
