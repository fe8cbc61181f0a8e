package benchmarks

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/go-redis/redis_rate/v10"
	"github.com/stretchr/testify/require"

	"github.com/fleetthrottle/throttle"
	"github.com/fleetthrottle/throttle/internal/redistest"
	"github.com/fleetthrottle/throttle/redisstore"
)

// plentyShared is a limit for each second that no benchmark with Redis reaches.
const plentyShared = 10_000_000

// BenchmarkRedis is a start that has room, in a fleet: for a caller that is
// alone, and for many in one process. Both contestants use the same server,
// each with a client of its own. A trip is a wait for the server, a command is
// what it is sent there, and redis-us is how long it computes.
func BenchmarkRedis(b *testing.B) {
	for _, crowded := range []bool{false, true} {
		for _, shape := range []struct{ workers, calls int }{{1, 200}, {64, 4096}, {512, 8192}} {
			keys, name := []string{"key"}, "1-key"
			if crowded {
				keys, name = crowd(b), fmt.Sprintf("%d-keys", manyKeys)
			}
			b.Run(fmt.Sprintf("%s/%d-workers", name, shape.workers), func(b *testing.B) {
				redisRace(b, keys, shape.workers, shape.calls)
			})
		}
	}
}

func redisRace(b *testing.B, keys []string, workers, calls int) {
	server := redistest.Single(b)
	ours, peers := newCounted(b, server), newCounted(b, server)
	l := newLimiter(b, redisstore.New(ours.client, nil), throttle.PerSecond(plentyShared))
	peer, limit := redis_rate.NewLimiter(peers.client), redis_rate.PerSecond(plentyShared)
	at := 0
	many := func(call func(context.Context, string) error) func(int) error {
		return func(calls int) error {
			from := at
			at += calls
			return together(workers, calls, func(i int) error {
				return call(b.Context(), keys[(from+i)%len(keys)])
			})
		}
	}
	race(b, calls,
		contestant{
			name: "throttle", gauges: ours.gauges(),
			run: many(func(ctx context.Context, key string) error { return acquire(ctx, l, key) }),
		},
		contestant{
			name: "redis_rate", gauges: peers.gauges(),
			run: many(func(ctx context.Context, key string) error { return allow(ctx, peer, key, limit) }),
		})
	st, err := l.Status(b.Context(), keys[0])
	require.NoError(b, err)
	require.Equal(b, [2]time.Duration{}, [2]time.Duration{st.Wait, time.Duration(st.Waiting)}, "premise: nobody waits")
}

var errNoRoom = errors.New("there is no room, and there should be")

// allow asks the peer once.
func allow(ctx context.Context, l *redis_rate.Limiter, key string, limit redis_rate.Limit) error {
	r, err := l.Allow(ctx, key, limit)
	if err == nil && r.Allowed != 1 {
		return errNoRoom
	}
	return err
}
