package redistest

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/redis/go-redis/v9"

	"github.com/fleetthrottle/throttle/internal/lab/servers"
)

// slots is the number of hash slots of every Redis Cluster.
const slots = 16384

// ClusterServers are the masters of one cluster.
type ClusterServers struct {
	Addrs   []string
	Servers []*Server // in the order of Addrs; each holds a third of the slots
}

// Cluster starts three masters, gives each a third of the hash slots, and
// waits until all of them find the cluster in order. That takes two seconds,
// because a master refuses to serve for a time after its start.
func Cluster(t TB) *ClusterServers {
	t.Helper()
	c := &ClusterServers{}

	var met []*clusterNode
	for i := range 3 {
		n := startNode(t)
		n.take(t, i, slots*i/3, slots*(i+1)/3-1)

		// Each node meets all nodes before it.
		for _, other := range met {
			n.do(t, "CLUSTER", "MEET", "127.0.0.1", other.p.port, other.bus)
		}

		met = append(met, n)
		c.Servers = append(c.Servers, n.Server)
		c.Addrs = append(c.Addrs, n.Addr)
	}

	for _, n := range met {
		n.awaitOK(t)
	}

	return c
}

// Client returns a client of the cluster that is closed when t ends.
func (c *ClusterServers) Client(t TB) *redis.ClusterClient {
	client := redis.NewClusterClient(&redis.ClusterOptions{Addrs: c.Addrs, PoolSize: poolSize})
	closeAfter(t, client)
	return client
}

// A clusterNode is a master that is about to join a cluster.
type clusterNode struct {
	*Server
	bus    int // the port on which nodes talk to each other
	client *redis.Client
}

// startNode starts a master that holds no slots and knows nobody. By itself it
// would put its bus 10,000 ports above its own, where a foreign program may be.
func startNode(t TB) *clusterNode {
	t.Helper()
	bus, err := servers.FreePort()
	if err != nil {
		t.Fatal(err)
	}
	s := Single(t, "--cluster-enabled", "yes", "--cluster-port", fmt.Sprint(bus))
	return &clusterNode{Server: s, bus: bus, client: s.Client(t)}
}

// take makes node i the master of the slots from first to last. Each node gets an epoch of its own at once: nodes with
// equal epochs would have to change them first.
func (n *clusterNode) take(t TB, i, first, last int) {
	t.Helper()
	n.do(t, "CLUSTER", "ADDSLOTSRANGE", first, last)
	n.do(t, "CLUSTER", "SET-CONFIG-EPOCH", i+1)
}

// do has the node execute a command, and fails the test if it does not.
func (n *clusterNode) do(t TB, args ...any) {
	t.Helper()
	if err := n.client.Do(context.Background(), args...).Err(); err != nil {
		t.Fatalf("redistest: %v on %s: %v", args, n.Addr, err)
	}
}

// awaitOK waits until the node knows all masters and serves.
func (n *clusterNode) awaitOK(t TB) {
	t.Helper()
	err := poll(func() (bool, error) {
		info, err := n.client.ClusterInfo(context.Background()).Result()
		return strings.Contains(info, "cluster_state:ok") &&
			strings.Contains(info, "cluster_size:3"), err
	})
	if err != nil {
		t.Fatalf("redistest: the cluster of %s is not in order: %v", n.Addr, err)
	}
}

// Replica starts a replica of one of the masters, and waits until it follows the
// master and all masters know it. It does not join c.Servers.
func (c *ClusterServers) Replica(t TB, master *Server) *Server {
	t.Helper()
	n := startNode(t)
	followed := &clusterNode{Server: master, client: master.Client(t)}
	followed.do(t, "CLUSTER", "MEET", "127.0.0.1", n.p.port, n.bus)
	id := master.nodeID(t)
	n.await(t, "its master", func() (bool, error) {
		nodes, err := n.client.ClusterNodes(context.Background()).Result()
		return strings.Contains(nodes, id) && !strings.Contains(nodes, "handshake"), err
	})

	// Wait until the replica and the master are in step, and then until each master knows of the replica.
	n.do(t, "CLUSTER", "REPLICATE", id)
	n.awaitInfo("replication", "master_link_status:up")
	master.awaitInfo("replication", "state=online")

	for _, s := range c.Servers {
		client := s.Client(t)
		s.await(t, "the replica", func() (bool, error) {
			replicas, err := client.Do(context.Background(), "CLUSTER", "REPLICAS", id).StringSlice()
			return len(replicas) > 0, err
		})
	}

	return n.Server
}

