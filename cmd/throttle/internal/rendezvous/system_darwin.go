package rendezvous

import (
	"fmt"
	"net"

	"golang.org/x/sys/unix"
)

// bornOf returns when a process was started.
func bornOf(pid int) (string, error) {
	info, err := unix.SysctlKinfoProc("kern.proc.pid", pid)
	if err != nil {
		return "", err
	}
	at := info.Proc.P_starttime
	return fmt.Sprintf("%d.%06d", at.Sec, at.Usec), nil
}

// awaitNotice returns nil when the kernel tells that the process has ended, or an error if the kernel cannot tell: no
// free descriptor.
func awaitNotice(p process) error {
	queue, err := unix.Kqueue()
	if err != nil {
		return err
	}

	defer unix.Close(queue)

	watch := unix.Kevent_t{Ident: uint64(p.PID), Filter: unix.EVFILT_PROC, Flags: unix.EV_ADD | unix.EV_ONESHOT, Fflags: unix.NOTE_EXIT}

	// A later process may have the number by now.
	for p.lives() {
		_, err := unix.Kevent(queue, []unix.Kevent_t{watch}, make([]unix.Kevent_t, 1), nil)
		if err == unix.ESRCH {
			return nil
		}
		if err != unix.EINTR {
			return err
		}
	}
	return nil
}

// Own returns the listener: macOS does not say whose a connection is.
func Own(l net.Listener, _ func(line string)) net.Listener { return l }
