package redissim

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/fleetthrottle/throttle/internal/lab/redistest"
)

func TestMain(m *testing.M) { os.Exit(redistest.Main(m)) }

// name is a hash tag.
func name(i int) string { return fmt.Sprintf("upstream-%d.example", i) }

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
		require.EqualValues(t, slot, SlotOf(key), "%q", key)
	}
	for i := range 30 {
		key := "{" + name(i) + "}:x"
		owner := cluster.Servers[ShardOf(SlotOf(key), 3)].Client(t)
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
