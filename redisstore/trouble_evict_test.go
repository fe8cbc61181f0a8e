package redisstore_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/fleetthrottle/throttle/internal/redistest"
	"github.com/fleetthrottle/throttle/internal/soak"
	"github.com/fleetthrottle/throttle/redisstore"
)

// TestP1_Evicted fills a server that makes room by throwing keys away, until those
// of the budget are gone. The fleet remembers them.
func TestP1_Evicted(t *testing.T) {
	t.Parallel() // its servers are its own
	policies := []string{
		"allkeys-lru", "volatile-ttl",
		"allkeys-lfu", "allkeys-random", "volatile-lru", "volatile-lfu", "volatile-random",
	}
	for _, policy := range policies[:soak.Most(len(policies), 2)] {
		t.Run(policy, func(t *testing.T) {
			server := redistest.Single(t, "--maxmemory-policy", policy, "--maxmemory", "8mb", "--lfu-log-factor", "255")
			client := server.Client(t)
			s := redisstore.New(client, nil)
			h := &history{T: t}
			row := s.Key(hourly.Budget)
			for round := range 3 {
				for range 5 {
					h.book(s)
				}
				for i := 0; client.Exists(t.Context(), row).Val() == 1; i++ {
					_, err := client.Pipelined(t.Context(), func(p redis.Pipeliner) error {
						key := fmt.Sprint("other", round, ":", i)
						p.Set(t.Context(), key, strings.Repeat("x", 100000), 1000*time.Hour)
						for range 5 { // more often than ours
							p.Touch(t.Context(), key)
						}
						return nil
					})
					require.NoError(t, err)
				}
				require.Greater(t, h.book(s).Wait, 59*time.Minute)
			}
		})
	}
}
