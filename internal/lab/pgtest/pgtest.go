// Package pgtest runs PostgreSQL servers for tests, each with an empty database on a free port of the
// loopback.
package pgtest

import (
	"bytes"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/fleetthrottle/throttle/internal/lab/crew"
	"github.com/fleetthrottle/throttle/internal/lab/servers"
)

// longestWait is used up only if something is broken.
const longestWait = 60 * time.Second

// A Server is a PostgreSQL server.
type Server struct {
	Port int

	t        servers.TB
	bin      string
	dir      string // the database is in data below it
	user     servers.User
	settings []string
	log      *bytes.Buffer
	process  *exec.Cmd
	gone     <-chan struct{} // closed when the process has ended
}

// quick are settings of servers whose data need not outlive a crash of the machine.
var quick = []string{"fsync=off", "max_connections=100", "shared_buffers=16MB"}

// Start starts a server, waits until it answers, and returns it. Settings (name=value) come after those for
// quick tests. The server ends with the test.
func Start(t servers.TB, settings ...string) *Server {
	t.Helper()

	// Not t.TempDir: the server may run as a different user, who cannot enter the test's folder.
	return StartIn(t, "", settings...)
}

// StartIn is Start with the data in a new folder of a folder, which the server's user must be able to enter; "" is the folder of
// temporary files.
func StartIn(t servers.TB, folder string, settings ...string) *Server {
	t.Helper()
	s := newServer(t, folder, settings)
	if pristine.folder == "" {
		s.initialize(s.data())
	} else {
		pristine.once.Do(func() { s.initialize(pristine.data()) })
		s.must("cp", "-Rp", pristine.data(), s.data())
	}

	s.Restart()
	return s
}

// pristine are the data of a server that has never run. Main names their folder, and the first server of the tests makes them.
var pristine pristineData

type pristineData struct {
	once   sync.Once
	folder string
}

func (p *pristineData) data() string { return filepath.Join(p.folder, "data") }

// Main runs the tests. Their servers copy the data of one initdb, which takes as long as seven copies. A package whose
// tests start many servers has
//
//	func TestMain(m *testing.M) { os.Exit(pgtest.Main(m)) }
func Main(m *testing.M) int {
	folder, err := os.MkdirTemp("", "pgtest")
	if err != nil {
		fmt.Fprintln(os.Stderr, "pgtest:", err)
		return 1
	}
	defer os.RemoveAll(folder)

	pristine.folder = folder
	return m.Run()
}

// initialize makes the data of a new server.
func (s *Server) initialize(data string) {
	s.t.Helper()
	if err := s.user.Give(filepath.Dir(data)); err != nil {
		s.t.Fatalf("pgtest: %v", err)
	}
	s.must("initdb", "-D", data, "-U", "test", "-A", "trust", "-E", "UTF8", "--no-locale", "--no-sync")
}

// newServer returns a server that has no data yet, and does not run.
func newServer(t servers.TB, folder string, settings []string) *Server {
	t.Helper()
	bin, err := programs()
	if err != nil {
		t.Fatal(err)
	}

	dir, err := os.MkdirTemp(folder, "pgtest")
	if err != nil {
		t.Fatal(err)
	}

	// PostgreSQL refuses to run as root.
	user, err := servers.FindUser("postgres", "nobody")
	if err == nil {
		err = user.Give(dir)
	}
	if err != nil {
		t.Fatalf("pgtest: %v", err)
	}

	s := &Server{t: t, bin: bin, dir: dir, user: user, settings: append(quick[:len(quick):len(quick)], settings...)}
	t.Cleanup(func() {
		s.Stop()
		_ = os.RemoveAll(dir)
	})

	return s
}

func (s *Server) data() string { return filepath.Join(s.dir, "data") }

// URL is the address of the server's database.
func (s *Server) URL() string {
	return fmt.Sprintf("postgres://test@127.0.0.1:%d/postgres?sslmode=disable", s.Port)
}

// Addr is the host and the port of the server.
func (s *Server) Addr() string { return fmt.Sprintf("127.0.0.1:%d", s.Port) }

