package rowtest

import (
	"net"
	"sync"
	"sync/atomic"
	"testing"
)

// A relay stands between Databases and their server. It can lose a reply, and let nothing pass.
type relay struct {
	listener net.Listener
	server   string
	came     atomic.Int32 // connections
	left     atomic.Int64 // counts replies down: the reply that takes it to 0 is lost, and no other

	mu    sync.Mutex
	gate  chan struct{} // closed while bytes may pass
	conns map[net.Conn]struct{}
	ended bool
}

// newRelay starts a relay to the server's address, which ends with the test.
func newRelay(t *testing.T, server string) *relay {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}

	r := &relay{listener: l, server: server, gate: make(chan struct{}), conns: make(map[net.Conn]struct{})}

	// An open gate lets all bytes pass.
	close(r.gate)

	var all sync.WaitGroup
	all.Go(func() {
		for {
			client, err := l.Accept()
			if err != nil {
				return
			}

			r.came.Add(1)
			all.Go(func() { r.serve(client) })
		}
	})

	// A frozen relay would wait for the gate, and not end.
	t.Cleanup(func() {
		r.thaw()
		r.end()
		all.Wait()
	})

	return r
}

// address is the address at which Databases connect to the relay.
func (r *relay) address() string { return r.listener.Addr().String() }

// serve passes on what a client and the server say, until one of them or the relay ends the connection.
func (r *relay) serve(client net.Conn) {
	defer client.Close()
	server, err := net.Dial("tcp", r.server)
	if err != nil {
		return
	}
	defer server.Close()

	r.mu.Lock()
	r.conns[client], r.conns[server] = struct{}{}, struct{}{}
	ended := r.ended
	r.mu.Unlock()

	// If the relay has ended meanwhile, end has not closed these two.
	if ended {
		return
	}

	// Only replies can be lost: instead of passing on the reply that lose has named, the relay ends the connection.
	var both sync.WaitGroup
	both.Go(func() { r.pass(client, server, func() bool { return false }) })
	both.Go(func() { r.pass(server, client, func() bool { return r.left.Add(-1) == 0 }) })
	both.Wait()

	r.mu.Lock()
	defer r.mu.Unlock()

	delete(r.conns, client)
	delete(r.conns, server)
}

// pass passes on what from says, until one side ends. It calls lose for each piece that it reads: if lose returns true, the piece is lost, and pass
// ends both sides.
func (r *relay) pass(from, to net.Conn, lose func() bool) {
	defer from.Close()
	defer to.Close()

	b := make([]byte, 1<<16)
	for {
		n, err := from.Read(b)
		if err != nil || lose() {
			return
		}

		// A frozen relay passes these bytes on when it thaws.
		r.mu.Lock()
		gate := r.gate
		r.mu.Unlock()
		<-gate
		if _, err := to.Write(b[:n]); err != nil {
			return
		}
	}
}

// lose has the n-th reply from now lost, with its connection. isLost reports whether that has happened. With 0 no reply is lost any more.
func (r *relay) lose(n int) (isLost func() bool) {
	r.left.Store(int64(n))
	return func() bool { return r.left.Load() <= 0 }
}

// freeze lets nothing pass, until thaw is called. Connections stay open.
func (r *relay) freeze() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.gate = make(chan struct{})
}

// thaw lets bytes pass again.
func (r *relay) thaw() {
	r.mu.Lock()
	defer r.mu.Unlock()
	select {
	case <-r.gate: // is open
	default:
		close(r.gate)
	}
}

// end ends all connections, and refuses to accept more.
func (r *relay) end() {
	_ = r.listener.Close()
	r.mu.Lock()
	defer r.mu.Unlock()
	r.ended = true
	for c := range r.conns {
		_ = c.Close()
	}
}
