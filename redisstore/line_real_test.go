package redisstore_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/fleetthrottle/throttle/internal/lab/redistest"
	"github.com/fleetthrottle/throttle/redisstore"
	"github.com/fleetthrottle/throttle/store"
)

// awaitMost is how long a test awaits what takes a message, on a machine that is busy.
const awaitMost = 5 * time.Second

// hourlyInLine returns two stores, a start of the first one that took all of an hour, and
// a waiter in line at the second one, which hears.
func hourlyInLine(t *testing.T, client func() redis.UniversalClient) (a, b *redisstore.Store, all *held, w *walker) {
	a, b = redisstore.New(client(), redisstore.Options{}), redisstore.New(client(), redisstore.Options{})
	c := charge("hour", store.TokenBucket(1, time.Hour, 5))
	k := booking(c)
	k.Charges[0].Cost = 5
	g := ask(t, a, k)
	require.True(t, g.OK)
	w = walks(t, b, store.PriorityNormal, c)
	require.NotNil(t, w.grant.Ready)
	require.Equal(t, 1, b.Standing())
	require.Eventually(t, func() bool { return b.Complete(time.Now().Add(-time.Millisecond)) }, awaitMost, time.Millisecond)
	return a, b, &held{booking: k, grant: g}, w
}

// starts awaits that the walker does.
func (w *walker) starts(t *testing.T) {
	t.Helper()
	select {
	case <-w.over:
		require.NoError(t, w.err)
		require.False(t, w.start.IsZero())
	case <-time.After(awaitMost):
		require.FailNow(t, "it does not start", "%+v", w.grant)
	}
}

// TestP3_LineAfterARefund: a start turns out to have cost less. Who waits in another node
// is told, and starts at once.
func TestP3_LineAfterARefund(t *testing.T) {
	t.Parallel()
	server := redistest.Shared(t)
	a, b, all, w := hourlyInLine(t, func() redis.UniversalClient { return server.Client(t) })
	require.NoError(t, a.Settle(t.Context(), all.booking, all.grant, []int{1}))
	w.starts(t)
	gone(t, a, b)
}

// TestP3_LineAfterACancel is the same for a start that is given back.
func TestP3_LineAfterACancel(t *testing.T) {
	t.Parallel()
	server := redistest.Shared(t)
	a, b, all, w := hourlyInLine(t, func() redis.UniversalClient { return server.Client(t) })
	a.Cancel(all.booking, all.grant)
	w.starts(t)
	gone(t, a, b)
}

// TestP11_LineAfterAResume: a penalty of an hour is lifted. Who waits in line in two nodes
// starts.
func TestP11_LineAfterAResume(t *testing.T) {
	t.Parallel()
	server := redistest.Shared(t)
	a, b := redisstore.New(server.Client(t), redisstore.Options{}), redisstore.New(server.Client(t), redisstore.Options{})
	c := charge("free", store.PerSecond(50))
	require.NoError(t, a.Pause(t.Context(), c, time.Hour))
	var all []*walker
	for i := range 6 {
		all = append(all, walks(t, []*redisstore.Store{a, b}[i%2], store.PriorityNormal, c))
	}
	require.Equal(t, 3, a.Standing())
	require.Equal(t, 3, b.Standing())
	for _, s := range []*redisstore.Store{a, b} {
		require.Eventually(t, func() bool { return s.Complete(time.Now().Add(-time.Millisecond)) }, awaitMost, time.Millisecond)
	}
	require.NoError(t, b.Resume(t.Context(), c))
	for _, w := range all {
		w.starts(t)
	}
	gone(t, a, b)
}

// TestP5_LineOnACluster: with hash tags all of it is in one slot.
func TestP5_LineOnACluster(t *testing.T) {
	t.Parallel() // its servers are its own
	cluster := redistest.Cluster(t)
	client := func() redis.UniversalClient { return cluster.Client(t) }
	a, b, all, w := hourlyInLine(t, client)
	a.Cancel(all.booking, all.grant)
	w.starts(t)
	gone(t, a, b)

	nodes := []*redisstore.Store{a, b}
	for group := range 3 {
		c := inGroup(fmt.Sprint("api ", group), charge(fmt.Sprint("ten ", group), store.LeakyBucket(10, time.Second)))
		var crowd []*walker
		for i := range 20 {
			crowd = append(crowd, walks(t, nodes[i%2], store.PriorityNormal, c))
		}
		starts := allStart(t, 30*time.Second, crowd...)
		ordered(t, time.Second, starts)
		require.Less(t, starts[19].Sub(crowd[0].came), 1900*time.Millisecond+awaitMost)
	}
	gone(t, a, b)
}

// stands books for a caller that has to stand in line.
func (w *wire) stands(s store.Store) *held {
	w.Helper()
	k := booking(w.five)
	k.Horizon = near
	g := ask(w.T, s, k)
	require.False(w, g.OK)
	require.NotNil(w, g.Ready)
	require.NotNil(w, g.Turn)
	return &held{booking: k, grant: g}
}

// TestP8_LeavesBeforeThePlaceIsKnown: a caller leaves while the call that joins the line
// is on its way, and lost. Nobody stands there for it.
func TestP8_LeavesBeforeThePlaceIsKnown(t *testing.T) {
	onLoss(t, func(w *wire, lose, late func()) {
		for range 5 {
			w.now(w.store)
		}
		ctx, cancel := context.WithCancelCause(w.Context())
		lose()
		got := make(chan store.Grant)
		k := booking(w.five)
		k.Horizon = near
		go func() {
			g, err := w.store.Book(ctx, k)
			if err != nil {
				g = store.Grant{}
			}
			got <- g
		}()
		cancel(errLeft)
		if g := <-got; g.Ready != nil {
			w.store.Cancel(k, g)
		}
		h := w.stands(w.store) // tells what is left to tell
		late()
		w.charged(6)
		w.store.Cancel(h.booking, h.grant)
		w.charged(5)
		require.Eventually(w, func() bool { return w.store.Lines() == 0 }, 10*time.Second, time.Millisecond)
	})
}
