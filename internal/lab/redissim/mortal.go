package redissim

import (
	"context"
	"net"
	"sync"
	"syscall"

	"github.com/redis/go-redis/v9"
)

// Mortal returns the client of a node that can die: its connections are cut then, it gets no
// other, and nothing that it would still say is heard.
func (n *Network) Mortal() (client redis.UniversalClient, die func()) {
	var mu sync.Mutex
	var conns []net.Conn
	dead := false
	client = n.clientBy(func(ctx context.Context, network, addr string) (net.Conn, error) {
		mu.Lock()
		defer mu.Unlock()

		if dead {
			return nil, &net.OpError{Op: "dial", Net: "tcp", Err: syscall.ECONNREFUSED}
		}

		conn, err := n.dial(ctx, network, addr)
		if err == nil {
			conns = append(conns, conn)
		}

		return conn, err
	})

	return client, func() {
		mu.Lock()
		defer mu.Unlock()

		dead = true
		for _, c := range conns {
			_ = c.Close()
		}
	}
}
