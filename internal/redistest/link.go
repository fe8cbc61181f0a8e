package redistest

import (
	"bufio"
	"io"
	"net"
	"strings"
	"sync"
	"sync/atomic"
)

// A link is one client's connection and the one to the server that belongs to
// it.
type link struct {
	client, server net.Conn
	calls, replies *bufio.Reader
	over           <-chan struct{}
	muted          *atomic.Bool // nothing gets to a subscriber
}

func (l *link) cut() {
	_ = l.client.Close()
	_ = l.server.Close()
}

// exchange passes one command on and its reply back, as far as the fault, if
// there is one, lets it. It reports whether the link goes on.
func (l *link) exchange(raw []byte, f *Fault) bool {
	switch {
	case f != nil:
		return l.disturb(raw, f)
	case strings.HasSuffix(commandName(raw), "subscribe"):
		l.stream(raw)
		return false
	}
	reply, ok := l.execute(raw)
	return ok && l.answer(reply)
}

// disturb is exchange for a call with a fault.
func (l *link) disturb(raw []byte, f *Fault) bool {
	if f.how == CutBefore {
		l.cut()
		close(f.caught)
		return false
	}
	if f.how == HoldCall && !l.hold(f) {
		return false
	}
	reply, ok := l.execute(raw)
	if !ok {
		return false
	}
	close(f.executed)
	switch f.how {
	case CutAfter:
		l.cut()
		close(f.caught)
		return false
	case Swallow:
		close(f.caught)
		_, _ = io.Copy(io.Discard, l.calls) // until the client has had enough
		return false
	case HoldReply, HoldReplies:
		return l.hold(f) && l.answer(reply)
	}
	return l.answer(reply)
}

// hold waits until the test lets go; false if that is over.
func (l *link) hold(f *Fault) bool {
	close(f.caught)
	select {
	case <-f.pass:
		return true
	case <-l.over:
		return false
	}
}

// execute lets the server execute a command and returns its reply.
func (l *link) execute(raw []byte) ([]byte, bool) {
	if _, err := l.server.Write(raw); err != nil {
		return nil, false
	}
	for {
		reply, err := ReadValue(l.replies)
		if err != nil {
			return nil, false
		}
		if !pushed(reply) {
			return reply, true
		}
		if !l.answer(reply) {
			return nil, false
		}
	}
}

func (l *link) answer(reply []byte) bool {
	_, err := l.client.Write(reply)
	return err == nil
}

// stream passes everything on, from the command raw on: a subscriber gets
// messages without asking.
func (l *link) stream(raw []byte) {
	if _, err := l.server.Write(raw); err != nil {
		return
	}
	var both sync.WaitGroup
	both.Go(func() {
		_, _ = io.Copy(unlessMuted{l}, l.replies)
		l.cut()
	})
	_, _ = io.Copy(l.server, l.calls)
	l.cut()
	both.Wait()
}

// unlessMuted writes to the client of a link what is not to be lost.
type unlessMuted struct{ *link }

func (w unlessMuted) Write(b []byte) (int, error) {
	if w.muted.Load() {
		return len(b), nil
	}
	return w.client.Write(b)
}
