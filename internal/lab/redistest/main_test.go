package redistest_test

import (
	"os"
	"testing"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/fleetthrottle/throttle/internal/lab/redistest"
)

func TestMain(m *testing.M) { os.Exit(redistest.Main(m)) }

// requireServes fails unless a value that is set can be read back.
func requireServes(t *testing.T, c redis.UniversalClient) {
	t.Helper()
	require.NoError(t, c.Set(t.Context(), "key", "value", 0).Err())
	got, err := c.Get(t.Context(), "key").Result()
	require.NoError(t, err)
	require.Equal(t, "value", got)
}
