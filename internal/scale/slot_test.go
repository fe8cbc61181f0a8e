package main

import (
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/fleetthrottle/throttle/internal/redistest"
)

// TestSlotsAreThoseOfRedis asks a real cluster for the slots of keys, and which master has
// them.
func TestSlotsAreThoseOfRedis(t *testing.T) {
	t.Parallel() // its servers are its own
	cluster := redistest.Cluster(t)
	client := cluster.Servers[0].Client(t)
	for _, key := range []string{
		"", "123456789", "key", "{a}:b", "x{a}:b", "{}:b", "a{}b", "{a", "a}", "{{a}}", "}{a}", "{" + name(1) + "}:x", "\x00\xff",
	} {
		slot, err := client.ClusterKeySlot(t.Context(), key).Result()
		require.NoError(t, err)
		require.EqualValues(t, slot, slotOf(key), "%q", key)
	}
	for i := range 30 {
		key := "{" + name(i) + "}:x"
		owner := cluster.Servers[shardOf(slotOf(key), 3)].Client(t)
		require.NoError(t, owner.Set(t.Context(), key, "1", 0).Err())
	}
}

// TestClustersTellAllServers of each message, wherever its channel's slot is: so the bus is
// a part of the load that more shards do not share.
func TestClustersTellAllServers(t *testing.T) {
	t.Parallel() // its servers are its own
	cluster := redistest.Cluster(t)
	var subs []*redis.PubSub
	for _, s := range cluster.Servers {
		sub := s.Client(t).Subscribe(t.Context(), "{"+name(0)+"}:news")
		_, err := sub.Receive(t.Context())
		require.NoError(t, err)
		subs = append(subs, sub)
	}
	require.NoError(t, cluster.Servers[0].Client(t).Publish(t.Context(), "{"+name(0)+"}:news", "hello").Err())
	for i, sub := range subs {
		m, err := sub.ReceiveMessage(t.Context())
		require.NoError(t, err)
		require.Equal(t, "hello", m.Payload)
		require.NoError(t, sub.Close())
		info, err := cluster.Servers[i].Client(t).ClusterInfo(t.Context()).Result()
		require.NoError(t, err)
		require.Equal(t, i > 0, strings.Contains(info, "cluster_stats_messages_publish_received:1"))
	}
}

// TestSpreadCountsAll upstreams once.
func TestSpreadCountsAll(t *testing.T) {
	for _, shards := range []int{1, 3, 16, 64} {
		sum, most := 0, 0
		for _, n := range spread(1000, shards) {
			sum, most = sum+n, max(most, n)
		}
		require.Equal(t, 1000, sum)
		o := outlook{calls: 2, published: 3}
		h := o.hottest(1000, shards, costs{})
		require.Equal(t, most, h.upstreams)
		require.Equal(t, float64(3*1000), h.published+h.taken)
		require.Equal(t, float64(2*most), h.calls)
	}
}
