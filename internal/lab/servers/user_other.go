//go:build !unix

package servers

import "os/exec"

// A User is the user as which a server runs: the program's own.
type User struct{}

// FindUser returns the user of the program.
func FindUser(...string) (User, error) { return User{}, nil }

// Give does nothing.
func (User) Give(string) error { return nil }

// Run does nothing.
func (User) Run(*exec.Cmd) {}
