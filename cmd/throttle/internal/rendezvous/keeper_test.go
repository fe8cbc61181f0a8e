//go:build linux || darwin

package rendezvous

import (
	"errors"
	"os/exec"
	"path/filepath"
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
