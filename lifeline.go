package throttle

import (
	"context"
	"sync"
	"time"
)

// A lifeline is the context of a request as it is sent: the caller's, which the
// transport can also cut. It is a context.WithCancelCause that is made when
// somebody looks, because most of what it costs is the entry in its parent.
type lifeline struct {
	parent context.Context

	mu    sync.Mutex
	made  context.Context // nil: nobody has looked
	stop  context.CancelCauseFunc
	ended bool
}

// Deadline implements [context.Context].
func (l *lifeline) Deadline() (time.Time, bool) { return l.parent.Deadline() }

// Done implements [context.Context].
func (l *lifeline) Done() <-chan struct{} {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.make().Done()
}

// Err implements [context.Context].
func (l *lifeline) Err() error { return l.current().Err() }

// Value implements [context.Context].
func (l *lifeline) Value(key any) any { return l.current().Value(key) }

// current is the context that has been made, which contexts derived from it must
// find by Value, or the parent.
func (l *lifeline) current() context.Context {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.made == nil && !l.ended {
		return l.parent
	}
	return l.make()
}

// make is called with mu held.
func (l *lifeline) make() context.Context {
	if l.made == nil {
		l.made, l.stop = context.WithCancelCause(l.parent)
		if l.ended {
			l.stop(nil)
		}
	}
	return l.made
}

// cut ends the context because of err.
func (l *lifeline) cut(err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.make()
	l.stop(err)
}

// end frees what was made. A parent that has ended does so by itself, and may be on
// its way: who is faster decides what the error is.
func (l *lifeline) end() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.ended = true
	if l.made != nil && l.parent.Err() == nil {
		l.stop(nil)
	}
}
