package redisstore_test

import (
	"testing"

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
