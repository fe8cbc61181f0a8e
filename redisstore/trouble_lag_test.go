package redisstore_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fleetthrottle/throttle"
	"github.com/fleetthrottle/throttle/internal/redistest"
	"github.com/fleetthrottle/throttle/internal/soak"
	"github.com/fleetthrottle/throttle/redisstore"
)

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
