//go:build unix

package mysqltest

import (
	"errors"
	"os"
	"os/exec"
	"os/user"
	"strconv"
	"syscall"
)

// A runner is the user as which the server runs: it refuses to run as root. nil: the user of the test.
type runner struct{ *syscall.Credential }

// serverUser returns the user mysql for a test that runs as root, or else nobody.
func serverUser() (runner, error) {
	if os.Getuid() != 0 {
		return runner{}, nil
	}
	for _, name := range []string{"mysql", "nobody"} {
		u, err := user.Lookup(name)
		if err != nil {
			continue
		}
		uid, _ := strconv.ParseUint(u.Uid, 10, 32) // they are numbers on these systems
		gid, _ := strconv.ParseUint(u.Gid, 10, 32)
		return runner{&syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}}, nil
	}
	return runner{}, errors.New("mysqltest: the server does not run as root, and there is no user mysql or nobody")
}

// give makes a folder the user's own.
func (r runner) give(dir string) error {
	if r.Credential == nil {
		return nil
	}
	return os.Chown(dir, int(r.Uid), int(r.Gid))
}

// run has the user run a command.
func (r runner) run(c *exec.Cmd) {
	if r.Credential != nil {
		c.SysProcAttr = &syscall.SysProcAttr{Credential: r.Credential}
	}
}
