//go:build unix

package main

import "syscall"

// stop stops the program, and goOn lets it go on. An error says that the program is gone.
func (p *process) stop() { _ = p.cmd.Process.Signal(syscall.SIGSTOP) }
func (p *process) goOn() { _ = p.cmd.Process.Signal(syscall.SIGCONT) }
