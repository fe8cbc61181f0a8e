package waits

import (
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
)

// A wire is the way to a server, which takes time. It carries bytes in order, as
// many at once as there are.
type wire struct {
	listener net.Listener
	server   string
	there    atomic.Int64 // how long what clients say is on its way
	back     atomic.Int64 // and what the server says
	running  sync.WaitGroup

	mu    sync.Mutex
	conns []net.Conn
}

// newWire starts a wire to a server that ends when the test does.
func newWire(t *testing.T, server string) *wire {
	w := &wire{listener: must(net.Listen("tcp", "127.0.0.1:0")), server: server}
	w.running.Go(func() {
		for {
			c, err := w.listener.Accept()
			if err != nil {
				return // closed
			}
			w.running.Go(func() { w.link(c) })
		}
	})
	t.Cleanup(func() {
		_ = w.listener.Close()
		w.mu.Lock()
		for _, c := range w.conns {
			_ = c.Close()
		}
		w.mu.Unlock()
		w.running.Wait()
	})
	return w
}

// away makes the server so far away, half of it each way.
func (w *wire) away(d time.Duration) {
	w.there.Store(int64(d / 2))
	w.back.Store(int64(d / 2))
}

// client returns a client on the wire that is closed when the test ends.
func (w *wire) client(t *testing.T) *redis.Client {
	return newClient(t, w.listener.Addr().String(), 64)
}

// newClient returns a client that is closed when the test ends.
func newClient(t *testing.T, addr string, conns int) *redis.Client {
	c := redis.NewClient(&redis.Options{Addr: addr, PoolSize: conns})
	t.Cleanup(func() { require.NoError(t, c.Close()) })
	return c
}

func (w *wire) link(client net.Conn) {
	server, err := net.Dial("tcp", w.server)
	if err != nil {
		_ = client.Close()
		return
	}
	w.mu.Lock()
	w.conns = append(w.conns, client, server)
	w.mu.Unlock()
	var both sync.WaitGroup
	both.Go(func() { carry(server, client, &w.there) })
	both.Go(func() { carry(client, server, &w.back) })
	both.Wait()
}

// A parcel is what was read at once, and when it is to be written.
type parcel struct {
	bytes []byte
	due   time.Time
}

// carry carries bytes one way until an end closes, and then closes both.
func carry(to, from net.Conn, delay *atomic.Int64) {
	parcels := make(chan parcel, 1024)
	var writer sync.WaitGroup
	writer.Go(func() {
		for p := range parcels {
			time.Sleep(time.Until(p.due))
			if _, err := to.Write(p.bytes); err != nil {
				_ = from.Close()
			}
		}
	})
	for {
		b := make([]byte, 16<<10)
		n, err := from.Read(b)
		if n > 0 {
			parcels <- parcel{b[:n], time.Now().Add(time.Duration(delay.Load()))}
		}
		if err != nil {
			break
		}
	}
	close(parcels)
	writer.Wait()
	_, _ = to.Close(), from.Close()
}