// Log returns the server's log.
func (s *Server) Log() string { return s.log.String() }

// must runs a program of the server, or cp, as the server's user. The test fails if the program does.
func (s *Server) must(name string, args ...string) {
	s.t.Helper()
	if name != "cp" {
		name = filepath.Join(s.bin, name)
	}
	c := exec.Command(name, args...)
	c.Dir = s.dir
	s.user.Run(c)
	if out, err := c.CombinedOutput(); err != nil {
		s.t.Fatalf("pgtest: %s: %v\n%s", name, err, out)
	}
}

// Restart starts a server that does not run, and waits until it answers. The server keeps its port. At its first start it gets a free port.
func (s *Server) Restart() {
	s.t.Helper()
	isNew := s.Port == 0
	for {
		if isNew {
			var err error
			if s.Port, err = servers.FreePort(); err != nil {
				s.t.Fatalf("pgtest: %v", err)
			}
		}

		if s.start() {
			return
		}

		// A foreign program may have taken the free port meanwhile: try another one.
		if !isNew || !strings.Contains(s.log.String(), "in use") {
			s.t.Fatalf("pgtest: postgres did not start\n%s", s.log)
		}
	}
}

// start starts the process, and reports whether the server answers. It kills a server that does not.
func (s *Server) start() bool {
	s.t.Helper()
	args := []string{"-D", s.data(), "-h", "127.0.0.1", "-p", fmt.Sprint(s.Port), "-c", "unix_socket_directories="}
	for _, setting := range s.settings {
		args = append(args, "-c", setting)
	}

	s.log = new(bytes.Buffer)
	s.process = exec.Command(filepath.Join(s.bin, "postgres"), args...)
	s.process.Dir, s.process.Stdout, s.process.Stderr, s.process.WaitDelay = s.dir, s.log, s.log, time.Second
	s.user.Run(s.process)

	var err error
	if s.gone, err = crew.Spawn(s.process); err != nil {
		s.t.Fatalf("pgtest: starting postgres: %v", err)
	}
	if s.answers() {
		return true
	}

	_ = s.process.Process.Kill() // an error says that it is gone already
	<-s.gone
	return false
}

// answers waits until the server is ready, and reports whether it is: it may end, or need too long. The server says so in
// its folder. An answer on the port might be a foreign program's.
func (s *Server) answers() bool {
	for end := time.Now().Add(longestWait); time.Now().Before(end); time.Sleep(5 * time.Millisecond) {
		select {
		case <-s.gone:
			return false
		default:
		}

		// Of the file's lines the first has the process number, the fourth the port, and the eighth the state.
		state, _ := os.ReadFile(filepath.Join(s.data(), "postmaster.pid"))
		lines := bytes.Split(state, []byte("\n"))
		if len(lines) > 7 && string(bytes.TrimSpace(lines[0])) == fmt.Sprint(s.process.Process.Pid) &&
			string(bytes.TrimSpace(lines[3])) == fmt.Sprint(s.Port) && bytes.HasPrefix(lines[7], []byte("ready")) {
			return true
		}
	}

	return false
}

// Stop ends all sessions, and then the server, if it runs.
func (s *Server) Stop() { s.end(os.Interrupt) }

// Kill ends the server as a crash does, if it runs. What was committed is there when it is started again.
func (s *Server) Kill() { s.end(os.Kill) }

// end ends the server by a signal, if it runs, and kills a server that the signal does not end.
func (s *Server) end(how os.Signal) {
	if s.gone == nil {
		return
	}
	_ = s.process.Process.Signal(how) // an error says that it is gone already
	select {
	case <-s.gone:
	case <-time.After(longestWait):
		_ = s.process.Process.Kill()
		<-s.gone
	}
	s.gone = nil
}

