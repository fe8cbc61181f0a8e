package redistest_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fleetthrottle/throttle/internal/redistest"
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
