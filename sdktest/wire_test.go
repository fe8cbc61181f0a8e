package sdktest

import (
	"context"
	"net"
	"net/http"
	"sync"
	"time"
)

// handshake is how long a connection takes until it can be used.
const handshake = 80 * time.Millisecond

// A wire is a listener whose connections lie in memory, so that virtual time passes
// while both sides wait.
type wire struct {
	conns chan net.Conn
	over  chan struct{}
	once  sync.Once
}

func newWire() *wire {
	return &wire{conns: make(chan net.Conn), over: make(chan struct{})}
}

// base is what http.DefaultTransport is, but every host is at the other end of the
// wire. Nothing on it is encrypted.
func (w *wire) base() *http.Transport {
	t := http.DefaultTransport.(*http.Transport).Clone()
	t.Proxy = nil
	t.DialContext, t.DialTLSContext = w.dial, w.dial
	return t
}

func (w *wire) dial(ctx context.Context, _, _ string) (net.Conn, error) {
	client, server := net.Pipe()
	select {
	case <-time.After(handshake):
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	select {
	case w.conns <- server:
		return client, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	case <-w.over:
		return nil, net.ErrClosed
	}
}

// Accept, Close and Addr make it a listener.
func (w *wire) Accept() (net.Conn, error) {
	select {
	case c := <-w.conns:
		return c, nil
	case <-w.over:
		return nil, net.ErrClosed
	}
}

func (w *wire) Close() error   { w.once.Do(func() { close(w.over) }); return nil }
func (w *wire) Addr() net.Addr { return &net.UnixAddr{Name: "wire"} }
