// Package panics makes errors of panics in functions of the program that uses throttle.
package panics

import (
	"fmt"
	"net/http"
	"path/filepath"
	"runtime"
	"strings"
)

// An Error says that a function of the program panicked. It holds the type
// of the panic's value but not the value, which may hold a token. It also holds the line,
// because the stack is gone when the error is read.
type Error struct {
	kind string
	line string // "file.go:7"

	// Aborts says that the value was http.ErrAbortHandler: net/http wants to see that panic.
	Aborts bool
}

// Error implements error.
func (e *Error) Error() string { return fmt.Sprintf("panicked with a %s at %s", e.kind, e.line) }

// Of returns the error of a panic with the value v, which the deferred function that calls Of has just
// recovered.
func Of(v any) *Error { return &Error{fmt.Sprintf("%T", v), panicLine(), v == http.ErrAbortHandler} }

// panicLine returns the file and line of the panic that a deferred function has just recovered
// from, as "file.go:7": the first frame outside of the runtime that comes after runtime.gopanic.
// If the topmost 32 frames have none, it returns "an unknown line".
func panicLine() string {
	var stack [32]uintptr
	frames := runtime.CallersFrames(stack[:runtime.Callers(0, stack[:])])

	panicked := false
	for more := true; more; {
		var f runtime.Frame
		f, more = frames.Next()
		switch inRuntime := strings.HasPrefix(f.Function, "runtime."); {
		case f.Function == "runtime.gopanic":
			panicked = true
		case panicked && !inRuntime:
			return fmt.Sprintf("%s:%d", filepath.Base(f.File), f.Line)
		}
	}

	return "an unknown line"
}
