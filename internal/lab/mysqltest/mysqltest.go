// Package mysqltest runs MariaDB servers, or MySQL's, for tests, each on a free port of the loopback.
//
// It is MariaDB's unless the environment variable MYSQL_SERVER names a different program. A server that is
// missing fails the test.
package mysqltest

import (
	"bytes"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/fleetthrottle/throttle/internal/lab/crew"
	"github.com/fleetthrottle/throttle/internal/lab/servers"
)

// longestWait is used up only if something is broken.
const longestWait = 60 * time.Second

// A Server is a database server, with the user root and no password.
type Server struct {
	programs programs
	user     servers.User
	dir      string
	args     []string
	port     int

	mu   sync.Mutex
	cmd  *exec.Cmd
	gone <-chan struct{}
	log  *bytes.Buffer
}

// Start starts a server with more arguments than usual, and waits until it answers. It ends with the test.
// Its files are in memory where that is possible.
func Start(t servers.TB, args ...string) *Server {
	t.Helper()
	return StartIn(t, memory(), args...)
}

// StartIn is Start with files in a new folder of a folder. The server's user must be able to enter that folder, and may not
// be able to enter a test's own folder.
func StartIn(t servers.TB, folder string, args ...string) *Server {
	t.Helper()
	s := &Server{args: args}

	var err error
	if s.programs, err = find(); err == nil {
		s.user, err = servers.FindUser("mysql", "nobody")
	}
	if err != nil {
		t.Fatalf("mysqltest: %v", err)
	}
	if s.dir, err = os.MkdirTemp(folder, "mysqltest"); err != nil {
		t.Fatal(err)
	}

	t.Cleanup(func() {
		s.Kill()
		os.RemoveAll(s.dir)
	})

	if err := s.user.Give(s.dir); err != nil {
		t.Fatal(err)
	}

	// Make the system tables, which takes most of the time.
	initialize := s.programs.initialize(s.data())
	initialize.Dir = s.dir
	initialize.Env = append(os.Environ(), "TMPDIR="+s.dir) // two servers that begin at once take the same names for temporary files
	s.user.Run(initialize)
	if out, err := initialize.CombinedOutput(); err != nil {
		t.Fatalf("mysqltest: %v: %v\n%s", initialize, err, out)
	}

	// A free port may be taken before the server has it, so try again with a new one.
	for {
		if s.port, err = servers.FreePort(); err != nil {
			t.Fatalf("mysqltest: %v", err)
		}
		if err = s.Run(); err == nil {
			return s
		}
		if !bytes.Contains(s.log.Bytes(), []byte("Address already in use")) {
			t.Fatal(err)
		}
	}
}

// memory returns a folder that is in memory, or the folder of temporary files.
func memory() string {
	if i, err := os.Stat("/dev/shm"); err == nil && i.IsDir() {
		return "/dev/shm"
	}
	return ""
}

func (s *Server) data() string { return filepath.Join(s.dir, "data") }

// Run starts the new or killed server with its files and on its port, and waits until it answers. It returns an error if
// the server ends before, or does not answer for long; then the server is gone.
func (s *Server) Run() error {
	s.mu.Lock()
	defer s.mu.Unlock()

	s.log = new(bytes.Buffer)
	s.cmd = exec.Command(s.programs.server, append([]string{
		"--no-defaults", "--datadir=" + s.data(), "--bind-address=127.0.0.1", fmt.Sprint("--port=", s.port),
		"--socket=" + filepath.Join(s.dir, "socket"), "--pid-file=" + filepath.Join(s.dir, "pid"), "--tmpdir=" + s.dir,
		"--innodb-buffer-pool-size=32M",
	}, append(s.programs.also, s.args...)...)...)

	// The server runs as its user, and ends with this process.
	s.cmd.Dir, s.cmd.Stdout, s.cmd.Stderr, s.cmd.WaitDelay = s.dir, s.log, s.log, time.Second
	s.user.Run(s.cmd)

	var err error
	if s.gone, err = crew.Spawn(s.cmd); err != nil {
		return fmt.Errorf("mysqltest: %w", err)
	}

	// Wait until it answers, or is gone.
	for end := time.Now().Add(longestWait); time.Now().Before(end); time.Sleep(2 * time.Millisecond) {
		select {
		case <-s.gone:
			return fmt.Errorf("mysqltest: %s did not start\n%s", s.programs.server, s.log)
		default:
			if s.answers() {
				return nil
			}
		}
	}

	_ = s.cmd.Process.Kill()
	<-s.gone
	return fmt.Errorf("mysqltest: %s does not answer\n%s", s.programs.server, s.log)
}

// answers reports whether this server listens. If a foreign program has the port, this server has no pid file.
func (s *Server) answers() bool {
	if _, err := os.Stat(filepath.Join(s.dir, "pid")); err != nil {
		return false
	}
	c, err := net.DialTimeout("tcp", s.Addr(), time.Second)
	if err != nil {
		return false
	}
	defer c.Close()
	_ = c.SetReadDeadline(time.Now().Add(time.Second)) // a connection that is open has deadlines
	greeting := make([]byte, 5)
	n, err := c.Read(greeting)
	return err == nil && n == len(greeting) && greeting[4] == 10 // the protocol's version; 255 is an error
}

