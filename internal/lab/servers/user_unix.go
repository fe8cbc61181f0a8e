//go:build unix

package servers

import (
	"fmt"
	"os"
	"os/exec"
	"os/user"
	"strconv"
	"strings"
	"syscall"
)

// A User is the user as which a server runs. Without a Credential it is the user of the program.
type User struct{ *syscall.Credential }

// FindUser returns the user of the program. Database servers refuse to run as root: then it returns the first of the named
// users that the machine has, or an error if there is none.
func FindUser(names ...string) (User, error) {
	if os.Getuid() != 0 {
		return User{}, nil
	}

	for _, name := range names {
		u, err := user.Lookup(name)
		if err != nil {
			continue
		}

		uid, _ := strconv.ParseUint(u.Uid, 10, 32) // they are numbers on these systems
		gid, _ := strconv.ParseUint(u.Gid, 10, 32)
		return User{&syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}}, nil
	}

	return User{}, fmt.Errorf("the server does not run as root, and there is no user %s", strings.Join(names, " or "))
}

// Give makes a folder the user's own.
func (u User) Give(dir string) error {
	if u.Credential == nil {
		return nil
	}
	return os.Chown(dir, int(u.Uid), int(u.Gid))
}

// Run has the user run a command, which is not started yet.
func (u User) Run(c *exec.Cmd) {
	if u.Credential != nil {
		c.SysProcAttr = &syscall.SysProcAttr{Credential: u.Credential}
	}
}
