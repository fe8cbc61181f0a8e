//go:build !unix

package redistest

import "syscall"

// Elsewhere no signal pauses a process. Sending these fails, and so does a
// test that needs them.
const (
	pauseSignal    = syscall.Signal(-1)
	continueSignal = syscall.Signal(-1)
)
