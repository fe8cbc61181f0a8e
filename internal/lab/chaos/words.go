package main

import (
	"fmt"
	"iter"
	"maps"
	"runtime"
	"strings"
	"sync/atomic"
	"time"

	"github.com/fleetthrottle/throttle/internal/lab/fleet"
)

// orders are the first line that a member reads.
type orders struct {
	Member    int
	Upstream  string // its URL
	Redis     []string
	Master    string // the name that sentinels know; "": Redis is no list of sentinels
	Cluster   bool   // Redis are nodes of a cluster
	Outage    string
	Window    int // starts in a second
	InFlight  int
	Namespace string
}

// An order is any later line that a member reads. The end of the lines ends the member.
type order struct {
	Window int  // the limit of the sliding window from now on, or 0 for no change
	Rest   bool // end all callers, and tell the remains
}

// A word is a line that a member says. One of its parts is set.
type word struct {
	Ready   bool         `json:",omitempty"`
	Changed bool         `json:",omitempty"` // an order was obeyed
	Call    *call        `json:",omitempty"`
	Stall   *fleet.Stall `json:",omitempty"` // the machine, or a signal, held the member up
	Left    *remains     `json:",omitempty"` // the answer to Rest
}

// A call is what one caller did. Its times count from the Unix epoch.
type call struct {
	ID       string
	Kind     callerKind
	Asked    time.Duration
	Returned time.Duration
	By       time.Duration `json:",omitempty"` // its deadline, or 0
	Err      string        `json:",omitempty"` // what kind of error; "": it was served
	Text     string        `json:",omitempty"` // the error itself, if nobody expects it
	Where    string        `json:",omitempty"` // where it was when it had been late for too long
}

// String describes a call that failed.
func (c call) String() string {
	text := fmt.Sprintf("call %s, %s after %v", c.ID, c.Err, (c.Returned - c.Asked).Round(time.Millisecond))
	if c.Text != "" {
		text += ", " + c.Text
	}
	return text
}

// remains are the requests and goroutines of a member that rests.
type remains struct {
	Goroutines int            // that run the library's code
	After      time.Duration  // how long the member waited for their end
	Where      string         `json:",omitempty"` // their stacks
	Events     map[string]int // of the transport, by kind
}

// restTime is how long the library may still run in a member that rests.
const restTime = 5 * time.Second

// remains closes idle connections, waits until nothing of the library runs, for restTime at most, and returns what still
// runs then.
func (m *member) remains() remains {
	m.base.CloseIdleConnections()
	begin := time.Now()
	for {
		// Goroutines that are about to end may take a moment.
		where := running()
		waited := time.Since(begin)
		if len(where) > 0 && waited < restTime {
			time.Sleep(20 * time.Millisecond)
			continue
		}

		m.mu.Lock()
		defer m.mu.Unlock()
		return remains{
			Goroutines: len(where), After: waited, Where: strings.Join(where, "\n\n"), Events: maps.Clone(m.events),
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
	// runtime.Stack cuts off what does not fit, so leave room for hundreds of goroutines.
	text := make([]byte, 256<<10)
	text = text[:runtime.Stack(text, true)]
	return strings.SplitSeq(string(text), "\n\n")
}

// tracer returns a function for other goroutines to call: it stores the present stack of the goroutine that called tracer.
func tracer(where *atomic.Pointer[string]) func() {
	var trace [64]byte
	name, _, _ := strings.Cut(string(trace[:runtime.Stack(trace[:], false)]), "[") // "goroutine 7 "
	return func() {
		for stack := range stacks() {
			if strings.HasPrefix(stack, name+"[") {
				where.Store(&stack)
			}
		}
	}
}

// kept reports whether the machine kept a goroutine from its work: by its trace it was ready to run, or helped the
// garbage collector. It is false for a goroutine without a trace.
func kept(where string) bool {
	state, _, _ := strings.Cut(where, "\n")
	return strings.Contains(state, "[runnable") || strings.Contains(state, "[running") || strings.Contains(state, "[GC assist")
}
