package fleet

import (
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptest"
	"sync"
	"time"
)

// Serve starts a server for h on a free port of the loopback. With a handshake
// above zero it speaks TLS, and each handshake is held back by a random time up
// to that. The caller closes the server.
func Serve(h http.Handler, handshake time.Duration) *httptest.Server {
	s := httptest.NewUnstartedServer(h)
	if handshake <= 0 {
		s.Start()
		return s
	}
	s.Listener = &slowListener{Listener: s.Listener, most: handshake}
	s.StartTLS()
	return s
}

// A slowListener makes the first Read of every connection wait. Under TLS that
// is the client's hello, so the whole handshake waits; Accept never does.
type slowListener struct {
	net.Listener
	most time.Duration
}

func (l *slowListener) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return &slowConn{Conn: c, hold: rand.N(l.most + 1)}, nil
}

type slowConn struct {
	net.Conn
	hold  time.Duration
	first sync.Once
}

func (c *slowConn) Read(p []byte) (int, error) {
	c.first.Do(func() { time.Sleep(c.hold) })
	return c.Conn.Read(p)
}
