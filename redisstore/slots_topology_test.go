package redisstore_test

import (
	"testing"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/fleetthrottle/throttle"
	"github.com/fleetthrottle/throttle/internal/redistest"
	"github.com/fleetthrottle/throttle/redisstore"
)

// passOn lets two nodes take turns in several budgets, in real time: each waits
// until the other's request ends. Nothing is renewed, so all hear of it by messages.
func passOn(t *testing.T, clients ...redis.UniversalClient) {
	var nodes []*redisstore.Store
	for _, c := range clients {
		s := redisstore.New(c, nil)
		s.NeverRenew()
		nodes = append(nodes, s)
	}
	for _, group := range []string{"one", "two", "three", "four"} {
		c := inGroup(group, charge("budget of "+group, throttle.Concurrency(1)))
		k, g := board(t, nodes[0], c)
		for i := range 6 {
			holder, next := nodes[i%2], nodes[(i+1)%2]
			waiting, place := lineUp(t, next, c)
			holder.Release(k, g)
			<-place.Ready
			k, g = waiting, again(t, next, waiting, place)
		}
		nodes[0].Release(k, g)
		board(t, nodes[1], c)
	}
	require.LessOrEqual(t, nodes[0].Subscriptions(), 4)
}

func TestInFlight_OnASingleServer(t *testing.T) {
	t.Parallel()
	server := redistest.Single(t)
	passOn(t, server.Client(t), server.Client(t))
}

func TestInFlight_OnACluster(t *testing.T) {
	t.Parallel() // its servers are its own
	servers := redistest.Cluster(t)
	passOn(t, servers.Client(t), servers.Client(t))
}

func TestInFlight_BehindASentinel(t *testing.T) {
	t.Parallel()
	servers := redistest.Sentinel(t)
	passOn(t, servers.Client(t), servers.Client(t))
}

// TestInFlight_OnARing has shards that do not talk to each other.
func TestInFlight_OnARing(t *testing.T) {
	t.Parallel()
	a, b := redistest.Single(t), redistest.Single(t)
	ring := func() *redis.Ring {
		r := redis.NewRing(&redis.RingOptions{Addrs: map[string]string{"a": a.Addr, "b": b.Addr}})
		t.Cleanup(func() { require.NoError(t, r.Close()) })
		return r
	}
	passOn(t, ring(), ring())
}
