package fleet

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fleetthrottle/throttle"
	"github.com/fleetthrottle/throttle/internal/acquire"
	"github.com/fleetthrottle/throttle/internal/lab/redistest"
	"github.com/fleetthrottle/throttle/internal/lab/soak"
	"github.com/fleetthrottle/throttle/redisstore"
	"github.com/fleetthrottle/throttle/store"
)

// Budgets of every kind are used as heavily as they can be: a thousand bookings
// each, of any cost, with queues of hours. No key grows beyond 4 KB, and none
// stays forever.
func TestP10_Memory(t *testing.T) {
	soak.Only(t)
	limits := []string{"1000000/h", "5/s", "40/s", "10000/20s", "1000000/h fixed", "5000/month Asia/Shanghai", "40/s paced"}
	client := redistest.Single(t).Client(t)
	s := redisstore.New(client, redisstore.Options{})
	random := rand.New(rand.NewPCG(10, 4096))
	for i, text := range limits {
		limit, err := throttle.ParseLimit(text)
		require.NoError(t, err, text)
		for range 1000 {
			cost := 1
			if random.IntN(2) == 0 {
				cost = 1 + random.IntN(max(1, limit.N()/20))
			}
			g, err := s.Book(t.Context(), &store.Booking{MaxWait: -1, Charges: []store.Charge{{
				Budget: throttle.Budget{Policy: text, Group: "memory", Key: [16]byte{byte(i)}},
				Limit:  limit, Cost: cost, Jitter: acquire.DefaultJitter,
			}}})
			require.NoError(t, err, text)
			require.True(t, g.OK || g.Wait == throttle.Never, text)
		}
	}

	keys, err := client.Keys(t.Context(), "*").Result()
	require.NoError(t, err)
	require.GreaterOrEqual(t, len(keys), len(limits))
	for _, key := range keys {
		bytes, err := client.MemoryUsage(t.Context(), key, 0).Result()
		require.NoError(t, err)
		left, err := client.PTTL(t.Context(), key).Result()
		require.NoError(t, err)
		t.Logf("%s: %d bytes, %v left", key, bytes, left.Round(time.Second))
		require.LessOrEqual(t, bytes, int64(4096), key)
		require.Positive(t, left, key)
	}
}
