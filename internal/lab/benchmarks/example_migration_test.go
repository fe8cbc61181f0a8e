package benchmarks

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-redis/redis_rate/v10"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
	"golang.org/x/time/rate"

	"github.com/fleetthrottle/throttle"
	"github.com/fleetthrottle/throttle/internal/lab/redistest"
	"github.com/fleetthrottle/throttle/memstore"
	"github.com/fleetthrottle/throttle/redisstore"
)

// docs/start/comparison.md quotes the program with throttle in place of redis_rate, and the counts of the tests.

func xtimeBefore(ctx context.Context, work func()) error {
	limiter := rate.NewLimiter(rate.Limit(20), 20)
	for range 40 {
		if err := limiter.Wait(ctx); err != nil {
			return err
		}
		work()
	}
	return nil
}

func xtimeAfter(ctx context.Context, work func()) error {
	limiter, err := throttle.NewLimiter(memstore.New(), throttle.Policy{
		Name: "api", Limit: throttle.PerSecond(20),
	})
	if err != nil {
		return err
	}
	for range 40 {
		permit, err := limiter.Acquire(ctx, "", 1)
		if err != nil {
			return err
		}
		work()
		permit.Release()
	}
	return nil
}

// TestMigrationFromXTime: a bucket of 20 lets 39 through in the first second, a window 20.
func TestMigrationFromXTime(t *testing.T) {
	inTheFirstSecond := func(run func(context.Context, func()) error) (n int) {
		synctest.Test(t, func(t *testing.T) {
			begin := time.Now()
			require.NoError(t, run(t.Context(), func() {
				if time.Since(begin) < time.Second {
					n++
				}
			}))
		})
		return n
	}
	require.Equal(t, 39, inTheFirstSecond(xtimeBefore))
	require.Equal(t, 20, inTheFirstSecond(xtimeAfter))
}

func redisRateBefore(ctx context.Context, rdb *redis.Client, app string, work func()) error {
	limiter := redis_rate.NewLimiter(rdb)
	for range 5 {
		for {
			result, err := limiter.Allow(ctx, app, redis_rate.PerSecond(20))
			if err != nil {
				return err
			}
			if result.Allowed > 0 {
				break
			}
			select {
			case <-ctx.Done():
				return ctx.Err()
			case <-time.After(result.RetryAfter):
			}
		}
		work()
	}
	return nil
}

func redisRateAfter(ctx context.Context, rdb *redis.Client, app string, work func()) error {
	limiter, err := throttle.NewLimiter(redisstore.New(rdb, redisstore.Options{}), throttle.Policy{
		Name: "api", Keyed: true, Limit: throttle.PerSecond(20), // a budget for each key
	})
	if err != nil {
		return err
	}
	for range 5 {
		permit, err := limiter.Acquire(ctx, app, 1) // waits in line: until ctx ends, or for a minute if ctx has no deadline
		if err != nil {
			return err
		}
		work()
		permit.Release()
	}
	return nil
}

// TestMigrationFromRedisRate: both do the work, against a Redis.
func TestMigrationFromRedisRate(t *testing.T) {
	rdb := redistest.Single(t).Client(t)
	for _, run := range []func(context.Context, *redis.Client, string, func()) error{redisRateBefore, redisRateAfter} {
		done := 0
		require.NoError(t, run(t.Context(), rdb, "app", func() { done++ }))
		require.Equal(t, 5, done)
	}
}
