package benchmarks

import (
	"fmt"
	"testing"

	"github.com/go-redis/redis_rate/v10"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/fleetthrottle/throttle"
	"github.com/fleetthrottle/throttle/internal/redistest"
	"github.com/fleetthrottle/throttle/redisstore"
)

// memoryStarts are more starts than a row keeps apart.
const memoryStarts = 200

// BenchmarkMemory is how many bytes Redis keeps for one budget: when one start
// is counted, and at the worst, when so many wait that the row is full. Each
// takes more than half of the quota, so that no two fit into one window. The
// peer keeps one number, and nothing of who waits.
func BenchmarkMemory(b *testing.B) {
	client := redistest.Single(b).Client(b)
	for _, of := range []struct {
		limit throttle.Limit
		peer  redis_rate.Limit
	}{
		{throttle.PerSecond(100), redis_rate.PerSecond(100)},
		{throttle.PerMinute(10_000), redis_rate.PerMinute(10_000)},
		{throttle.PerHour(1_000_000), redis_rate.PerHour(1_000_000)},
	} {
		b.Run(fmt.Sprintf("%d-per-%v", of.limit.N(), of.limit.Per()), func(b *testing.B) {
			var one, full, peers int64
			for b.Loop() {
				client.FlushDB(b.Context())
				charge := throttle.Charge{
					Budget: throttle.Budget{Policy: "memory", Group: "memory", Key: [16]byte{1}},
					Limit:  of.limit, Cost: 1, Jitter: throttle.DefaultJitter,
				}
				store := redisstore.New(client, nil)
				book(b, store, charge)
				one = bytesOfAll(b, client)
				charge.Cost = of.limit.N()/2 + 1
				for range memoryStarts {
					book(b, store, charge)
				}
				full = bytesOfAll(b, client)

				client.FlushDB(b.Context())
				r, err := redis_rate.NewLimiter(client).AllowN(b.Context(), "memory", of.peer, of.limit.N())
				require.NoError(b, err)
				require.Equal(b, of.limit.N(), r.Allowed)
				peers = bytesOfAll(b, client)
			}
			require.LessOrEqual(b, full, int64(4096), "a budget takes at most 4 KB")
			b.ReportMetric(0, "ns/op")
			b.ReportMetric(float64(one), "throttle-bytes-at-first")
			b.ReportMetric(float64(full), "throttle-bytes-at-most")
			b.ReportMetric(float64(peers), "redis_rate-bytes")
			b.ReportMetric(float64(full)/float64(peers), "x/redis_rate")
		})
	}
}

func book(b *testing.B, s throttle.Store, c throttle.Charge) {
	b.Helper()
	g, err := s.Book(b.Context(), &throttle.Booking{Charges: []throttle.Charge{c}, MaxWait: -1})
	require.NoError(b, err)
	require.True(b, g.OK, "premise: every start can be booked")
}

// bytesOfAll is what all keys take. There has to be one.
func bytesOfAll(b *testing.B, client *redis.Client) int64 {
	b.Helper()
	keys, err := client.Keys(b.Context(), "*").Result()
	require.NoError(b, err)
	require.Len(b, keys, 1, "premise: a budget is one key")
	bytes, err := client.MemoryUsage(b.Context(), keys[0], 0).Result()
	require.NoError(b, err)
	return bytes
}
