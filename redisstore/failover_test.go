package redisstore_test

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/fleetthrottle/throttle/internal/lab/redistest"
	"github.com/fleetthrottle/throttle/internal/lab/soak"
	"github.com/fleetthrottle/throttle/redisstore"
	"github.com/fleetthrottle/throttle/store"
	"github.com/fleetthrottle/throttle/stores/storetest"
)

// hourly is a budget of five an hour. Servers die and rise in real time, which is
// short beside its window.
var hourly = charge("hourly", store.PerHour(5))

// A history is the starts that were granted, by the clock that all servers of a
// test share.
type history struct {
	*testing.T
	starts []int64
}

// book books by a store, however long the wait, and requires that an hour never
// holds more than five starts.
func (h *history) book(s store.Store) store.Grant {
	h.Helper()
	g := ask(h.T, s, booking(hourly))
	require.True(h, g.OK)
	h.starts = append(h.starts, g.Handle.Start)
	slices.Sort(h.starts)
	require.False(h, crowded(h.starts, g.Handle.Start, 5, hourly.Span().Microseconds()), "starts at %v", h.starts)
	return g
}

// TestP12_RestartedEmpty ends the server, with a queue booked ahead or none. Its
// successor knows nothing, but the nodes do.
func TestP12_RestartedEmpty(t *testing.T) {
	t.Parallel() // its servers are its own
	for name, end := range map[string]func(*redistest.Server){
		"stopped": (*redistest.Server).Stop, "killed": (*redistest.Server).Kill,
	} {
		for before, starts := range map[string]int{"full": 5, "queue": 13} {
			t.Run(name+" "+before, func(t *testing.T) {
				server := redistest.Single(t)
				client := server.Client(t)
				a, b := redisstore.New(client, redisstore.Options{}), redisstore.New(server.Client(t), redisstore.Options{})
				h := &history{T: t}
				for range starts {
					h.book(a)
				}
				for range soak.Most(3, 1) {
					end(server)
					server.Restart()
					h.book(a) // who came last knows all
					h.book(b)
					a, b = b, a
				}
				requireSmall(t, client)
			})
		}
	}
}

// A couple is a master and its replica, and a way to them that a failover
// changes.
type couple struct {
	*history
	master, replica *redis.Client
	server          *redistest.Server // the master
	promoted        *redistest.Server
	proxy           *redistest.Proxy
	store           *redisstore.Store
}

func newCouple(t *testing.T) *couple {
	master := redistest.Single(t)
	replica := redistest.Single(t, append([]string{"--replicaof"}, strings.Split(master.Addr, ":")...)...)
	p := redistest.NewProxy(t, master)
	return &couple{
		history: &history{T: t}, master: master.Client(t), replica: replica.Client(t),
		server: master, promoted: replica, proxy: p, store: redisstore.New(p.Client(t), redisstore.Options{}),
	}
}

// replicated waits until the replica has all that was written.
func (c *couple) replicated() {
	c.Helper()
	c.server.Replicated(c)
}

// promote makes the replica a master of its own. What the old one writes from now
// on is missing there.
func (c *couple) promote() {
	c.Helper()
	require.NoError(c, c.replica.Do(c.Context(), "REPLICAOF", "NO", "ONE").Err())
}

// charged requires that a server has booked so many starts.
func (c *couple) charged(client *redis.Client, want int) {
	c.Helper()
	st, err := redisstore.New(client, redisstore.Options{}).Status(c.Context(), hourly)
	require.NoError(c, err)
	require.Equal(c, want, st.Used+st.Waiting)
}

// TestP12_StaleReplica fails over to a replica that misses the last starts.
func TestP12_StaleReplica(t *testing.T) {
	t.Parallel()
	c := newCouple(t)
	for range 3 {
		require.Zero(t, c.book(c.store).Wait)
	}
	c.replicated()
	c.promote()
	for range 2 {
		require.Zero(t, c.book(c.store).Wait)
	}
	c.charged(c.replica, 3)
	c.proxy.Switch(c.promoted)
	for range 7 {
		require.Greater(t, c.book(c.store).Wait, 59*time.Minute)
	}
	requireSmall(t, c.replica)
}

// TestP12_StaleReplicaSeemsUpToDate fails over to a replica that misses starts,
// where a node that knows nothing of them books as many. All is as the other node
// has seen it, if one only counts.
func TestP12_StaleReplicaSeemsUpToDate(t *testing.T) {
	t.Parallel()
	c := newCouple(t)
	other := redisstore.New(c.proxy.Client(t), redisstore.Options{})
	seven := charge("seven", store.PerHour(7))
	for _, s := range []store.Store{c.store, c.store, other} {
		require.Zero(t, book(t, s, seven))
	}
	c.replicated()
	c.promote()
	startNow(t, c.store, 2, seven)
	c.proxy.Switch(c.promoted)
	startNow(t, other, 2, seven)
	require.Greater(t, book(t, c.store, seven), 59*time.Minute)
}

