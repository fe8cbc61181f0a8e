package redistest

import (
	"io"
	"net"
	"sync"
)

// A Tunnel stands between clients and a server and passes bytes on, whatever they
// mean, until it is told to lose them: as a network does that fails without a word.
type Tunnel struct {
	Addr string // host and port

	to       string
	listener net.Listener
	running  sync.WaitGroup

	mu     sync.Mutex
	frozen bool
	links  map[*pipe]bool
}

// A pipe is one connection through a tunnel.
type pipe struct {
	client, server net.Conn
	frozen         bool
}

// NewTunnel starts a tunnel to an address that ends when t does.
func NewTunnel(t TB, to string) *Tunnel {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	u := &Tunnel{Addr: l.Addr().String(), to: to, listener: l, links: make(map[*pipe]bool)}
	u.running.Go(u.accept)
	t.Cleanup(u.close)
	return u
}

// Freeze makes all connections silent, for ever, and those that are opened before
// [Tunnel.Thaw]. Nobody is told.
func (u *Tunnel) Freeze() {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.frozen = true
	for p := range u.links {
		p.frozen = true
	}
}

// Thaw lets new connections through again.
func (u *Tunnel) Thaw() {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.frozen = false
}

func (u *Tunnel) accept() {
	for {
		client, err := u.listener.Accept()
		if err != nil {
			return // closed
		}
		u.running.Go(func() { u.serve(client) })
	}
}

func (u *Tunnel) serve(client net.Conn) {
	server, err := net.Dial("tcp", u.to)
	if err != nil {
		_ = client.Close()
		return
	}
	p := &pipe{client: client, server: server}
	u.mu.Lock()
	p.frozen = u.frozen
	u.links[p] = true
	u.mu.Unlock()
	var both sync.WaitGroup
	both.Go(func() { u.pass(p, server, client) })
	both.Go(func() { u.pass(p, client, server) })
	both.Wait()
	u.mu.Lock()
	defer u.mu.Unlock()
	delete(u.links, p)
}

// pass passes on what comes from one side, and its end. Of a frozen connection only
// the client's end is noticed, by us alone.
func (u *Tunnel) pass(p *pipe, to, from net.Conn) {
	_, _ = io.Copy(lossy{u, p, to}, from)
	if u.isFrozen(p) && from == p.server {
		return
	}
	p.cut()
}

func (u *Tunnel) isFrozen(p *pipe) bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	return p.frozen
}

// lossy writes to one side of a pipe, unless that is frozen.
type lossy struct {
	*Tunnel
	p  *pipe
	to net.Conn
}

func (w lossy) Write(b []byte) (int, error) {
	if w.isFrozen(w.p) {
		return len(b), nil
	}
	return w.to.Write(b)
}

func (p *pipe) cut() {
	_ = p.client.Close()
	_ = p.server.Close()
}

// close ends the tunnel with all that goes through it.
func (u *Tunnel) close() {
	_ = u.listener.Close()
	u.mu.Lock()
	for p := range u.links {
		p.cut()
	}
	u.mu.Unlock()
	u.running.Wait()
}
