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
	"testing"
	"time"

	"github.com/fleetthrottle/throttle/internal/crew"
)

// longestWait is used up only by what is broken.
const longestWait = 60 * time.Second

// Start starts a server, waits until it answers, and returns the URL of its database. The server ends with the
// test.
func Start(t testing.TB) string {
	t.Helper()
	bin, err := programs()
	if err != nil {
		t.Fatal(err)
	}
	// Not t.TempDir: the server may run as another user, who cannot enter that.
	dir, err := os.MkdirTemp("", "pgtest")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	data := filepath.Join(dir, "data")
	user, err := serverUser()
	if err == nil {
		err = user.give(dir)
	}
	if err != nil {
		t.Fatal(err)
	}
	initdb := exec.Command(filepath.Join(bin, "initdb"), "-D", data, "-U", "test", "-A", "trust", "-E", "UTF8", "--no-locale", "--no-sync")
	initdb.Dir = dir
	user.run(initdb)
	if out, err := initdb.CombinedOutput(); err != nil {
		t.Fatalf("pgtest: initdb: %v\n%s", err, out)
	}
	for range 10 {
		port := freePort(t)
		log := new(bytes.Buffer)
		server := exec.Command(filepath.Join(bin, "postgres"), "-D", data, "-h", "127.0.0.1", "-p", fmt.Sprint(port),
			"-c", "unix_socket_directories=", "-c", "fsync=off", "-c", "max_connections=50", "-c", "shared_buffers=16MB")
		server.Dir, server.Stdout, server.Stderr, server.WaitDelay = dir, log, log, time.Second
		user.run(server)
		gone, err := crew.Spawn(server)
		if err != nil {
			t.Fatalf("pgtest: starting postgres: %v", err)
		}
		if answers(port, data, gone) {
			t.Cleanup(func() {
				_ = server.Process.Signal(os.Interrupt) // ends all sessions, and then the server
				select {
				case <-gone:
				case <-time.After(longestWait):
					_ = server.Process.Kill()
					<-gone
				}
			})
			return fmt.Sprintf("postgres://test@127.0.0.1:%d/postgres?sslmode=disable", port)
		}
		_ = server.Process.Kill() // an error says that it is gone already
		if <-gone; !bytes.Contains(log.Bytes(), []byte("in use")) {
			t.Fatalf("pgtest: postgres did not start\n%s", log)
		}
	}
	t.Fatal("pgtest: each free port was taken by another program")
	return ""
}

// answers waits until the server says in its folder that it is ready, and reports whether it is: another program may have
// the port.
func answers(port int, data string, gone <-chan struct{}) bool {
	for end := time.Now().Add(longestWait); time.Now().Before(end); time.Sleep(5 * time.Millisecond) {
		select {
		case <-gone:
			return false
		default:
		}
		state, _ := os.ReadFile(filepath.Join(data, "postmaster.pid"))
		lines := bytes.Split(state, []byte("\n"))
		if len(lines) > 7 && string(bytes.TrimSpace(lines[3])) == fmt.Sprint(port) && bytes.HasPrefix(lines[7], []byte("ready")) {
			return true
		}
	}
	return false
}

// freePort returns a port on which nobody listens now.
func freePort(t testing.TB) int {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().(*net.TCPAddr).Port
}

// programs returns the folder of initdb and postgres: that of POSTGRES_BIN, or that of the newest version.
func programs() (string, error) {
	var folders []string
	if bin := os.Getenv("POSTGRES_BIN"); bin != "" {
		folders = []string{bin}
	} else {
		for _, pattern := range []string{"/usr/lib/postgresql/*/bin", "/usr/libexec/postgresql*", "/opt/homebrew/opt/postgresql@*/bin"} {
			found, _ := filepath.Glob(pattern) // the patterns are good
			slices.Reverse(found)
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