// TestP8_FailoverInTheMiddle executes a call whose reply is lost with the master.
// The replica has heard of it, or has not: the call counts once.
func TestP8_FailoverInTheMiddle(t *testing.T) {
	t.Parallel()
	for name, heard := range map[string]bool{"heard": true, "not heard": false} {
		t.Run(name, func(t *testing.T) {
			c := newCouple(t)
			for range 3 {
				c.book(c.store)
			}
			c.replicated()
			if !heard {
				c.promote()
			}
			f := c.proxy.Disturb(redistest.HoldReplies) // the client makes the call again after a second
			got := make(chan store.Grant)
			go func() {
				g, err := c.store.Book(c.Context(), booking(hourly))
				if err != nil {
					g.Wait = store.Never
				}
				got <- g
			}()
			f.Await(t)

			// The first reply that is held need not be the call's, on a machine so busy that an earlier call has a second copy.
			master := redisstore.New(c.master, redisstore.Options{})
			require.Eventually(t, func() bool { return booked(t, master, hourly) == 4 }, 30*time.Second, time.Millisecond)
			if heard {
				c.replicated()
				c.promote()
			}
			c.proxy.Switch(c.promoted)
			g := <-got
			require.Zero(t, g.Wait)
			require.True(t, g.OK)
			c.charged(c.replica, 4)
			c.starts = append(c.starts, g.Handle.Start)
			require.Zero(t, c.book(c.store).Wait)
			require.Positive(t, c.book(c.store).Wait)
		})
	}
}

// TestP12_SentinelPromotesAStaleReplica kills a master whose replica has lost it
// before the last starts.
func TestP12_SentinelPromotesAStaleReplica(t *testing.T) {
	t.Parallel() // its servers are its own
	servers := redistest.Sentinel(t)
	s := redisstore.New(servers.Client(t), redisstore.Options{})
	h := &history{T: t}
	for range 3 {
		h.book(s)
	}
	master, replica := servers.Master.Client(t), servers.Replica.Client(t)
	servers.Master.Replicated(t)
	// With a password that the master does not know the replica stays away.
	require.NoError(t, replica.ConfigSet(t.Context(), "masterauth", "unknown").Err())
	require.NoError(t, master.Do(t.Context(), "CLIENT", "KILL", "TYPE", "replica").Err())
	for range 4 {
		h.book(s)
	}

	servers.Failover()
	for range 5 {
		require.Positive(t, h.book(s).Wait)
	}
	requireSmall(t, servers.Master.Client(t))
}

// TestP12_LagIsTheBound kills a master whose replica misses some starts, and with it
// the only program that knew of them. An hour then holds so many more starts, and
// not one more than that.
func TestP12_LagIsTheBound(t *testing.T) {
	t.Parallel() // its servers are its own
	for missing := range soak.Most(4, 2) {
		servers := redistest.Sentinel(t)
		five := charge("five", store.PerHour(5))
		dead := redisstore.New(servers.Client(t), redisstore.Options{})
		granted := 0
		for granted < 5-missing {
			require.Zero(t, book(t, dead, five))
			granted++
		}
		servers.Master.Replicated(t)
		require.NoError(t, servers.Replica.Client(t).ConfigSet(t.Context(), "masterauth", "unknown").Err())
		do(t, servers.Master.Client(t), "CLIENT", "KILL", "TYPE", "replica")
		for range missing {
			require.Zero(t, book(t, dead, five))
			granted++
		}
		servers.Failover()
		next := redisstore.New(servers.Client(t), redisstore.Options{})
		for book(t, next, five) == 0 {
			granted++
		}
		require.Equal(t, 5+missing, granted)
	}
}

// onTopology compares random operations with the definition. The client lives
// outside of the bubbles, because it keeps goroutines that listen to the
// servers all the time.
func onTopology(t *testing.T, client redis.UniversalClient, empty func(t *testing.T)) {
	require.NoError(t, client.Ping(t.Context()).Err())
	for seed := range uint64(soak.Seeds(5, 1)) {
		storetest.Random(t, func(t *testing.T) store.Store {
			empty(t)
			return redisstore.NewAt(client, redisstore.Options{}, bubbleClock)
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
		s := redisstore.New(c, redisstore.Options{})
		s.NeverRenew()
		nodes = append(nodes, s)
	}
	for _, group := range []string{"one", "two", "three", "four"} {
		c := inGroup(group, charge("budget of "+group, store.Concurrency(1)))
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
	slot, err := w.client.ClusterKeySlot(t.Context(), "{"+redisstore.DefaultNamespace+"}").Result()
	require.NoError(t, err)
	w.slot, w.owner = int(slot), int(slot)*3/16384
	w.store = redisstore.New(w.client, redisstore.Options{})
	return w
}

// TestP12_AReshard moves the slot of a budget in use to another master, keys and
// all. Nobody notices, except who needs a new key meanwhile.
func TestP12_AReshard(t *testing.T) {
	t.Parallel() // its servers are its own
	w := newWard(t)
	other := redisstore.New(w.Client(t), redisstore.Options{})
	w.book(w.store)
	w.book(other)
	move := w.Move(t, w.slot, w.Servers[(w.owner+1)%3])
	w.book(w.store)
	move.Keys()
	w.book(other)
	refuses(t, w.store, "TRYAGAIN ")
	g := meanwhile(t, redisstore.New(w.Client(t), redisstore.Options{}), move.End)
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
	for owner.Get(t.Context(), "{"+redisstore.DefaultNamespace+"}").Err() == redis.Nil {
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
	for _, o := range []redisstore.Options{{}, {HashTags: true}} {
		slot, err := w.client.ClusterKeySlot(t.Context(), redisstore.New(w.Servers[0].Client(t), o).Key(hourly.Budget)).Result()
		require.NoError(t, err)
		other := w.Servers[(int(slot)*3/16384+1)%3].Client(t) // has not the budget

		_, err = redisstore.New(other, o).Book(context.Background(), booking(hourly))
		require.ErrorContains(t, err, "the server is part of a cluster: it needs redis.NewClusterClient")
	}
}
