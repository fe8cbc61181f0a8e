package redistest

import (
	"strings"
	"time"
)

// A How says what happens to a script call.
type How int

// The ways to disturb a call.
const (
	CutBefore   How = iota // the server never sees it; its connection is cut
	CutAfter               // the server has executed it when its connection is cut
	Swallow                // the server executes it; no reply comes, the connection stays open
	HoldCall               // the server executes it when it is let go, be the client still there or not
	HoldReply              // the server executes it; its reply is held back until it is let go
	HoldReplies            // the same; so are those to its copies, which a client sends that has no answer for long
)

// A Fault is what happens, or has happened, to one script call.
type Fault struct {
	how      How
	caught   chan struct{} // closed when nothing more happens by itself
	pass     chan struct{} // closed when a held call may go on
	executed chan struct{} // closed when the server has executed a held call
}

func newFault() *Fault {
	return &Fault{caught: make(chan struct{}), pass: make(chan struct{}), executed: make(chan struct{})}
}

// Await returns when the fault has caught its call: the call or its reply is
// held, or is gone.
func (f *Fault) Await(t TB) {
	t.Helper()
	await(t, f.caught, "a call to disturb")
}

// Pass lets a call or reply go that is held, and returns when the server has
// executed the call.
func (f *Fault) Pass(t TB) {
	t.Helper()
	f.Await(t)
	close(f.pass)
	await(t, f.executed, "the server to execute a held call")
}

// passed reports whether the held bytes may go on.
func (f *Fault) passed() bool {
	select {
	case <-f.pass:
		return true
	default:
		return false
	}
}

func await(t TB, done <-chan struct{}, what string) {
	t.Helper()
	select {
	case <-done:
	case <-time.After(longestWait):
		t.Fatalf("redistest: waited %v for %s", longestWait, what)
	}
}

// isScript reports whether a command runs a script.
func isScript(raw []byte) bool {
	name := commandName(raw)
	return strings.HasPrefix(name, "eval") || strings.HasPrefix(name, "fcall")
}
