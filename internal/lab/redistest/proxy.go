package redistest

import (
	"bufio"
	"sync/atomic"

	"github.com/redis/go-redis/v9"
)

// A Proxy stands between clients and a server. It passes everything on, except
// that script calls can be disturbed: see [Proxy.Disturb]. Its methods may be
// used inside of testing/synctest bubbles, if it was made outside.
type Proxy struct {
	relay
	fresh chan *Fault // see supply
	muted atomic.Bool // see Mute

	// Under mu:
	server *Server
	faults []*Fault // for the next script calls
	held   *Fault   // of a call whose copies are held too, or nil
	copied string   // that call
}

// NewProxy starts a proxy before the server that ends when t does.
func NewProxy(t TB, s *Server) *Proxy {
	t.Helper()
	p := &Proxy{server: s, fresh: make(chan *Fault)}
	p.start(t, s.Addr, p.pass)
	p.running.Go(p.supply)
	return p
}

// Options returns the options of [Proxy.Client], for tests that change some.
func (p *Proxy) Options() *redis.Options {
	p.mu.Lock()
	defer p.mu.Unlock()
	o := p.server.Options()
	o.Addr = p.Addr
	return o
}

// Client returns a client of the server behind the proxy that is closed when t
// ends.
func (p *Proxy) Client(t TB) *redis.Client {
	c := redis.NewClient(p.Options())
	closeAfter(t, c)
	return c
}

// Disturb does something to the next script call that is not disturbed yet.
func (p *Proxy) Disturb(how How) *Fault {
	f := <-p.fresh
	f.how = how
	p.mu.Lock()
	defer p.mu.Unlock()
	p.faults = append(p.faults, f)
	return f
}

// Switch cuts all connections. New connections lead to server s, as after a failover.
func (p *Proxy) Switch(s *Server) {
	p.mu.Lock()
	p.server, p.held = s, nil
	p.mu.Unlock()
	p.lead(s.Addr)
}

// Mute loses all messages to subscribers from now on, and the answers to everything they
// say. Their connections stay open.
func (p *Proxy) Mute() { p.muted.Store(true) }

// supply makes faults. A channel that is made in a bubble must not be closed
// from outside, so they are made here.
func (p *Proxy) supply() {
	for {
		select {
		case p.fresh <- newFault():
		case <-p.over:
			return
		}
	}
}

// next returns the fault for a command, or nil if the command is to be passed on.
func (p *Proxy) next(raw []byte) *Fault {
	p.mu.Lock()
	defer p.mu.Unlock()

	switch {
	case !isScript(raw):
		return nil
	case p.held != nil && !p.held.passed() && string(raw) == p.copied:
		f := newFault()
		f.how, f.pass = HoldReply, p.held.pass
		return f

	case len(p.faults) == 0:
		return nil
	}

	f := p.faults[0]
	p.faults = p.faults[1:]
	if f.how == HoldReplies {
		p.held, p.copied = f, string(raw)
	}

	return f
}

// pass passes on commands one by one, each with its reply.
func (p *Proxy) pass(l *link) {
	x := &exchange{link: l, over: p.over, muted: &p.muted, calls: bufio.NewReader(l.client), replies: bufio.NewReader(l.server)}
	for {
		raw, err := ReadValue(x.calls)
		if err != nil || !x.pass(raw, p.next(raw)) {
			return
		}
	}
}
