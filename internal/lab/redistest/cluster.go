package redistest

import (
	"context"
	"fmt"
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

// take makes the node the master of the slots from first to last. An epoch of
// its own from the start saves it an argument with its peers.
func (n *clusterNode) take(t TB, i, first, last int) {
	t.Helper()
	n.do(t, "CLUSTER", "ADDSLOTSRANGE", first, last)
	n.do(t, "CLUSTER", "SET-CONFIG-EPOCH", i+1)
}

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
