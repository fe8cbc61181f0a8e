package filestore

import (
	"encoding/binary"
	"errors"
	"os"
	"syscall"
	"time"
)

// thisMachine is the machine that the program runs on.
type thisMachine struct{}

// boot implements [machine].
func (thisMachine) boot() (string, error) { return syscall.Sysctl("kern.bootsessionuuid") }

// clock takes the time of the boot from the wall clock. The kernel moves both when the clock is set.
func (thisMachine) clock() (sinceBoot, wall int64, err error) {
	for {
		before, err := booted()
		if err != nil {
			return 0, 0, err
		}

		wall := time.Now().UnixMicro()
		after, err := booted()
		if err != nil {
			return 0, 0, err
		}

		// Both readings agree, so the clock was not set between them.
		if before == after {
			return wall - before, wall, nil
		}
	}
}

// booted returns when the machine was booted, by its wall clock, in microseconds since the Unix epoch.
func booted() (micros int64, err error) {
	// The text is a timeval: 8 bytes of seconds, 4 of microseconds, and padding, of which a last byte of 0 is cut off.
	s, err := syscall.Sysctl("kern.boottime")
	if err != nil {
		return 0, os.NewSyscallError("sysctl kern.boottime", err)
	}
	if len(s) < 12 {
		return 0, errors.New("sysctl kern.boottime: too short")
	}
	b := []byte(s)
	return int64(binary.LittleEndian.Uint64(b))*1_000_000 + int64(binary.LittleEndian.Uint32(b[8:])), nil
}

// sharedBy returns the kind of a directory's file system if several machines share it, and otherwise "".
func sharedBy(dir string) (string, error) {
	const local = 0x1000 // MNT_LOCAL
	var s syscall.Statfs_t
	if err := syscall.Statfs(dir, &s); err != nil {
		return "", os.NewSyscallError("statfs", err)
	}
	if s.Flags&local != 0 {
		return "", nil
	}

	// The name is a text of C, which ends with a 0.
	var name []byte
	for _, c := range s.Fstypename {
		if c == 0 {
			break
		}
		name = append(name, byte(c))
	}

	return string(name), nil
}
