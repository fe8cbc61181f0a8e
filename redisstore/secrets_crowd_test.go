package redisstore_test

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fleetthrottle/throttle"
	"github.com/fleetthrottle/throttle/internal/redistest"
	"github.com/fleetthrottle/throttle/redisstore"
)

// TestP10_ACrowdOfKeys has somebody send another key with every request, some of
// them huge: what each leaves behind is small, and gone soon after its window.
func TestP10_ACrowdOfKeys(t *testing.T) {
	t.Parallel()
	const crowd = 1000
	client := redistest.Shared(t).Client(t)
	tr := throttle.Must(throttle.New(throttle.Config{
		Store: redisstore.New(client, nil), Base: ok{},
		Policies: []throttle.Policy{{Name: "crowd", Key: throttle.Header("X-Tenant"), Limit: throttle.PerMinute(9)}},
	}))
	for n := range crowd {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "https://api.example.com/", nil)
		require.NoError(t, err)
		r.Header.Set("X-Tenant", strings.Repeat("x", n*n%99_991)+"y"+strings.Repeat("z", n))
		resp, err := tr.RoundTrip(r)
		require.NoError(t, err)
		require.NoError(t, resp.Body.Close())
	}
	bytes, budgets := int64(0), 0
	for _, key := range keys(t, client) {
		life, err := client.PTTL(t.Context(), key).Result()
		require.NoError(t, err)
		require.Positive(t, life, key)
		require.LessOrEqual(t, life, time.Minute+3*time.Second, key)
		if strings.Contains(key, ":crowd:") {
			used, err := client.MemoryUsage(t.Context(), key).Result()
			require.NoError(t, err)
			budgets, bytes = budgets+1, bytes+used
		}
	}
	require.Equal(t, crowd, budgets)
	require.Less(t, bytes/crowd, int64(500))
	t.Logf("%d bytes a budget", bytes/crowd)
}
