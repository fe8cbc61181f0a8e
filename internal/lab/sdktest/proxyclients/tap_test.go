package proxyclients

import (
	"bytes"
	"io"
	"net"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
)

// A tap passes bytes on between a client and a proxy, and counts requests.
type tap struct {
	net.Listener
	to string

	mu   sync.Mutex
	seen bytes.Buffer // what clients have sent
}

func newTap(t *testing.T, to string) *tap {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	p := &tap{Listener: listener, to: to}
	t.Cleanup(func() { listener.Close() })
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			go p.relay(conn)
		}
	}()
	return p
}

func (p *tap) relay(client net.Conn) {
	defer client.Close()
	proxy, err := net.Dial("tcp", p.to)
	if err != nil {
		return
	}
	go func() {
		defer proxy.Close()
		_, _ = io.Copy(io.MultiWriter(proxy, p), client)
	}()
	_, _ = io.Copy(client, proxy)
}

// Write implements [io.Writer].
func (p *tap) Write(b []byte) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.seen.Write(b)
}

// requests returns how many requests have come.
func (p *tap) requests() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return bytes.Count(p.seen.Bytes(), []byte(" HTTP/1.1\r\n"))
}
