package redisstore_test

import (
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/fleetthrottle/throttle/internal/redistest"
)

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
