package crew

import (
	"os/exec"
	"runtime"
)

// Spawn starts a process that ends with this program, on Linux even if that is
// killed. The channel is closed when the process has ended and was reaped.
//
// A goroutine stays on its thread until then. Linux sends the parent-death
// signal when the *thread* that started the process ends, and the Go runtime
// ends threads as it likes: without the lock a server could be killed in the
// middle of its test.
func Spawn(cmd *exec.Cmd) (<-chan struct{}, error) {
	dieWithParent(cmd)
	started, gone := make(chan error), make(chan struct{})
	go func() {
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		err := cmd.Start()
		started <- err
		if err != nil {
			return
		}

		// How it ended does not matter: the code that started it ends it.
		_ = cmd.Wait()
		close(gone)
	}()

	return gone, <-started
}
