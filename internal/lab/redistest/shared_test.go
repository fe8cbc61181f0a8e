package redistest_test

import (
	"testing"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/fleetthrottle/throttle/internal/lab/redistest"
)

func TestSharedKeepsTestsApart(t *testing.T) {
	a, b := redistest.Shared(t), redistest.Shared(t)
	require.Equal(t, a.PID(), b.PID())
	require.Equal(t, a.Addr, b.Addr)
	require.NotEqual(t, a.DB, b.DB)
	require.NotEqual(t, a.Namespace, b.Namespace)
	require.NotEqual(t, a.URL(), b.URL())

	requireServes(t, a.Client(t))
	require.Equal(t, redis.Nil, b.Client(t).Get(t.Context(), "key").Err())
}

func TestSharedServersBelongToOneTestAtATime(t *testing.T) {
	first := redistest.Shared(t)
	var second int
	for range 2 {
		t.Run("beside it", func(t *testing.T) {
			s := redistest.Shared(t)
			require.NotEqual(t, first.PID(), s.PID())
			if second != 0 {
				require.Equal(t, second, s.PID(), "it was free again")
			}
			second = s.PID()
		})
	}
}

func TestSharedDatabaseIsEmptyWhenUsedAgain(t *testing.T) {
	first := redistest.Shared(t)
	requireServes(t, first.Client(t))
	for {
		s := redistest.Shared(t)
		if s.DB != first.DB {
			continue
		}
		require.Zero(t, s.Client(t).DBSize(t.Context()).Val())
		return
	}
}
