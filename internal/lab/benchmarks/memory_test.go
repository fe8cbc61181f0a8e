package benchmarks

import (
	"fmt"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/fleetthrottle/throttle"
	"github.com/fleetthrottle/throttle/redisstore"
	"github.com/fleetthrottle/throttle/store"
)

// memoryStarts are more starts than a row keeps apart.
const memoryStarts = 200

// memoryLog is the largest limit for which a peer that keeps a log is measured.
const memoryLog = 100_000

// BenchmarkMemory is how many bytes Redis keeps for one budget. The peers keep
// nothing about waiters. All but one of them keep a number or two, however much was
// taken; that one keeps a log of all starts.
func BenchmarkMemory(b *testing.B) {
	client := newServer(b).watch
	for _, l := range []limit{
		{100, time.Second}, {10_000, time.Minute}, {memoryLog, time.Hour}, {1_000_000, time.Hour},
	} {
		b.Run(fmt.Sprintf("%d-per-%v", l.N, l.Per), func(b *testing.B) {
			bytes := func(name string, fill func(b *testing.B)) {
				b.Run(name, func(b *testing.B) {
					for b.Loop() {
						require.NoError(b, client.FlushDB(b.Context()).Err())
						fill(b)
					}
					b.ReportMetric(0, "ns/op")
					b.ReportMetric(bytesOfAll(b, client), "bytes")
				})
			}
			bytes("throttle-one_start", func(b *testing.B) { bookStarts(b, client, l, 1, 1) })
			// Each takes more than half of the quota, so no two fit into one
			// window, and so many have to wait that the row is full.
			bytes("throttle-full_row", func(b *testing.B) { bookStarts(b, client, l, memoryStarts, l.N/2+1) })
			for _, p := range peers[base:] {
				switch {
				case p.name != "sorted_set":
					bytes(p.name, func(b *testing.B) { takeStarts(b, client, p, l, 1) })
				case l.N <= memoryLog:
					bytes(p.name, func(b *testing.B) { takeStarts(b, client, p, l, l.N) })
				}
			}
		})
	}
}

// bookStarts books starts of throttle in one budget, without waiting for them.
func bookStarts(b *testing.B, client *redis.Client, l limit, starts, cost int) {
	b.Helper()
	s := redisstore.New(client, redisstore.Options{})
	for range starts {
		g, err := s.Book(b.Context(), &store.Booking{MaxWait: -1, Charges: []store.Charge{{
			Budget: throttle.Budget{Policy: "memory", Group: "memory", Key: [16]byte{1}},
			Limit:  throttle.SlidingWindow(l.N, l.Per), Cost: cost, Jitter: 35 * time.Millisecond,
		}}})
		require.NoError(b, err)
		require.True(b, g.OK, "premise: every start can be booked")
	}
}

// takeStarts takes starts of a peer.
func takeStarts(b *testing.B, client *redis.Client, p peer, l limit, starts int) {
	b.Helper()
	a, err := p.open(client, l)
	require.NoError(b, err)
	share := min(starts, 50) // every limit above is a multiple of it
	require.NoError(b, together(share, starts, func(int) error { return a.take(b.Context(), "key") }))
}

// bytesOfAll is what all keys take: those of one budget.
func bytesOfAll(b *testing.B, client *redis.Client) float64 {
	b.Helper()
	keys, err := client.Keys(b.Context(), "*").Result()
	require.NoError(b, err)
	require.NotEmpty(b, keys, "premise: there is a budget")
	require.LessOrEqual(b, len(keys), fewKeys, "premise: it is the only one")
	var sum int64
	for _, key := range keys {
		bytes, err := client.MemoryUsage(b.Context(), key, 0).Result()
		require.NoError(b, err)
		sum += bytes
	}
	return float64(sum)
}
