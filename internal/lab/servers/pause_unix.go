//go:build unix

package servers

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"syscall"
	"time"
)

// longestStop is used up only if something is broken.
const longestStop = time.Minute

// Pause keeps a process from running, as a machine that hangs would, and returns when all of its threads stand still. On a
// busy machine threads run on for milliseconds after the signal was sent, and a server of many threads still answers with them.
func Pause(p *os.Process) error {
	if err := p.Signal(syscall.SIGSTOP); err != nil {
		return err
	}
	if runtime.GOOS != "linux" {
		return nil // other systems do not show their threads
	}

	for begin := time.Now(); ; time.Sleep(100 * time.Microsecond) {
		running, err := runningThreads(p.Pid)
		switch {
		case err != nil:
			return err
		case running == 0:
			return nil
		case time.Since(begin) > longestStop:
			return fmt.Errorf("%d threads of process %d run on after SIGSTOP", running, p.Pid)
		}
	}
}

// Continue lets a paused process run on.
func Continue(p *os.Process) error { return p.Signal(syscall.SIGCONT) }

// runningThreads counts the threads of a process that are not stopped, by the state that proc(5) shows for each of them. A process
// that is gone has none.
func runningThreads(pid int) (int, error) {
	stats, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/stat", pid))
	if err != nil {
		return 0, err
	}

	running := 0
	for _, path := range stats {
		stat, err := os.ReadFile(path)
		if err != nil {
			continue // the thread has ended
		}

		// The state follows the name of the program, which stands in brackets and may hold any byte.
		_, state, _ := bytes.Cut(stat[bytes.LastIndexByte(stat, ')')+1:], []byte(" "))
		if len(state) > 0 && !slices.Contains([]byte("TtZX"), state[0]) {
			running++
		}
	}
	return running, nil
}
