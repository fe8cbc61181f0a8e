package rendezvous

import (
	"bytes"
	"fmt"
	"os"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// bornOf returns when a process was started, in ticks of the clock since the boot.
func bornOf(pid int) (string, error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return "", err
	}

	// The second field is the name of the program in brackets, which may hold spaces and brackets.
	fields := bytes.Fields(text[bytes.LastIndexByte(text, ')')+1:])
	const born = 22 - 3 // the fields begin with the third
	if len(fields) <= born {
		return "", fmt.Errorf("/proc/%d/stat has no time", pid)
	}
	return string(fields[born]), nil
}

// awaitEnd returns when the process has ended.
func (p process) awaitEnd() {
	fd, err := unix.PidfdOpen(p.PID, 0)
	switch {
	case err == syscall.ESRCH:
		return
	// Linux before 5.3, or a sandbox.
	case err != nil:
		for p.lives() {
			time.Sleep(looks)
		}
		return
	}
	defer unix.Close(fd)

	// A later process may have the number by now.
	for p.lives() {
		_, err := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, -1)
		if err != unix.EINTR {
			return
		}
	}
}

// looks is how often a kernel without pidfd is asked whether a process lives.
const looks = 100 * time.Millisecond
