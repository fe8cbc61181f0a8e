package redistest

import (
	"bufio"
	"net"
	"sync"
	"sync/atomic"

	"github.com/redis/go-redis/v9"
)

// A Proxy stands between clients and a server. It passes everything on, except
// that script calls can be disturbed: see [Proxy.Disturb]. Its methods may be
// used inside of testing/synctest bubbles, if it was made outside.
type Proxy struct {
	Addr string // host and port

	listener net.Listener
	fresh    chan *Fault   // see supply
	over     chan struct{} // closed when the test is over
	running  sync.WaitGroup
	muted    atomic.Bool // see Mute

	mu     sync.Mutex
	server *Server
	faults []*Fault // for the next script calls
	held   *Fault   // of a call whose copies are held too; nil: there is none
	copied string   // that call
	links  map[*link]bool
}

// NewProxy starts a proxy before the server that ends when t does.
func NewProxy(t TB, s *Server) *Proxy {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p := &Proxy{
		Addr: l.Addr().String(), listener: l, server: s,
		fresh: make(chan *Fault), over: make(chan struct{}), links: make(map[*link]bool),
	}
	p.running.Go(p.accept)
	p.running.Go(p.supply)
	t.Cleanup(p.close)
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

// Switch cuts all connections. New ones lead to server s, as after a failover.
func (p *Proxy) Switch(s *Server) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.server, p.held = s, nil
	for l := range p.links {
		l.cut()
	}
}

// Mute loses all messages to subscribers from now on, and the answers to what they
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

// next returns the fault for a command; nil if it is to be passed on.
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

func (p *Proxy) accept() {
	for {
		client, err := p.listener.Accept()
		if err != nil {
			return // closed
		}
		p.running.Go(func() { p.serve(client) })
	}
}

// serve connects a client with the server, until one of them ends it.
func (p *Proxy) serve(client net.Conn) {
	p.mu.Lock()
	addr := p.server.Addr
	p.mu.Unlock()
	server, err := net.Dial("tcp", addr)
	if err != nil {
		_ = client.Close() // as if it were the server's own end
		return
	}
	l := &link{
		client: client, server: server, over: p.over, muted: &p.muted,
		calls: bufio.NewReader(client), replies: bufio.NewReader(server),
	}
	defer l.cut()
	if !p.add(l, addr) {
		return
	}
	for {
		raw, err := ReadValue(l.calls)
		if err != nil || !l.exchange(raw, p.next(raw)) {
			break
		}
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.links, l)
}

// add keeps the link to addr, so that it can be cut; false if that is not where
// links lead any more, or everything is over.
func (p *Proxy) add(l *link, addr string) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	select {
	case <-p.over:
		return false
	default:
	}
	if p.server.Addr != addr {
		return false
	}
	p.links[l] = true
	return true
}

// close ends the proxy with everything that it holds.
func (p *Proxy) close() {
	p.mu.Lock()
	close(p.over)
	_ = p.listener.Close()
	for l := range p.links {
		l.cut()
	}
	p.mu.Unlock()
	p.running.Wait()
}
