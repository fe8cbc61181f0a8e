package redisstore_test

import (
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/fleetthrottle/throttle"
	"github.com/fleetthrottle/throttle/redisstore"
)

// TestP11_TheLatestEndIsRemembered: the server forgot a penalty and was then told
// of a shorter one. The program remembers the one that ends last.
func TestP11_TheLatestEndIsRemembered(t *testing.T) {
	t.Parallel()
	forgotten(t, func(t *testing.T, client *redis.Client, forget func()) {
		s, c := redisstore.NewAt(client, nil, bubbleClock), charge("budget", throttle.PerSecond(1))
		for _, d := range []time.Duration{time.Minute, 10 * time.Second} {
			require.NoError(t, s.Pause(t.Context(), c, d))
			forget()
		}
		require.GreaterOrEqual(t, book(t, s, c), time.Minute)
	})
}
