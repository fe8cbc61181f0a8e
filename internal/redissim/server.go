package redissim

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"math/rand/v2"
	"net"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"
)

// A Network is virtual servers, each at the end of wires that take time. They keep the
// subscriptions themselves, and have the scripts run by a real server, to which they tell
// the virtual time in place of its own. So everything but wires and clock is what runs in
// production: the engine, the client, the scripts.
type Network struct {
	backend *Backend
	trip    time.Duration // there and back: each time between half of it and one and a half

	mu      sync.Mutex
	random  *rand.Rand
	servers []*server
	holders []int              // by shard: which server has its slots
	hearers map[string][]*link // by channel: the connections that subscribed
	failed  error              // what must not happen
}

// A server is one virtual Redis.
type server struct {
	network *Network
	number  int
	cluster bool

	// The lock of the network guards the rest.
	load  Load
	links map[*link]struct{}
	down  bool
}

// New returns a network of so many masters of a cluster, or of one server that
// belongs to none if shards is 0. Spare servers have no slots yet.
func New(b *Backend, shards, spare int, trip time.Duration, seed uint64) *Network {
	n := &Network{backend: b, trip: trip, random: rand.New(rand.NewPCG(seed, 1)), hearers: make(map[string][]*link)}
	for i := range max(1, shards) + spare {
		n.servers = append(n.servers, &server{network: n, number: i, cluster: shards > 0, links: make(map[*link]struct{})})
	}
	for i := range shards {
		n.holders = append(n.holders, i)
	}
	return n
}

func (s *server) addr() string { return fmt.Sprintf("10.0.%d.%d:6379", s.number/250, s.number%250+1) }

// Client returns a node's client. Its settings are those that go-redis has by itself, but
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

// way is how long one way takes, this time.
func (n *Network) way() time.Duration {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.trip/4 + time.Duration(n.random.Int64N(int64(n.trip/2)+1))
}

// Loads returns what each server was asked for until now.
func (n *Network) Loads() (all []Load) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, s := range n.servers {
		all = append(all, s.load)
	}
	return all
}

// Links returns how many connections there are now.
func (n *Network) Links() (count int) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, s := range n.servers {
		count += len(s.links)
	}
	return count
}

// Fail notes what must not happen.
func (n *Network) Fail(err error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.failed = cmp.Or(n.failed, err)
}

// Err returns the first thing that happened and must not.
func (n *Network) Err() error {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.failed
}

// run runs a command of a client, and returns the reply.
func (s *server) run(l *link, words []string) []byte {
	n := s.network
	name := strings.ToLower(words[0])
	s.count(name)
	switch name {
	case "evalsha", "eval":
		return s.script(words)
	case "publish":
		return fmt.Appendf(nil, ":%d\r\n", s.deliver(message{words[1], words[2]}))
	case "subscribe":
		var reply []byte
		n.mu.Lock()
		defer n.mu.Unlock()
		for _, channel := range words[1:] {
			l.channels = append(l.channels, channel)
			n.hearers[channel] = append(n.hearers[channel], l)
			reply = append(reply, fmt.Appendf(nil, ">3\r\n$9\r\nsubscribe\r\n$%d\r\n%s\r\n:%d\r\n", len(channel), channel, len(l.channels))...)
		}
		return reply
	case "ping":
		return []byte("+PONG\r\n")
	case "hello":
		return []byte("%3\r\n$6\r\nserver\r\n$5\r\nredis\r\n$7\r\nversion\r\n$6\r\n7.0.15\r\n$5\r\nproto\r\n:3\r\n")
	case "cluster":
		return s.topology()
	case "command":
		reply, _, err := n.backend.do("COMMAND", "INFO", "evalsha", "eval", "publish", "ping")
		n.Fail(err)
		return reply
	}
	return fmt.Appendf(nil, "-ERR unknown command '%s'\r\n", name)
}

func (s *server) count(name string) {
	s.network.mu.Lock()
	defer s.network.mu.Unlock()
	switch name {
	case "evalsha", "eval": // counted when they have run
	case "publish":
		s.load.Beats++
	case "cluster":
		s.load.Slots++
	default:
		s.load.Other++
	}
}

// script has the real server run a script. What comes after the keys is the time: the
// node leaves it empty, so that the server takes its own.
func (s *server) script(words []string) []byte {
	n := s.network
	keys, err := strconv.Atoi(words[2])
	if err != nil || len(words) < 4+keys || words[3+keys] != "" {
		n.Fail(fmt.Errorf("not a call of a script as throttle makes it: %q", words[:min(len(words), 4)]))
		return []byte("-ERR not a call of throttle\r\n")
	}
	for _, key := range words[3 : 3+keys] {
		if reply := s.moved(key); reply != nil {
			return reply
		}
	}
	words[3+keys] = strconv.FormatInt(time.Now().UnixMicro(), 10)
	reply, published, err := n.backend.do(words...)
	if err != nil {
		n.Fail(err)
		return []byte("-ERR the real server is gone\r\n")
	}
	if bytes.HasPrefix(reply, []byte("-NOSCRIPT ")) {
		return reply // the call comes again, with the script
	}
	n.mu.Lock()
	s.load.Calls++
	s.load.Messages += len(published)
	n.mu.Unlock()
	for _, m := range published {
		s.deliver(m)
	}
	return reply
}

// deliver sends a message to all who subscribed to its channel, at any server: in a
// cluster each server is told of all messages. It returns to how many.
func (s *server) deliver(m message) (receivers int) {
	n := s.network
	value := fmt.Appendf(nil, ">3\r\n$7\r\nmessage\r\n$%d\r\n%s\r\n$%d\r\n%s\r\n", len(m.channel), m.channel, len(m.text), m.text)
	n.mu.Lock()
	to := slices.Clone(n.hearers[m.channel])
	for _, l := range to {
		l.server.load.Delivered++
	}
	n.mu.Unlock()
	for _, l := range to {
		l.send(value)
	}
	return len(to)
}
