package redissim

import (
	"bufio"
	"context"
	"net"
	"slices"
	"syscall"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"

	"github.com/fleetthrottle/throttle/internal/lab/redistest"
)

// Client returns a node's client. Its settings are the defaults of go-redis, but
// for the size of pools, which it takes from the machine, small buffers, and a question of
// new connections that only a managed Redis understands. Dials fail at once: while go-redis
// dials for a subscription it holds a lock, and who waits for a lock keeps virtual time from
// passing.
func (n *Network) Client() redis.UniversalClient { return n.clientBy(n.dial) }

func (n *Network) clientBy(dial func(context.Context, string, string) (net.Conn, error)) redis.UniversalClient {
	o := redis.UniversalOptions{
		Dialer: dial, DialerRetries: 1, PoolSize: 20, ReadBufferSize: 4 << 10, WriteBufferSize: 4 << 10,
		MaintNotificationsConfig: &maintnotifications.Config{Mode: maintnotifications.ModeDisabled},
	}
	if len(n.holders) == 0 {
		o.Addrs = []string{n.servers[0].addr()}
		return redis.NewClient(o.Simple())
	}
	for _, i := range n.holders {
		o.Addrs = append(o.Addrs, n.servers[i].addr())
	}
	return redis.NewClusterClient(o.Cluster())
}

// dial connects to a virtual server, at once.
func (n *Network) dial(ctx context.Context, _, addr string) (net.Conn, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	i := slices.IndexFunc(n.servers, func(s *server) bool { return s.addr() == addr })
	if i < 0 || n.servers[i].down {
		return nil, &net.OpError{Op: "dial", Net: "tcp", Err: syscall.ECONNREFUSED}
	}
	s := n.servers[i]
	s.load.Dials++
	return newLink(s), nil
}

// newLink returns the client's end of a new connection. The lock of the network is held.
func newLink(s *server) net.Conn {
	client, conn := net.Pipe()
	l := &link{server: s, conn: conn, out: make(chan parcel, 1024), over: make(chan struct{})}
	s.links[l] = struct{}{}
	go l.read()
	go l.write()
	return client
}

// read takes the commands in order, each when it has come the way.
func (l *link) read() {
	defer l.cut()
	for in := bufio.NewReader(l.conn); ; {
		value, err := redistest.ReadValue(in)
		if err != nil {
			return
		}

		words := bulks(value)
		l.count(len(value), 0)

		if words[0] == "hello" { // no time may pass in it, as in a dial
			l.out <- parcel{l.server.run(l, words), time.Now()}
			continue
		}

		time.Sleep(l.server.network.way())
		if l.isDown() {
			return
		}

		l.send(l.server.run(l, words))
	}
}
