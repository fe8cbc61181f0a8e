//go:build linux || darwin

package rendezvous

import (
	"encoding/json"
	"errors"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// TestSupervise_NoWorkerAtTheEnd: a keeper whose worker fails again and again ends with the last member.
func TestSupervise_NoWorkerAtTheEnd(t *testing.T) {
	missing := filepath.Join(t.TempDir(), "missing") // has no room for the log of a worker
	k := &keeper{dir: missing, worker: Command{Dir: missing}, ended: make(chan struct{})}
	close(k.ended)
	require.NoError(t, k.supervise(nil))
}

// TestAwaitEnd: a living process has not ended, whether or not the kernel tells of ends. On macOS a keeper without a free
// descriptor once took all living members for ended.
func TestAwaitEnd(t *testing.T) {
	for name, notice := range map[string]func(process) error{
		"with notices":    awaitNotice,
		"without notices": func(process) error { return errors.New("no descriptor") },
	} {
		t.Run(name, func(t *testing.T) {
			member := exec.Command("cat")
			stdin, err := member.StdinPipe()
			require.NoError(t, err)
			require.NoError(t, member.Start())

			p, err := processOf(member.Process.Pid)
			require.NoError(t, err)
			ended := make(chan struct{})
			go func() {
				p.awaitEnd(notice)
				close(ended)
			}()

			select {
			case <-ended:
				t.Error("the process lives")
			case <-time.After(3 * looks):
			}

			require.NoError(t, stdin.Close())
			require.NoError(t, member.Wait())
			<-ended
		})
	}
}

// TestLives: without a free descriptor a living process has not ended, and no process lives under a number that is none.
func TestLives(t *testing.T) {
	self, err := processOf(os.Getpid())
	require.NoError(t, err)
	require.True(t, self.lives())

	var limit syscall.Rlimit
	require.NoError(t, syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit))
	none := limit
	none.Cur = 1 // new descriptors would be above
	require.NoError(t, syscall.Setrlimit(syscall.RLIMIT_NOFILE, &none))
	alive, ghost := self.lives(), process{PID: -1}.lives() || process{PID: 0}.lives() || process{PID: 1<<31 - 1}.lives()
	require.NoError(t, syscall.Setrlimit(syscall.RLIMIT_NOFILE, &limit))
	require.True(t, alive)
	require.False(t, ghost)
}

// A busyDoor is a listener whose first Accept fails, as without a free descriptor.
type busyDoor struct {
	net.Listener
	failed bool
}

func (d *busyDoor) Accept() (net.Conn, error) {
	if !d.failed {
		d.failed = true
		return nil, &net.OpError{Op: "accept", Err: os.NewSyscallError("accept4", syscall.EMFILE)}
	}
	return d.Listener.Accept()
}

// TestWelcome_AfterAnError: a keeper that could not accept one member accepts the next, and ends with its door.
func TestWelcome_AfterAnError(t *testing.T) {
	self, err := processOf(os.Getpid())
	require.NoError(t, err)
	dir := t.TempDir()
	l, err := net.Listen("unix", filepath.Join(dir, socketName))
	require.NoError(t, err)

	k := &keeper{dir: dir, address: "127.0.0.1:1", members: map[process]bool{self: true}}
	ended := make(chan struct{})
	go func() {
		k.welcome(&busyDoor{Listener: l})
		close(ended)
	}()

	conn, err := net.Dial("unix", filepath.Join(dir, socketName))
	require.NoError(t, err)
	defer conn.Close()
	require.NoError(t, conn.SetDeadline(time.Now().Add(time.Minute)))
	require.NoError(t, json.NewEncoder(conn).Encode(request{self}))
	var a answer
	require.NoError(t, json.NewDecoder(conn).Decode(&a))
	require.Equal(t, k.address, a.Address)

	require.NoError(t, l.Close())
	<-ended
}
