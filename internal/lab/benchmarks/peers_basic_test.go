package benchmarks

import (
	"context"
	"time"

	"github.com/go-redis/redis_rate/v10"
	"github.com/redis/go-redis/v9"

	"github.com/fleetthrottle/throttle"
	"github.com/fleetthrottle/throttle/redisstore"
)

// openThrottle is throttle as it comes.
func openThrottle(c *redis.Client, l limit) (ask, error) {
	return openLimiter(c, throttle.Policy{Name: "benchmark", Keyed: true, Limit: throttle.SlidingWindow(l.N, l.Per)})
}

func openLimiter(c *redis.Client, p throttle.Policy) (ask, error) {
	l, err := throttle.NewLimiter(redisstore.New(c, redisstore.Options{}), p)
	if err != nil {
		return nil, err
	}
	return func(ctx context.Context, key string) (time.Duration, error) {
		_, err := l.Acquire(ctx, key, 1)
		return 0, err
	}, nil
}

// openRedisRate is go-redis/redis_rate with its default, a burst as large as the
// limit.
func openRedisRate(c *redis.Client, l limit) (ask, error) {
	return askRedisRate(c, redis_rate.Limit{Rate: l.N, Burst: l.N, Period: l.Per}), nil
}

func askRedisRate(c *redis.Client, l redis_rate.Limit) ask {
	limiter := redis_rate.NewLimiter(c)
	return func(ctx context.Context, key string) (time.Duration, error) {
		r, err := limiter.Allow(ctx, key, l)
		if err != nil || r.Allowed == 1 {
			return 0, err
		}
		return r.RetryAfter, nil
	}
}
