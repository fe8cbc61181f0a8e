package redistest_test

import (
	"fmt"
	"strconv"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/fleetthrottle/throttle/internal/lab/redistest"
)

func TestClusterServes(t *testing.T) {
	s := redistest.Cluster(t)
	require.Len(t, s.Addrs, 3)
	c := s.Client(t)
	requireServes(t, c)

	// With so many keys each master gets some: a slot that nobody serves
	// would show.
	for i := range 300 {
		require.NoError(t, c.Set(t.Context(), fmt.Sprint("key", i), i, 0).Err())
	}
	for _, node := range s.Servers {
		require.NotZero(t, node.Client(t).DBSize(t.Context()).Val(), node.Addr)
	}
}

// A master that a busy machine keeps from answering for a second stays the master.
func TestSentinelGivesNoSilentMasterUp(t *testing.T) {
	s := redistest.Sentinel(t)
	sentinel := redis.NewSentinelClient(&redis.Options{Addr: s.Sentinel.Addr})
	defer sentinel.Close()
	s.Master.Pause()
	require.Eventually(t, func() bool {
		silent, err := strconv.Atoi(sentinel.Master(t.Context(), redistest.MasterName).Val()["last-ok-ping-reply"])
		return err == nil && silent > 1000
	}, 30*time.Second, 10*time.Millisecond)
	require.Equal(t, "master", sentinel.Master(t.Context(), redistest.MasterName).Val()["flags"])
	s.Master.Continue()
	requireServes(t, s.Client(t))
}

func TestSentinelFailsOver(t *testing.T) {
	s := redistest.Sentinel(t)
	c := s.Client(t)
	requireServes(t, c)
	// The replica has what it is to take over before the master dies.
	acknowledged, err := c.Do(t.Context(), "WAIT", 1, 0).Int()
	require.NoError(t, err)
	require.Equal(t, 1, acknowledged)
	master, replica := s.Master.Addr, s.Replica.Addr

	s.Failover()

	require.Equal(t, replica, s.Master.Addr)
	require.Equal(t, master, s.Replica.Addr)
	got, err := s.Client(t).Get(t.Context(), "key").Result()
	require.NoError(t, err)
	require.Equal(t, "value", got)
	requireServes(t, s.Client(t))
}