// TakeOver makes a replica of a cluster the master of its master's slots, whether or not the
// old master is alive, and waits until all other masters know. It does not change c.Servers.
func (c *ClusterServers) TakeOver(t TB, replica, master *Server) {
	t.Helper()
	n := &clusterNode{Server: replica, client: replica.Client(t)}
	n.do(t, "CLUSTER", "FAILOVER", "TAKEOVER")
	n.awaitInfo("replication", "role:master")

	id := replica.nodeID(t)
	for _, s := range c.Servers {
		if s == master {
			continue
		}

		client := s.Client(t)
		s.await(t, "the new master", func() (bool, error) {
			nodes, err := client.ClusterNodes(context.Background()).Result()
			return servesSlots(nodes, id), err
		})
	}
}

// servesSlots reports whether the node of that id is a master with slots, in the
// words of CLUSTER NODES.
func servesSlots(nodes, id string) bool {
	for line := range strings.Lines(nodes) {
		fields := strings.Fields(line)
		if len(fields) > 8 && fields[0] == id { // slots follow the eighth field
			return strings.Contains(fields[2], "master")
		}
	}
	return false
}

// nodeID returns the id that the server has as a node of its cluster.
func (s *Server) nodeID(t TB) string {
	t.Helper()
	id, err := s.Client(t).Do(context.Background(), "CLUSTER", "MYID").Text()
	if err != nil {
		t.Fatalf("redistest: the id of %s: %v", s.Addr, err)
	}
	return id
}

// await waits until done returns true, and fails t if it does not. what names what the server waits for.
func (s *Server) await(t TB, what string, done func() (bool, error)) {
	t.Helper()
	if err := poll(done); err != nil {
		t.Fatalf("redistest: %s waits for %s: %v", s.Addr, what, err)
	}
}

// Replicated waits until a replica has all that was written to the server until now.
// WAIT would not do: on some servers it waits only for what the same connection wrote.
func (s *Server) Replicated(t TB) {
	t.Helper()
	client := s.Client(t)
	written := int64(-1) // how many bytes the server has written for replicas, by the first answer
	s.await(t, "its replica", func() (bool, error) {
		info, err := client.Info(context.Background(), "replication").Result()
		if written < 0 {
			written = number(info, "master_repl_offset:")
		}
		return number(info, "state=online,offset=") >= written, err
	})
}

// number returns the number that comes after a word and before further text, or -1 if there is none.
func number(text, after string) int64 {
	_, rest, found := strings.Cut(text, after)
	end := strings.IndexFunc(rest, func(r rune) bool { return r < '0' || r > '9' })
	if !found || end < 0 {
		return -1
	}
	n, err := strconv.ParseInt(rest[:end], 10, 64)
	if err != nil {
		return -1
	}
	return n
}

// A Move is a slot of a cluster on its way between two masters.
type Move struct {
	slot     int
	from, to *clusterNode
	rest     []*clusterNode // the masters that do not have the slot
	t        TB
}

// Move begins to move a slot to a different master than the one to which [Cluster] gave it. From
// now on the two answer ASK and TRYAGAIN for keys that they do not have.
func (c *ClusterServers) Move(t TB, slot int, to *Server) *Move {
	t.Helper()
	m := &Move{slot: slot, t: t}

	// Each master has a third of the slots.
	owner := slices.IndexFunc([]int{0, 1, 2}, func(i int) bool { return slot < slots*(i+1)/3 })
	for i, s := range c.Servers {
		n := &clusterNode{Server: s, client: s.Client(t)}
		switch {
		case i == owner:
			m.from = n
		case s == to:
			m.to = n
		default:
			m.rest = append(m.rest, n)
		}
	}

	if m.from == nil || m.to == nil {
		t.Fatalf("redistest: slot %d cannot move to %s", slot, to.Addr)
	}

	// First the new owner, or it would refuse what the old owner sends it.
	m.to.do(t, "CLUSTER", "SETSLOT", slot, "IMPORTING", m.from.nodeID(t))
	m.from.do(t, "CLUSTER", "SETSLOT", slot, "MIGRATING", m.to.nodeID(t))
	return m
}

// Keys moves keys until the old master has none of the slot.
func (m *Move) Keys() {
	m.t.Helper()
	for {
		keys, err := m.from.client.ClusterGetKeysInSlot(context.Background(), m.slot, 100).Result()
		if err != nil {
			m.t.Fatalf("redistest: keys of slot %d: %v", m.slot, err)
		}
		if len(keys) == 0 {
			return
		}

		// The keys come last, and go to database 0 of the new master within 5,000 ms.
		args := []any{"MIGRATE", "127.0.0.1", m.to.p.port, "", 0, 5000, "KEYS"}
		for _, k := range keys {
			args = append(args, k)
		}

		m.from.do(m.t, args...)
	}
}

// End moves the remaining keys and tells all masters which of them has the slot now.
func (m *Move) End() {
	m.t.Helper()
	m.Keys()
	for _, n := range append([]*clusterNode{m.to, m.from}, m.rest...) {
		n.do(m.t, "CLUSTER", "SETSLOT", m.slot, "NODE", m.to.nodeID(m.t))
	}
}

// MasterName is the sentinel's name for the master.
const MasterName = "throttle"

