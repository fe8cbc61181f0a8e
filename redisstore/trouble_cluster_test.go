package redisstore_test

import (
	"context"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/fleetthrottle/throttle/internal/redistest"
	"github.com/fleetthrottle/throttle/redisstore"
)

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
