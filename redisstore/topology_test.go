package redisstore_test

import (
	"context"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/fleetthrottle/throttle"
	"github.com/fleetthrottle/throttle/internal/redistest"
	"github.com/fleetthrottle/throttle/redisstore"
	"github.com/fleetthrottle/throttle/storetest"
)

// onTopology compares random operations with the definition. The client lives
// outside of the bubbles, because it keeps goroutines that listen to the
// servers all the time.
func onTopology(t *testing.T, client redis.UniversalClient, empty func(t *testing.T)) {
	require.NoError(t, client.Ping(t.Context()).Err())
	for seed := range uint64(5) {
		storetest.Random(t, func(t *testing.T) throttle.Store {
			empty(t)
			return redisstore.NewAt(client, nil, bubbleClock)
		}, 500+seed, 300)
	}
}

func TestP1_OnACluster(t *testing.T) {
	t.Parallel() // its servers are its own
	servers := redistest.Cluster(t)
	onTopology(t, servers.Client(t), func(t *testing.T) {
		for _, s := range servers.Servers {
			require.NoError(t, s.Client(t).FlushAll(t.Context()).Err())
		}
	})
}

func TestP1_BehindASentinel(t *testing.T) {
	t.Parallel() // its servers are its own
	client := redistest.Sentinel(t).Client(t)
	onTopology(t, client, func(t *testing.T) {
		require.NoError(t, client.FlushAll(t.Context()).Err())
	})
}

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

// TestP11_SleepersOnACluster, where each group has channels of its own.
func TestP11_SleepersOnACluster(t *testing.T) {
	servers := redistest.Cluster(t)
	for name, cut := range map[string]bool{"news": false, "cut all the time": true} {
		t.Run(name, func(t *testing.T) {
			c := newCrowd(t, func() redis.UniversalClient { return servers.Client(t) })
			c.listens().sleep()
			if cut {
				for _, s := range servers.Servers {
					defer cutAlways(t, s)()
				}
			}
			c.closes(ban)
			for _, s := range servers.Servers {
				require.NoError(t, s.Client(t).FlushAll(t.Context()).Err())
			}
		})
	}
}

// TestP11_SleepersOfAFailover: the replica has the penalty when the master dies.
func TestP11_SleepersOfAFailover(t *testing.T) {
	servers := redistest.Sentinel(t)
	c := newCrowd(t, func() redis.UniversalClient { return servers.Client(t) })
	c.listens().sleep()
	master := servers.Master.Client(t)
	const long = 3 * time.Second
	c.all.Go(func() {
		for open := true; open; {
			st, err := c.limiters[1].Status(t.Context(), "")
			if err != nil {
				t.Error(err)
				return
			}
			open = st.Paused == 0
		}
		if err := master.Wait(t.Context(), 1, time.Minute).Err(); err != nil {
			t.Error(err)
		}
		servers.Failover()
	})
	c.closes(long)
}

// A ward is a cluster, the slot of the budgets of the tests, and who has it.
type ward struct {
	*history
	*redistest.ClusterServers
	slot   int
	owner  int
	client *redis.ClusterClient
	store  *redisstore.Store
}

func newWard(t *testing.T) *ward {
	w := &ward{history: &history{T: t}, ClusterServers: redistest.Cluster(t)}
	w.client = w.Client(t)
	slot, err := w.client.ClusterKeySlot(t.Context(), "{group}").Result()
	require.NoError(t, err)
	w.slot, w.owner = int(slot), int(slot)*3/16384
	w.store = redisstore.New(w.client, nil)
	return w
}

// TestP12_AReshard moves the slot of a budget in use to another master, keys and
// all. Nobody notices, except who needs a new key meanwhile.
func TestP12_AReshard(t *testing.T) {
	t.Parallel() // its servers are its own
	w := newWard(t)
	other := redisstore.New(w.Client(t), nil)
	w.book(w.store)
	w.book(other)
	move := w.Move(t, w.slot, w.Servers[(w.owner+1)%3])
	w.book(w.store)
	move.Keys()
	w.book(other)
	refuses(t, w.store, "TRYAGAIN ")
	g := meanwhile(t, redisstore.New(w.Client(t), nil), move.End)
	require.Zero(t, g.Wait)
	w.starts = append(w.starts, g.Handle.Start)
	for range 3 {
		require.Positive(t, w.book(w.store).Wait)
		require.Positive(t, w.book(other).Wait)
	}
}

// TestP12_AClusterFailsOver kills the master of a budget. Its replica takes over.
func TestP12_AClusterFailsOver(t *testing.T) {
	t.Parallel() // its servers are its own
	w := newWard(t)
	master := w.Servers[w.owner]
	replica := w.Replica(t, master)
	for range 3 {
		require.Zero(t, w.book(w.store).Wait)
	}
	master.Replicated(t)
	master.Kill()
	g := meanwhile(t, w.store, func() { w.TakeOver(t, replica, master) })
	require.Zero(t, g.Wait)
	w.starts = append(w.starts, g.Handle.Start)
	require.Zero(t, w.book(w.store).Wait)
	require.Positive(t, w.book(w.store).Wait)
}

// TestP12_AClusterIsDown takes a slot away, be it another's: none is served.
func TestP12_AClusterIsDown(t *testing.T) {
	t.Parallel() // its servers are its own
	w := newWard(t)
	require.Zero(t, w.book(w.store).Wait)
	const taken = 1
	node, all := w.Servers[0].Client(t), w.Servers
	for _, s := range all {
		do(t, s.Client(t), "CLUSTER", "DELSLOTS", taken)
	}
	owner := all[w.owner].Client(t)
	for owner.Get(t.Context(), "{group}").Err() == redis.Nil {
		time.Sleep(time.Millisecond)
	}
	refuses(t, w.store, "CLUSTERDOWN ")
	g := meanwhile(t, w.store, func() { do(t, node, "CLUSTER", "ADDSLOTS", taken) })
	require.Zero(t, g.Wait)
}

// TestP12_AClusterNeedsItsClient: a client for one server says so at once.
func TestP12_AClusterNeedsItsClient(t *testing.T) {
	t.Parallel()
	w := newWard(t)
	plain := w.Servers[(w.owner+1)%3].Client(t)
	for _, o := range []*redisstore.Options{nil, {HashTags: true}} {
		_, err := redisstore.New(plain, o).Book(context.Background(), booking(hourly))
		require.ErrorContains(t, err, "the server is part of a cluster: it needs redis.NewClusterClient")
	}
}
