package sdktest

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"math/big"
	"net"
	"net/http"
	"sync"
	"time"
)

// handshake is how long a connection takes until it can be used.
const handshake = 80 * time.Millisecond

// A wire is a listener whose connections lie in memory, so that virtual time passes
// while both sides wait. They are encrypted like those of any API.
type wire struct {
	conns chan net.Conn
	over  chan struct{}
	once  sync.Once
}

func newWire() *wire {
	return &wire{conns: make(chan net.Conn), over: make(chan struct{})}
}

// base is what http.DefaultTransport is, but every host is at the other end of the
// wire, and connections are kept.
func (w *wire) base() *http.Transport {
	t := http.DefaultTransport.(*http.Transport).Clone()
	t.Proxy = nil
	t.DialContext = w.dial
	t.MaxIdleConnsPerHost = 100
	t.TLSClientConfig = &tls.Config{
		InsecureSkipVerify: true,                      // no name fits all hosts
		CurvePreferences:   []tls.CurveID{tls.X25519}, // the cheapest
	}
	return t
}

// listener is the other end.
func (w *wire) listener(http2 bool) net.Listener {
	c := &tls.Config{Certificates: []tls.Certificate{certificate()}}
	if http2 {
		c.NextProtos = []string{"h2", "http/1.1"}
	}
	return tls.NewListener(w, c)
}

// certificate is one for all upstreams.
var certificate = sync.OnceValue(func() tls.Certificate {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		panic(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), NotAfter: time.Now().AddDate(100, 0, 0)}
	made, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		panic(err)
	}
	return tls.Certificate{Certificate: [][]byte{made}, PrivateKey: key}
})

// dial connects a client with the server, after the time of a handshake. It returns an error if ctx or the wire ends before.
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
