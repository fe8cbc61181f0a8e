package benchmarks

import (
	"context"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/throttled/throttled/v2"
	throttledstore "github.com/throttled/throttled/v2/store/goredisstore.v9"
	ulule "github.com/ulule/limiter/v3"
	ululestore "github.com/ulule/limiter/v3/drivers/store/redis"
)

// openThrottled is throttled/throttled, which reads, computes and swaps. It
// gives up when others were faster ten times; then it is asked again.
func openThrottled(c *redis.Client, l limit) (ask, error) {
	store, err := throttledstore.NewCtx(c, "throttled:")
	if err != nil {
		return nil, err
	}
	quota := throttled.RateQuota{MaxRate: throttled.PerDuration(l.N, l.Per), MaxBurst: l.N - 1}
	limiter, err := throttled.NewGCRARateLimiterCtx(store, quota)
	if err != nil {
		return nil, err
	}
	return func(ctx context.Context, key string) (time.Duration, error) {
		for {
			limited, r, err := limiter.RateLimitCtx(ctx, key, 1)
			switch {
			case err == nil && limited:
				return r.RetryAfter, nil
			case ctx.Err() != nil:
				return 0, ctx.Err()
			case err == nil || !strings.HasPrefix(err.Error(), "Failed to store"):
				return 0, err
			}
		}
	}, nil
}

// notYet is how long to wait for a window of ulule/limiter that should be over:
// it tells the end in whole seconds, cut off.
const notYet = 10 * time.Millisecond

// openUlule is ulule/limiter, asked again at the end of its window.
func openUlule(c *redis.Client, l limit) (ask, error) {
	store, err := ululestore.NewStore(c)
	if err != nil {
		return nil, err
	}
	limiter := ulule.New(store, ulule.Rate{Period: l.Per, Limit: int64(l.N)})
	return func(ctx context.Context, key string) (time.Duration, error) {
		r, err := limiter.Get(ctx, key)
		if err != nil || !r.Reached {
			return 0, err
		}
		return max(time.Until(time.Unix(r.Reset, 0)), notYet), nil
	}, nil
}
