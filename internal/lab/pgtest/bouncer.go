package pgtest

import (
	"bytes"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	"github.com/fleetthrottle/throttle/internal/lab/crew"
	"github.com/fleetthrottle/throttle/internal/lab/servers"
)

// Bouncer starts a PgBouncer before the server, which gives a connection to the next client after each transaction, and
// returns the URL of the database behind it. It ends with the test.
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

	for end := time.Now().Add(longestWait); time.Now().Before(end); time.Sleep(5 * time.Millisecond) {
		select {
		case <-gone:
			s.t.Fatalf("pgtest: pgbouncer did not start\n%s", log)
		default:
		}

		if l, err := net.Dial("tcp", fmt.Sprintf("127.0.0.1:%d", port)); err == nil {
			_ = l.Close()
			break
		}
	}

	return fmt.Sprintf("postgres://test@127.0.0.1:%d/postgres?sslmode=disable", port)
}
