package main

import (
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/fleetthrottle/throttle/internal/redistest"
)

// A wire is the network between one member and a server. It carries bytes, and
// knows nothing of what they mean.
type wire struct {
	addr     string // where members dial
	server   string
	listener net.Listener
	running  sync.WaitGroup

	mu    sync.Mutex
	delay time.Duration // of what the server says
	cut   bool          // nobody gets through, and everybody is told so
	open  chan struct{} // closed while bytes get through
	links map[*link]bool
}

// A link is one connection.
type link struct {
	member, server net.Conn
	blackhole      atomic.Bool   // what either side says is lost
	over           chan struct{} // closed when it has ended
	once           sync.Once
}

func (l *link) end() {
	l.once.Do(func() {
		close(l.over)
		_ = l.member.Close()
		_ = l.server.Close()
	})
}

// newWire starts a wire to the server at an address that ends when t does.
func newWire(t redistest.TB, server string) *wire {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	w := &wire{addr: l.Addr().String(), server: server, listener: l, open: make(chan struct{}), links: map[*link]bool{}}
	close(w.open)
	w.running.Go(w.accept)
	t.Cleanup(func() {
		_ = l.Close()
		w.disconnect()
		w.running.Wait()
	})
	return w
}

// slow delays what the server says; 0: no more.
func (w *wire) slow(d time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.delay = d
}

// disconnect ends all connections, and refuses new ones until mend is called.
func (w *wire) disconnect() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.cut = true
	for l := range w.links {
		l.end()
	}
}

// deafen loses all that is said from now on on the connections that there are.
// They stay open. New ones work.
func (w *wire) deafen() {
	w.mu.Lock()
	defer w.mu.Unlock()
	for l := range w.links {
		l.blackhole.Store(true)
	}
}

// hold keeps all bytes back until mend is called. Connections stay open.
func (w *wire) hold() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.open = make(chan struct{})
}

// mend ends what disconnect, hold and slow did.
func (w *wire) mend() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.cut, w.delay = false, 0
	select {
	case <-w.open:
	default:
		close(w.open)
	}
}

func (w *wire) accept() {
	for {
		member, err := w.listener.Accept()
		if err != nil {
			return // closed
		}
		w.running.Go(func() { w.serve(member) })
	}
}

// serve carries one connection until an end of it closes.
func (w *wire) serve(member net.Conn) {
	server, err := net.Dial("tcp", w.server)
	if err != nil {
		_ = member.Close()
		return
	}
	l := &link{member: member, server: server, over: make(chan struct{})}
	defer l.end()
	w.mu.Lock()
	cut := w.cut
	if !cut {
		w.links[l] = true
	}
	w.mu.Unlock()
	if cut {
		return
	}
	var back sync.WaitGroup
	back.Go(func() { w.carry(l, server, member, true) })
	w.carry(l, member, server, false)
	back.Wait()
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.links, l)
}

// A parcel is what was read at once.
type parcel struct {
	bytes []byte
	due   time.Time
}

// carry carries bytes one way. Those that are delayed do not hold up the
// reading of others, so that a wire may be long and still be wide.
func (w *wire) carry(l *link, from, to net.Conn, delayed bool) {
	defer l.end()
	parcels := make(chan parcel, 4096)
	w.running.Go(func() {
		defer close(parcels)
		for {
			buf := make([]byte, 16<<10)
			n, err := from.Read(buf)
			if err != nil {
				return
			}
			select {
			case parcels <- parcel{buf[:n], time.Now().Add(w.lag(delayed))}:
			case <-l.over:
				return
			}
		}
	})
	for p := range parcels {
		if !w.await(l, p.due) {
			return
		}
		if l.blackhole.Load() {
			continue
		}
		if _, err := to.Write(p.bytes); err != nil {
			return
		}
	}
}

// lag is by how much bytes are delayed now.
func (w *wire) lag(delayed bool) time.Duration {
	w.mu.Lock()
	defer w.mu.Unlock()
	if !delayed {
		return 0
	}
	return w.delay
}

// await waits until bytes are due and the wire is open; false if the link ended.
func (w *wire) await(l *link, due time.Time) bool {
	if d := time.Until(due); d > 0 {
		t := time.NewTimer(d)
		defer t.Stop()
		select {
		case <-t.C:
		case <-l.over:
			return false
		}
	}
	w.mu.Lock()
	open := w.open
	w.mu.Unlock()
	select {
	case <-open:
		return true
	case <-l.over:
		return false
	}
}
