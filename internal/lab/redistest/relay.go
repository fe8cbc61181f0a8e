package redistest

import (
	"net"
	"sync"
	"sync/atomic"
)

// A relay connects clients with a server until the test is over.
type relay struct {
	Addr string // host and port, for the clients

	listener net.Listener
	over     chan struct{} // closed when the test is over
	running  sync.WaitGroup

	mu    sync.Mutex
	to    string // where new links lead; "": nowhere
	links map[*link]bool
}

// A link is one client's connection and its connection to the server.
type link struct {
	client, server net.Conn
	deaf           atomic.Bool   // see Wire.Deafen
	ended          chan struct{} // closed when it is cut
	once           sync.Once
}

func (l *link) cut() {
	l.once.Do(func() {
		close(l.ended)
		_ = l.client.Close()
		_ = l.server.Close()
	})
}

// start starts the relay to a server. Pass carries the traffic of a link, until one side
// ends it.
func (r *relay) start(t TB, to string, pass func(*link)) {
	t.Helper()
	var err error
	if r.listener, err = net.Listen("tcp", "127.0.0.1:0"); err != nil {
		t.Fatal(err)
	}

	r.Addr, r.over = r.listener.Addr().String(), make(chan struct{})
	r.to, r.links = to, make(map[*link]bool)
	r.running.Go(func() {
		for {
			client, err := r.listener.Accept()
			if err != nil {
				return // closed
			}
			r.running.Go(func() { r.serve(client, pass) })
		}
	})

	t.Cleanup(func() {
		close(r.over)
		_ = r.listener.Close()
		r.lead("")
		r.running.Wait()
	})
}

// lead cuts all links. New links lead to a server; with "" they are cut too.
func (r *relay) lead(to string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.to = to
	for l := range r.links {
		l.cut()
	}
}

func (r *relay) serve(client net.Conn, pass func(*link)) {
	r.mu.Lock()
	to := r.to
	r.mu.Unlock()

	server, err := net.Dial("tcp", to)
	if err != nil {
		_ = client.Close() // as if it were the server's own end
		return
	}

	l := &link{client: client, server: server, ended: make(chan struct{})}
	defer l.cut()
	r.mu.Lock()

	there := r.to == to
	if there {
		r.links[l] = true
	}

	r.mu.Unlock()
	if there {
		pass(l)
	}

	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.links, l)
}
