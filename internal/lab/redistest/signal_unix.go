//go:build unix

package redistest

import "syscall"

// The signals that stop a process from running and let it run on.
const (
	PauseSignal    = syscall.SIGSTOP
	ContinueSignal = syscall.SIGCONT
)
