package redistest

import (
	"net"
	"sync"
	"sync/atomic"
	"time"
)

// A Wire is the network between clients and a server. It carries bytes, whatever they mean,
// and fails as networks do.
type Wire struct {
	relay
	server      string
	there, back atomic.Int64  // the delay of the clients' bytes, and of the server's
	frozen      bool          // new links are deaf; under mu
	open        chan struct{} // closed while bytes get through; under mu
}

// NewWire starts a wire to the server at an address that ends when t does.
func NewWire(t TB, server string) *Wire {
	t.Helper()
	w := &Wire{server: server, open: make(chan struct{})}
	close(w.open)
	w.start(t, server, w.pass)
	return w
}

// Delay delays the clients' bytes, and the server's.
func (w *Wire) Delay(there, back time.Duration) {
	w.there.Store(int64(there))
	w.back.Store(int64(back))
}

// Disconnect ends all connections, and new connections until [Wire.Mend] is called.
func (w *Wire) Disconnect() { w.lead("") }

// Hold keeps all bytes back until [Wire.Mend] is called. Connections stay open.
func (w *Wire) Hold() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.open = make(chan struct{})
}

// Deafen loses all that is said from now on on the connections that there are, also that
// the server closes them. They stay open. New connections work.
func (w *Wire) Deafen() {
	w.mu.Lock()
	defer w.mu.Unlock()
	for l := range w.links {
		l.deaf.Store(true)
	}
}

// Freeze does what [Wire.Deafen] does, also to new connections until [Wire.Mend] is called.
func (w *Wire) Freeze() {
	w.mu.Lock()
	w.frozen = true
	w.mu.Unlock()
	w.Deafen()
}

// Mend ends what [Wire.Disconnect], [Wire.Hold], [Wire.Delay] and [Wire.Freeze] did to new
// connections.
func (w *Wire) Mend() {
	w.Delay(0, 0)
	w.mu.Lock()
	defer w.mu.Unlock()
	w.frozen, w.to = false, w.server
	select {
	case <-w.open:
	default:
		close(w.open)
	}
}

// pass carries one connection until an end of it closes.
func (w *Wire) pass(l *link) {
	w.mu.Lock()
	if w.frozen {
		l.deaf.Store(true)
	}
	w.mu.Unlock()
	var both sync.WaitGroup
	both.Go(func() { w.carry(l, l.client, l.server, &w.back) })
	w.carry(l, l.server, l.client, &w.there)
	both.Wait()
}

// A parcel is the bytes of one read, with the time at which they are to be written.
type parcel struct {
	bytes []byte
	due   time.Time
}

// carry carries bytes one way. Those that are delayed do not hold up the reading of others,
// so that a wire may be long and still be wide.
func (w *Wire) carry(l *link, to, from net.Conn, delay *atomic.Int64) {
	parcels := make(chan parcel, 4096)
	w.running.Go(func() {
		defer close(parcels)
		for {
			b := make([]byte, 16<<10)
			n, err := from.Read(b)
			if err != nil {
				return
			}

			select {
			case parcels <- parcel{b[:n], time.Now().Add(time.Duration(delay.Load()))}:
			case <-l.ended:
				return
			}
		}
	})

	for p := range parcels {
		if !w.await(l, p.due) {
			break
		}
		if l.deaf.Load() {
			continue
		}
		if _, err := to.Write(p.bytes); err != nil {
			break
		}
	}

	if from == l.server && l.deaf.Load() {
		return
	}

	l.cut()
}

// await waits until bytes are due and the wire is open; false if the link ended.
func (w *Wire) await(l *link, due time.Time) bool {
	if d := time.Until(due); d > 0 {
		t := time.NewTimer(d)
		defer t.Stop()

		select {
		case <-t.C:
		case <-l.ended:
			return false
		}
	}

	w.mu.Lock()
	open := w.open
	w.mu.Unlock()

	select {
	case <-open:
		return true
	case <-l.ended:
		return false
	}
}
