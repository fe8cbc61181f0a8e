package redistest_test

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fleetthrottle/throttle/internal/lab/redistest"
)

// childEnv tells the test binary that it is the child of a test.
const childEnv = "REDISTEST_CHILD"

// A copy of the test binary starts a server and is killed. The connection to
// that server must end.
func TestServerEndsWithAKilledBinary(t *testing.T) {
	if os.Getenv(childEnv) != "" {
		fmt.Println(redistest.Single(t).Addr)
		_, err := io.Copy(io.Discard, os.Stdin) // until killed
		require.NoError(t, err)
		return
	}
	child := exec.Command(os.Args[0], "-test.run=^TestServerEndsWithAKilledBinary$")
	child.Env = append(os.Environ(), childEnv+"=1")
	_, err := child.StdinPipe()
	require.NoError(t, err)
	output, err := child.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, child.Start())
	addr, err := bufio.NewReader(output).ReadString('\n')
	require.NoError(t, err)
	conn, err := net.Dial("tcp", strings.TrimSpace(addr))
	require.NoError(t, err)
	defer conn.Close()
	// The deadline only keeps a failure from lasting forever.
	require.NoError(t, conn.SetDeadline(time.Now().Add(30*time.Second)))
	replies := bufio.NewReader(conn)
	_, err = fmt.Fprint(conn, "PING\r\n")
	require.NoError(t, err)
	pong, err := replies.ReadString('\n')
	require.NoError(t, err)
	require.Equal(t, "+PONG\r\n", pong)

	require.NoError(t, child.Process.Kill())
	require.EqualError(t, child.Wait(), "signal: killed")
	_, err = replies.ReadByte()
	require.Equal(t, io.EOF, err)
}

// The thread of the goroutine that asked for a server ends; the server must
// not end with it.
func TestServerOutlivesTheThreadThatAskedForIt(t *testing.T) {
	var s *redistest.Server
	tid := onEndingThread(func() { s = redistest.Single(t) })
	task := fmt.Sprintf("/proc/self/task/%d", tid)
	require.Eventually(t, func() bool {
		_, err := os.Stat(task)
		return errors.Is(err, fs.ErrNotExist)
	}, 30*time.Second, time.Millisecond, "the thread lives on")
	requireServes(t, s.Client(t))
}

// onEndingThread runs f on a thread that then ends and returns the thread's
// id. The main thread never ends: it is kept busy while f runs on another.
func onEndingThread(f func()) (tid int) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		runtime.LockOSThread() // a goroutine that ends locked ends its thread
		tid = syscall.Gettid()
		if tid != os.Getpid() {
			f()
			return
		}
		tid = onEndingThread(f)
		runtime.UnlockOSThread()
	}()
	<-done
	return tid
}