// programs returns the folder of initdb and postgres: the folder that POSTGRES_BIN names, or else the newest version's in
// the usual folders, or the one on PATH.
func programs() (string, error) {
	var folders []string
	if bin := os.Getenv("POSTGRES_BIN"); bin != "" {
		folders = []string{bin}
	} else {
		for _, pattern := range []string{"/usr/lib/postgresql/*/bin", "/usr/libexec/postgresql*", "/opt/homebrew/opt/postgresql@*/bin"} {
			found, _ := filepath.Glob(pattern) // the patterns are good
			slices.Reverse(found)              // the newest version first
			folders = append(folders, found...)
		}

		if path, err := exec.LookPath("initdb"); err == nil {
			folders = append(folders, filepath.Dir(path))
		}
	}

	for _, bin := range folders {
		if isProgram(bin, "initdb") && isProgram(bin, "postgres") {
			return bin, nil
		}
	}

	return "", errors.New("pgtest: no initdb and postgres: run `make postgres`, or install PostgreSQL " +
		"(apt-get install postgresql, brew install postgresql@17, apk add postgresql), or name their folder in POSTGRES_BIN")
}

func isProgram(bin, name string) bool {
	_, err := exec.LookPath(filepath.Join(bin, name))
	return err == nil
}

// Standby starts a server that has a copy of this server's data, and follows it. This server must have been started
// with settings that allow it.
func (s *Server) Standby(name string, settings ...string) *Server {
	s.t.Helper()
	// newServer adds the settings of quick itself.
	standby := newServer(s.t, "", append(s.settings[len(quick):len(s.settings):len(s.settings)], settings...))
	standby.must("pg_basebackup", "-D", standby.data(), "-d", s.URL()+"&application_name="+name, "-R", "-X", "stream", "-c", "fast", "--no-sync")
	standby.Restart()
	return standby
}

// Promote makes a standby the server that others write to.
func (s *Server) Promote() {
	s.t.Helper()
	s.must("pg_ctl", "promote", "-D", s.data(), "-w")
}

// Bouncer starts a PgBouncer before the server, and returns the URL of the database behind it. PgBouncer gives a connection
// to the next client after each transaction, and ends with the test.
func (s *Server) Bouncer() string {
	s.t.Helper()
	program, err := exec.LookPath("pgbouncer")
	if err != nil {
		if program, err = exec.LookPath("/usr/sbin/pgbouncer"); err != nil {
			s.t.Fatal("pgtest: no pgbouncer: run `make pgbouncer`, or install it (apt-get install pgbouncer, brew install pgbouncer)")
		}
	}

	port, err := servers.FreePort()
	if err != nil {
		s.t.Fatalf("pgtest: %v", err)
	}

	config := filepath.Join(s.dir, "pgbouncer.ini")
	text := fmt.Sprintf("[databases]\npostgres = host=127.0.0.1 port=%d user=test\n[pgbouncer]\nlisten_addr = 127.0.0.1\nlisten_port = %d\n"+
		"unix_socket_dir =\nauth_type = any\npool_mode = transaction\n", s.Port, port)
	if err := os.WriteFile(config, []byte(text), 0o644); err != nil {
		s.t.Fatal(err)
	}

	log := new(bytes.Buffer)
	c := exec.Command(program, config)
	c.Dir, c.Stdout, c.Stderr, c.WaitDelay = s.dir, log, log, time.Second
	s.user.Run(c)

	gone, err := crew.Spawn(c)
	if err != nil {
		s.t.Fatalf("pgtest: starting pgbouncer: %v", err)
	}

	s.t.Cleanup(func() {
		_ = c.Process.Kill()
		<-gone
	})

	// Wait until it accepts connections, or is gone.
	for end := time.Now().Add(longestWait); time.Now().Before(end); time.Sleep(5 * time.Millisecond) {
		select {
		case <-gone:
			s.t.Fatalf("pgtest: pgbouncer did not start\n%s", log)
		default:
		}

		if l, err := net.Dial("tcp", fmt.Sprintf("127.0.0.1:%d", port)); err == nil {
			_ = l.Close()
			return fmt.Sprintf("postgres://test@127.0.0.1:%d/postgres?sslmode=disable", port)
		}
	}

	s.t.Fatalf("pgtest: pgbouncer accepts no connections\n%s", log)
	return ""
}