// SentinelServers are a master, its replica, and the sentinel that watches
// them and promotes the replica by its own vote alone.
type SentinelServers struct {
	Master   *Server
	Replica  *Server
	Sentinel *Server
}

// Sentinel starts the three servers and waits until the replica follows the
// master and the sentinel knows both, so that a failover would work.
func Sentinel(t TB) *SentinelServers {
	t.Helper()
	s := &SentinelServers{Master: Single(t)}
	s.Replica = Single(t, "--replicaof", "127.0.0.1", fmt.Sprint(s.Master.p.port))
	s.Replica.awaitInfo("replication", "master_link_status:up")

	// A sentinel asks its master for replicas when it starts, and then only every ten seconds. So the master must know of
	// its replica before the sentinel starts.
	s.Master.awaitInfo("replication", "state=online")
	s.Sentinel = startSentinel(t, s.Master)
	s.Sentinel.awaitInfo("sentinel", "status=ok,address="+s.Master.Addr+",slaves=1")
	s.awaitCandidate(t)
	return s
}

// Client returns a client that asks the sentinel for the master. It is closed
// when t ends.
func (s *SentinelServers) Client(t TB) redis.UniversalClient {
	client := redis.NewFailoverClient(&redis.FailoverOptions{
		MasterName:    MasterName,
		SentinelAddrs: []string{s.Sentinel.Addr},
		PoolSize:      poolSize,
	})
	closeAfter(t, client)
	return client
}

// Failover kills the master and waits until the sentinel has promoted the
// replica, which takes about a second. It swaps Master and Replica: Replica is then the server that was killed.
func (s *SentinelServers) Failover() {
	s.Master.t.Helper()
	s.Master.Kill()
	s.giveUpAfter(givenUpSoon)
	s.Replica.awaitInfo("replication", "role:master")
	s.Sentinel.awaitInfo("sentinel", "address="+s.Replica.Addr)
	s.giveUpAfter(neverGivenUp)
	s.Master, s.Replica = s.Replica, s.Master
}

// A master may be silent for this number of milliseconds. Only a killed master is given up: a
// busy machine may keep a master from answering for a second, and a failover that
// nobody asked for loses writes that the replica does not have yet.
const (
	givenUpSoon  = 200
	neverGivenUp = 10 * 60 * 1000
)

// giveUpAfter tells the sentinel how long a silent master is waited for.
func (s *SentinelServers) giveUpAfter(ms int) {
	s.Sentinel.t.Helper()
	c := redis.NewSentinelClient(&redis.Options{Addr: s.Sentinel.Addr})
	defer c.Close()
	if err := c.Set(context.Background(), MasterName, "down-after-milliseconds", fmt.Sprint(ms)).Err(); err != nil {
		s.Sentinel.t.Fatalf("redistest: the sentinel at %s: %v", s.Sentinel.Addr, err)
	}
}

// startSentinel starts a sentinel that gives no master up. It needs a file, in which it
// keeps its discoveries.
func startSentinel(t TB, master *Server) *Server {
	t.Helper()
	dir := t.TempDir()
	file := filepath.Join(dir, "sentinel.conf")
	config := fmt.Sprintf(`bind 127.0.0.1
sentinel monitor %[1]s 127.0.0.1 %[2]d 1
sentinel down-after-milliseconds %[1]s %[3]d
sentinel failover-timeout %[1]s 3000
`, MasterName, master.p.port, neverGivenUp)
	if err := os.WriteFile(file, []byte(config), 0o600); err != nil {
		t.Fatal(err)
	}

	p, err := start(dir, func(port int) []string {
		return []string{file, "--sentinel", "--port", fmt.Sprint(port)}
	})
	if err != nil {
		t.Fatal(err)
	}

	t.Cleanup(p.kill)
	return newServer(t, p, 0)
}

// awaitCandidate waits until the replica has told the sentinel that it follows the master. Without that the sentinel
// would not promote the replica.
func (s *SentinelServers) awaitCandidate(t TB) {
	t.Helper()
	c := redis.NewSentinelClient(&redis.Options{Addr: s.Sentinel.Addr})
	defer c.Close()
	err := poll(func() (bool, error) {
		replicas, err := c.Replicas(context.Background(), MasterName).Result()
		return len(replicas) == 1 && replicas[0]["master-link-status"] == "ok", err
	})
	if err != nil {
		t.Fatalf("redistest: the sentinel has no candidate: %v", err)
	}
}

// awaitInfo waits until a section of the server's INFO holds want.
func (s *Server) awaitInfo(section, want string) {
	s.t.Helper()
	c := redis.NewClient(s.Options())
	defer c.Close()
	err := poll(func() (bool, error) {
		info, err := c.Info(context.Background(), section).Result()
		return strings.Contains(info, want), err
	})
	if err != nil {
		s.t.Fatalf("redistest: INFO %s of %s holds no %q: %v", section, s.Addr, want, err)
	}
}
