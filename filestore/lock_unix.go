//go:build linux || darwin

package filestore

import (
	"errors"
	"os"
	"runtime"
	"syscall"
	"time"
)

// lock locks a file for this process, and returns false if another process has had the lock for
// all of the given time. Then the file may be locked for a moment later: it is not to be locked again.
func lock(f *os.File, most time.Duration) (locked bool, err error) {
	if err := flock(f, syscall.LOCK_EX|syscall.LOCK_NB); !errors.Is(err, syscall.EWOULDBLOCK) {
		return err == nil, err
	}
	// Processes that wait in the kernel are served in turn; those that try again and again are not.
	got := make(chan error, 1)
	go func() { got <- flock(f, syscall.LOCK_EX) }()
	late := time.NewTimer(most)
	defer late.Stop()
	select {
	case err := <-got:
		return err == nil, err
	case <-late.C:
		go func() {
			if <-got == nil {
				unlock(f)
			}
		}()
		return false, nil
	}
}

func unlock(f *os.File) { _ = flock(f, syscall.LOCK_UN) } // which cannot fail for a file that is open

func flock(f *os.File, how int) error {
	defer runtime.KeepAlive(f) // a file that nobody has any more is closed, and its number is that of another one
	for {
		if err := syscall.Flock(int(f.Fd()), how); err != syscall.EINTR {
			return os.NewSyscallError("flock", err)
		}
	}
}
