package redistest

import (
	"bufio"
	"io"
	"strings"
	"sync"
	"sync/atomic"
)

// An exchange is one link's traffic through a [Proxy].
type exchange struct {
	*link
	calls, replies *bufio.Reader
	over           <-chan struct{}
	muted          *atomic.Bool // nothing gets to a subscriber
}

// pass passes one command on and its reply back, as far as the fault, if
// there is one, lets it. It reports whether the link goes on.
func (x *exchange) pass(raw []byte, f *Fault) bool {
	switch {
	case f != nil:
		return x.disturb(raw, f)
	case strings.HasSuffix(commandName(raw), "subscribe"):
		x.stream(raw)
		return false
	}
	reply, ok := x.execute(raw)
	return ok && x.answer(reply)
}

// disturb is pass for a call with a fault.
func (x *exchange) disturb(raw []byte, f *Fault) bool {
	if f.how == CutBefore {
		x.cut()
		close(f.caught)
		return false
	}

	if f.how == HoldCall && !x.hold(f) {
		return false
	}

	reply, ok := x.execute(raw)
	if !ok {
		return false
	}

	close(f.executed)
	switch f.how {
	case CutAfter:
		x.cut()
		close(f.caught)
		return false

	case Swallow:
		close(f.caught)
		_, _ = io.Copy(io.Discard, x.calls) // until the client has had enough
		return false

	case HoldReply, HoldReplies:
		return x.hold(f) && x.answer(reply)
	}

	return x.answer(reply)
}

// hold waits until the test lets go; false if that is over.
func (x *exchange) hold(f *Fault) bool {
	close(f.caught)
	select {
	case <-f.pass:
		return true
	case <-x.over:
		return false
	}
}

// execute lets the server execute a command and returns its reply.
func (x *exchange) execute(raw []byte) ([]byte, bool) {
	if _, err := x.server.Write(raw); err != nil {
		return nil, false
	}

	for {
		reply, err := ReadValue(x.replies)
		if err != nil {
			return nil, false
		}
		if !pushed(reply) {
			return reply, true
		}
		if !x.answer(reply) {
			return nil, false
		}
	}
}

func (x *exchange) answer(reply []byte) bool {
	_, err := x.client.Write(reply)
	return err == nil
}

// stream passes everything on, from the command raw on: a subscriber gets
// messages without asking.
func (x *exchange) stream(raw []byte) {
	if _, err := x.server.Write(raw); err != nil {
		return
	}
	var both sync.WaitGroup
	both.Go(func() {
		_, _ = io.Copy(unlessMuted{x}, x.replies)
		x.cut()
	})
	_, _ = io.Copy(x.server, x.calls)
	x.cut()
	both.Wait()
}

// unlessMuted writes to the client unless messages are to be lost.
type unlessMuted struct{ *exchange }

func (w unlessMuted) Write(b []byte) (int, error) {
	if w.muted.Load() {
		return len(b), nil
	}
	return w.client.Write(b)
}
