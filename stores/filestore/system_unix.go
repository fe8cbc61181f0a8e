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

// openFlags are those with which all files are opened. A pipe, or a file that somebody has a lease on, would otherwise be waited for.
const openFlags = syscall.O_NONBLOCK

// lock locks a file for this process. It returns false if other processes have had the lock for all of the time patience. Then the
// kernel may give the lock to this process later, for a moment: the caller must not lock the same open file again.
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
		// The kernel gives the lock later, when nobody wants it any more.
		go func() {
			if <-got == nil {
				unlock(f)
			}
		}()

		return false, nil
	}
}

// unlock unlocks a file, which cannot fail while the file is open.
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

// giveTo gives a file to the owner of a directory, which only the superuser may do, or to its group, which its members may do. A
// process that may do neither keeps the file, which all others use by the directory's rights for others.
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
