//go:build !unix

// Package serveruser has the user as which a database server runs.
package serveruser

import "os/exec"

// A User is the user as which a server runs: that of the program.
type User struct{}

// Find returns the user of the program.
func Find(...string) (User, error) { return User{}, nil }

// Give does nothing.
func (User) Give(string) error { return nil }

// Run does nothing.
func (User) Run(*exec.Cmd) {}