// Kill ends the server as a crash would, if it was started.
func (s *Server) Kill() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.cmd != nil && s.cmd.Process != nil {
		_ = s.cmd.Process.Kill() // an error says that it is gone already
		<-s.gone
	}
}

// Pause keeps the server from running, as a machine that hangs would: its connections stay open and nobody answers.
func (s *Server) Pause() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return servers.Pause(s.cmd.Process)
}

// Continue lets a paused server run on.
func (s *Server) Continue() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return servers.Continue(s.cmd.Process)
}

// Addr is where the server listens.
func (s *Server) Addr() string { return fmt.Sprintf("127.0.0.1:%d", s.port) }

// Version is the version that the server's program prints.
func (s *Server) Version() string {
	out, err := exec.Command(s.programs.server, "--version").CombinedOutput()
	if err != nil {
		return err.Error()
	}
	return string(bytes.TrimSpace(out))
}

// programs are the programs of one installation.
type programs struct {
	server  string
	install string   // MariaDB's mariadb-install-db; MySQL has none
	also    []string // arguments that only this kind of server knows
}

// find returns the programs of the server that MYSQL_SERVER names, or of MariaDB. A server named mysqld is MySQL's, which
// needs no second program.
func find() (programs, error) {
	if server := os.Getenv("MYSQL_SERVER"); server != "" {
		path, err := exec.LookPath(server)
		if err != nil {
			return programs{}, fmt.Errorf("MYSQL_SERVER: %w", err)
		}
		if strings.HasPrefix(filepath.Base(path), "mysqld") {
			return programs{server: path, also: []string{"--mysqlx=OFF", "--secure-file-priv=NULL"}}, nil
		}

		return mariadb(path)
	}

	path, err := look("mariadbd")
	if err != nil {
		return programs{}, errMissing
	}

	return mariadb(path)
}

var errMissing = errors.New("no mariadbd and mariadb-install-db: run `make mariadb`, or install MariaDB's server (apt-get install " +
	"mariadb-server-core mariadb-client-core, brew install mariadb, apk add mariadb), or name a server in MYSQL_SERVER")

func mariadb(server string) (programs, error) {
	install, err := look("mariadb-install-db")
	if err != nil {
		return programs{}, errMissing
	}
	return programs{server: server, install: install, also: []string{"--skip-name-resolve"}}, nil
}

// look is exec.LookPath, and looks in the folders where Debian and Fedora have servers as well.
func look(name string) (string, error) {
	path, err := exec.LookPath(name)
	for _, dir := range []string{"/usr/sbin", "/usr/libexec"} {
		if err != nil {
			path, err = exec.LookPath(filepath.Join(dir, name))
		}
	}
	return path, err
}

// initialize returns the command that makes the files of a server.
func (p programs) initialize(data string) *exec.Cmd {
	if p.install == "" {
		return exec.Command(p.server, "--no-defaults", "--initialize-insecure", "--datadir="+data)
	}
	return exec.Command(p.install, "--no-defaults", "--datadir="+data, "--auth-root-authentication-method=normal", "--skip-test-db",
		"--skip-name-resolve", "--innodb-log-file-size=8M")
}

// shared is the server of all tests that need only a database of their own.
var shared struct {
	sync.Mutex
	ends      []func() // stop it, or nil if Main does not run
	server    *Server
	databases int
}

// Main runs the tests and then stops the server of [Shared]. A package that uses Shared has
//
//	func TestMain(m *testing.M) { os.Exit(mysqltest.Main(m)) }
func Main(m *testing.M) int {
	shared.ends = make([]func(), 0, 1)
	code := m.Run()
	for _, end := range shared.ends {
		end()
	}
	return code
}

// A keeper lets resources live until the program ends, and not the test.
type keeper struct{ testing.TB }

func (keeper) Cleanup(end func()) { shared.ends = append(shared.ends, end) }

// Shared returns the data source name of a new database on a server that tests share. The package's TestMain must call [Main].
func Shared(t testing.TB) string {
	t.Helper()
	shared.Lock()
	defer shared.Unlock()
	if shared.ends == nil {
		t.Fatal("mysqltest: TestMain does not call mysqltest.Main")
	}
	if shared.server == nil {
		shared.server = Start(keeper{t})
	}
	shared.databases++
	return shared.server.Database(t, fmt.Sprint("shared", shared.databases))
}

// Database makes a database unless it is there, and returns its data source name for root. The program has to import
// a driver that is registered as mysql: this package imports none, so that the root module does not need one.
func (s *Server) Database(t servers.TB, name string) string {
	t.Helper()
	db, err := sql.Open("mysql", s.dsn(""))
	if err != nil {
		t.Fatalf("mysqltest: %v", err)
	}
	_, err = db.ExecContext(context.Background(), "CREATE DATABASE IF NOT EXISTS "+name)
	if err := errors.Join(err, db.Close()); err != nil {
		t.Fatalf("mysqltest: %v", err)
	}
	return s.dsn(name)
}

func (s *Server) dsn(database string) string {
	return fmt.Sprintf("root@tcp(%s)/%s?multiStatements=true", s.Addr(), database)
}
