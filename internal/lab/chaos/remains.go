package main

import (
	"iter"
	"maps"
	"runtime"
	"strings"
	"sync/atomic"
	"time"
)

// restTime is how long a member that rests may take until nothing of the
// library runs any more.
const restTime = 5 * time.Second

// remains waits until nothing of the library runs, and tells what does.
func (m *member) remains() remains {
	m.base.CloseIdleConnections()
	begin := time.Now()
	for {
		where := running()
		after := time.Since(begin)
		if len(where) > 0 && after < restTime {
			time.Sleep(20 * time.Millisecond)
			continue
		}

		m.mu.Lock()
		defer m.mu.Unlock()
		return remains{
			Goroutines: len(where), After: after, Where: strings.Join(where, "\n\n"), Events: maps.Clone(m.events),
		}
	}
}

// running returns the stacks of goroutines that run the library's code, as
// opposed to this program's and the client's.
func running() []string {
	var found []string
	for stack := range stacks() {
		if strings.Contains(stack, "fleetthrottle/throttle.") || strings.Contains(stack, "fleetthrottle/throttle/redisstore.") ||
			strings.Contains(stack, "fleetthrottle/throttle/memstore.") {
			found = append(found, stack)
		}
	}
	return found
}

// stacks yields the stacks of all goroutines.
func stacks() iter.Seq[string] {
	text := make([]byte, 256<<10)
	text = text[:runtime.Stack(text, true)]
	return strings.SplitSeq(string(text), "\n\n")
}

// tracer returns a function that notes where the goroutine is that called tracer.
func tracer(where *atomic.Pointer[string]) func() {
	var head [64]byte
	name, _, _ := strings.Cut(string(head[:runtime.Stack(head[:], false)]), "[") // "goroutine 7 "
	return func() {
		for stack := range stacks() {
			if strings.HasPrefix(stack, name+"[") {
				where.Store(&stack)
			}
		}
	}
}

// kept reports whether a goroutine could run where it was traced, and was not let:
// the machine, or the collector of garbage that it starves, kept it.
func kept(where string) bool {
	head, _, _ := strings.Cut(where, "\n")
	return strings.Contains(head, "[runnable") || strings.Contains(head, "[running") || strings.Contains(head, "[GC assist")
}
