package redissim

import (
	"cmp"
	"context"
	"fmt"
	"math/rand/v2"
	"net"
	"slices"
	"sort"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/redis/go-redis/v9"
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
	holders []int              // by shard: the number of the server that has its slots; empty without a cluster
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

// New returns a network of a cluster with a master for each shard, or of one server
// that belongs to no cluster if shards is 0. Spare servers have no slots yet. A command takes trip to its server and back,
// at random times that depend on the seed.
func New(b *Backend, shards, spare int, trip time.Duration, seed uint64) *Network {
	n := &Network{backend: b, trip: trip, random: rand.New(rand.NewPCG(seed, 1)), hearers: make(map[string][]*link)}
	for i := range max(1, shards) + spare {
		n.servers = append(n.servers, &server{network: n, number: i, cluster: shards > 0, links: make(map[*link]struct{})})
	}

	// At first each shard has the server of its own number.
	for i := range shards {
		n.holders = append(n.holders, i)
	}
	return n
}

func (s *server) addr() string { return fmt.Sprintf("10.0.%d.%d:6379", s.number/250, s.number%250+1) }

// way returns a random time for one way: half of trip in the mean.
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

// Fail notes an error that must not happen. It keeps the first, and ignores nil.
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

// A link is a client's connection to a virtual server, seen from the server.
type link struct {
	server   *server
	conn     net.Conn
	out      chan parcel
	over     chan struct{}
	channels []string // to which the client has subscribed; guarded by the network's lock
}

// A parcel is on its way to the client.
type parcel struct {
	value []byte
	due   time.Time
}

// send puts a value on its way to the client, unless the connection is cut. It waits while too many values are on the way.
func (l *link) send(value []byte) {
	l.count(0, len(value))
	select {
	case l.out <- parcel{value, time.Now().Add(l.server.network.way())}:
	case <-l.over:
	}
}

// write writes the values to the client when they are due, until the connection is cut.
func (l *link) write() {
	for {
		select {
		case p := <-l.out:
			time.Sleep(time.Until(p.due))
			if _, err := l.conn.Write(p.value); err != nil {
				return
			}
		case <-l.over:
			return
		}
	}
}

// cut ends the connection and its subscriptions, once.
func (l *link) cut() {
	n := l.server.network
	n.mu.Lock()

	// Client and server may both cut the link: only the first may close its channel.
	_, isFirst := l.server.links[l]
	delete(l.server.links, l)

	for _, channel := range l.channels {
		left := slices.DeleteFunc(n.hearers[channel], func(other *link) bool { return other == l })
		n.hearers[channel] = left
		if len(left) == 0 {
			delete(n.hearers, channel)
		}
	}

	l.channels = nil
	n.mu.Unlock()

	if isFirst {
		close(l.over)
		_ = l.conn.Close()
	}
}

// isDown reports whether the link's server is down.
func (l *link) isDown() bool {
	l.server.network.mu.Lock()
	defer l.server.network.mu.Unlock()
	return l.server.down
}

// count adds bytes to the load of the link's server.
func (l *link) count(in, out int) {
	l.server.network.mu.Lock()
	defer l.server.network.mu.Unlock()
	l.server.load.BytesIn += in
	l.server.load.BytesOut += out
}

// Kill ends the master of a shard: its connections are cut, and dials are refused.
func (n *Network) Kill(shard int) {
	n.mu.Lock()
	s := n.servers[n.holders[shard]]
	s.down = true
	var links []*link
	for l := range s.links {
		links = append(links, l)
	}
	n.mu.Unlock()

	// cut takes the lock itself.
	for _, l := range links {
		l.cut()
	}
}

// TakeOver gives the slots of a shard to the last spare server, which knows no scripts, and no
// keys if those are lost.
func (n *Network) TakeOver(shard int, lost bool) error {
	if lost {
		if err := n.forget(shard); err != nil {
			return err
		}
	}
	n.mu.Lock()
	n.holders[shard] = len(n.servers) - 1
	n.mu.Unlock()

	// All virtual servers share one real server, so all of them forget their scripts, and load them again.
	_, _, err := n.backend.do("SCRIPT", "FLUSH")
	return err
}

// forget removes the keys of a shard.
func (n *Network) forget(shard int) error {
	reply, _, err := n.backend.do("KEYS", "*")
	if err != nil {
		return err
	}

	// The real server has the keys of all shards.
	for _, key := range bulks(reply) {
		if ShardOf(SlotOf(key), len(n.holders)) == shard {
			if _, _, err := n.backend.do("DEL", key); err != nil {
				return err
			}
		}
	}
	return nil
}

// Mortal returns the client of a node, and a function that makes the node die: its connections are cut, and it gets no
// others.
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

// slots is the number of hash slots of every Redis Cluster.
const slots = 16384

// SlotOf returns the hash slot of a key: the slot of its hash tag, if it has one.
func SlotOf(key string) int {
	if _, rest, found := strings.Cut(key, "{"); found {
		if tag, _, closed := strings.Cut(rest, "}"); closed && tag != "" {
			key = tag
		}
	}
	return int(crc16(key)) % slots
}

// crc16 is the checksum that Redis Cluster uses: its polynomial is 0x1021, and it begins with 0.
func crc16(text string) (sum uint16) {
	for i := range len(text) {
		sum ^= uint16(text[i]) << 8
		for range 8 {
			carry := sum&0x8000 != 0
			sum <<= 1
			if carry {
				sum ^= 0x1021
			}
		}
	}
	return sum
}

// ShardOf returns which of n shards holds a slot. Each has an equal share, as
// redis-cli lays it out.
func ShardOf(slot, shards int) int {
	return sort.Search(shards-1, func(i int) bool { return slot < slots*(i+1)/shards })
}
