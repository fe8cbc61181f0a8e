//go:build linux || darwin

package filestore

import (
	"errors"
	"io/fs"
	"os"
	"runtime"
	"syscall"
	"time"
)

// openFlags are the flags with which all files are opened. Without them, opening a pipe or a file on which a process has a lease would wait.
const openFlags = syscall.O_NONBLOCK

// lock locks a file for this process. It returns false if other processes keep the lock for as long as patience. Then the
// kernel may still grant the lock later, and lock gives it back at once: so the caller must not lock the same open file again.
func lock(f *os.File, patience time.Duration) (locked bool, err error) {
	// Most often the lock is free.
	if err := flock(f, syscall.LOCK_EX|syscall.LOCK_NB); !errors.Is(err, syscall.EWOULDBLOCK) {
		return err == nil, err
	}

	// Processes that wait in the kernel are served in turn; processes that try again and again are not.
	got := make(chan error, 1)
	go func() { got <- flock(f, syscall.LOCK_EX) }()
	late := time.NewTimer(patience)
	defer late.Stop()

	select {
	case err := <-got:
		return err == nil, err
	case <-late.C:
		// The call in the kernel goes on. Give the lock back when it is granted, because nobody wants it any more.
		go func() {
			if <-got == nil {
				unlock(f)
			}
		}()

		return false, nil
	}
}

// unlock unlocks a file. That cannot fail while the file is open.
func unlock(f *os.File) { _ = flock(f, syscall.LOCK_UN) }

// flock is the call flock(2). A signal does not end it.
func flock(f *os.File, how int) error {
	// Without KeepAlive the garbage collector could close the file, and the kernel give its number to a new file.
	defer runtime.KeepAlive(f)
	for {
		if err := syscall.Flock(int(f.Fd()), how); err != syscall.EINTR {
			return os.NewSyscallError("flock", err)
		}
	}
}

// giveTo gives a file the owner and the group of a directory, which only the superuser may do, or else the group alone, which members of the
// group may do. If the process may do neither, the file keeps its owner and group, and others use it by the rights for others.
func giveTo(f *os.File, dir fs.FileInfo) {
	of := dir.Sys().(*syscall.Stat_t)
	if f.Chown(int(of.Uid), int(of.Gid)) != nil {
		_ = f.Chown(-1, int(of.Gid))
	}
}

// links is how many names a file has.
func links(i fs.FileInfo) uint64 { return uint64(i.Sys().(*syscall.Stat_t).Nlink) }

// isOwn reports whether a file belongs to the user of this process.
func isOwn(i fs.FileInfo) bool { return int(i.Sys().(*syscall.Stat_t).Uid) == os.Geteuid() }
