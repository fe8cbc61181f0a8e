//go:build !unix

package redistest

import "syscall"

// Elsewhere no signal pauses a process. Sending these fails, and so does a
// test that needs them.
const (
	PauseSignal    = syscall.Signal(-1)
	ContinueSignal = syscall.Signal(-1)
)
