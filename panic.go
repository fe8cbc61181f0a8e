package throttle

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"path/filepath"
	"runtime"
	"strings"
)

// A panicError says that a function of the program's own panicked. It holds the type
// of the value but not the value, which may hold a token, and, as the stack is gone,
// the line.
type panicError struct {
	kind   string
	line   string // "file.go:7"
	aborts bool   // the value was http.ErrAbortHandler
}

func (e *panicError) Error() string { return fmt.Sprintf("panicked with a %s at %s", e.kind, e.line) }

// recoverAs is deferred around a function of a policy, which it names: a panic
// becomes an error.
func recoverAs(err *error, policy, field string) {
	if v := recover(); v != nil {
		*err = &ConfigError{policy, field, &panicError{fmt.Sprintf("%T", v), panicLine(), v == http.ErrAbortHandler}}
	}
}

// abortsHandler reports whether a function of a policy panicked to abort the HTTP
// handler that it runs in: net/http wants to see that panic.
func abortsHandler(err error) bool {
	e, ok := errors.AsType[*panicError](err)
	return ok && e.aborts
}

// panicLine returns where the panic began that a deferred function has recovered
// from.
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

// An observer is [Config.Observe]. Its panics end here, and it is then told of them.
type observer func(context.Context, Event)

// guarded returns a function that calls the observer and never panics; nil if there
// is no observer.
func (o observer) guarded() func(context.Context, Event) {
	if o == nil {
		return nil
	}
	return func(ctx context.Context, e Event) {
		if err := o.call(ctx, e); err != nil {
			_ = o.call(ctx, Event{Kind: FunctionFailed, Policy: e.Policy, Budget: e.Budget, Limit: e.Limit, Err: err})
		}
	}
}

func (o observer) call(ctx context.Context, e Event) (err error) {
	defer recoverAs(&err, e.Policy, "Observe")
	o(ctx, e)
	return nil
}
