package redisstore_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/fleetthrottle/throttle"
	"github.com/fleetthrottle/throttle/internal/redistest"
	"github.com/fleetthrottle/throttle/internal/soak"
	"github.com/fleetthrottle/throttle/redisstore"
)

// hourly is a budget of five an hour. Servers die and rise in real time, which is
// short beside its window.
var hourly = charge("hourly", throttle.PerHour(5))

// A history is the starts that were granted, by the clock that all servers of a
// test share.
type history struct {
	*testing.T
	starts []int64
}

// book books by a store, however long the wait, and requires that an hour never
// holds more than five starts.
func (h *history) book(s throttle.Store) throttle.Grant {
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
				a, b := redisstore.New(client, nil), redisstore.New(server.Client(t), nil)
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
		server: master, promoted: replica, proxy: p, store: redisstore.New(p.Client(t), nil),
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
	st, err := redisstore.New(client, nil).Status(c.Context(), hourly)
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
	other := redisstore.New(c.proxy.Client(t), nil)
	seven := charge("seven", throttle.PerHour(7))
	for _, s := range []throttle.Store{c.store, c.store, other} {
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
			got := make(chan throttle.Grant)
			go func() {
				g, err := c.store.Book(c.Context(), booking(hourly))
				if err != nil {
					g.Wait = throttle.Never
				}
				got <- g
			}()
			f.Await(t)
			c.charged(c.master, 4)
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
	s := redisstore.New(servers.Client(t), nil)
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
		five := charge("five", throttle.PerHour(5))
		dead := redisstore.New(servers.Client(t), nil)
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
		next := redisstore.New(servers.Client(t), nil)
		for book(t, next, five) == 0 {
			granted++
		}
		require.Equal(t, 5+missing, granted)
	}
}
