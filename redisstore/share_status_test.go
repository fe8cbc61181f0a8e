package redisstore_test

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fleetthrottle/throttle"
	"github.com/fleetthrottle/throttle/internal/redistest"
	"github.com/fleetthrottle/throttle/redisstore"
)

// stand lets so many callers of each share acquire a start, by turns, until the test ends, and returns a function that reads the shares.
func stand(t *testing.T, server *redistest.Server, shares, each int) func() []throttle.ShareStatus {
	t.Helper()
	forgets(t, server.Client(t))
	store := atRest(t, redisstore.NewAt(roomy(t, server), nil, bubbleClock))
	l, err := throttle.NewLimiters(throttle.Config{Store: store, Policies: []throttle.Policy{
		{Name: "model", Limit: throttle.PerSecond(100), Share: throttle.Header("X-Tenant")},
	}})
	require.NoError(t, err)
	ctx, stop := context.WithCancel(t.Context())
	t.Cleanup(func() {
		stop()
		synctest.Wait()
	})
	for i := range shares * each {
		go func() {
			_, _ = l.Acquire(ctx, throttle.Demand{Policy: "model", Share: fmt.Sprint("tenant ", i%shares), Weight: 1 + i%shares%2})
		}()
	}
	return func() []throttle.ShareStatus {
		t.Helper()
		all, err := l.Statuses(ctx)
		require.NoError(t, err)
		require.Len(t, all, 1)
		return all[0].Shares
	}
}

// TestStatusTellsShares: by the names that [throttle.ShareOf] finds, with their weights, what waits and what was served; nothing when nobody
// waits any more.
func TestStatusTellsShares(t *testing.T) {
	inBubble(t, func(t *testing.T, server *redistest.Server) {
		shares := stand(t, server, 2, 300)
		time.Sleep(4 * time.Second)
		all := shares()
		require.Len(t, all, 2)
		for i := range 2 {
			s, id := throttle.ShareStatus{}, throttle.ShareOf("model", fmt.Sprint("tenant ", i))
			for _, other := range all {
				if other.ID == id {
					s = other
				}
			}
			require.Equal(t, 1+i, s.Weight)
			require.Positive(t, s.Waiting)
			require.Positive(t, s.Served)
		}
		time.Sleep(time.Minute)
		require.Nil(t, shares())
	})
}

// TestStatusSaysWhatHasNoRoom: where a row has no room for what its shares were served, it says so, and tells all that wait.
func TestStatusSaysWhatHasNoRoom(t *testing.T) {
	server := redistest.Shared(t)
	defer redisstore.MistakenScript(t, "#text <= MAX_STORED", "#text <= 1100")()
	defer redisstore.MistakenScript(t, "lined <= LEAST_LINED", "lined <= 600")()
	synctest.Test(t, func(t *testing.T) {
		shares := stand(t, server, 40, 8)
		time.Sleep(1500 * time.Millisecond)
		all := shares()
		require.Len(t, all, 40)
		for _, s := range all {
			require.Positive(t, s.Waiting)
			require.Equal(t, -1, s.Served)
		}
	})
}
