package benchmarks

import (
	"context"
	"errors"
	"time"

	"github.com/go-redsync/redsync/v4"
	"github.com/go-redsync/redsync/v4/redis/goredis/v9"
	"github.com/mennanov/limiters"
	"github.com/redis/go-redis/v9"
)

// openMennanov is mennanov/limiters' token bucket, which a lock in Redis guards.
func openMennanov(c *redis.Client, l limit) (ask, error) {
	pool := goredis.NewPool(c)
	return askMennanov(perKey(func(key string) mennanov {
		return newMennanov(c, l, key, limiters.NewLockRedis(pool, "lock:"+key), false)
	})), nil
}

// openMennanovNoLock is the same bucket in its optimistic mode.
func openMennanovNoLock(c *redis.Client, l limit) (ask, error) {
	return askMennanov(perKey(func(key string) mennanov {
		return newMennanov(c, l, key, limiters.NewLockNoop(), true)
	})), nil
}

// openMennanovSliding is mennanov/limiters' counter of two windows, which
// counts refusals too.
func openMennanovSliding(c *redis.Client, l limit) (ask, error) {
	return askMennanov(perKey(func(key string) mennanov {
		counters := limiters.NewSlidingWindowRedis(c, "sliding:"+key)
		return limiters.NewSlidingWindow(int64(l.N), l.Per, counters, limiters.NewSystemClock(), 1e-9)
	})), nil
}

// A mennanov is what its limiters have in common.
type mennanov interface {
	Limit(context.Context) (time.Duration, error)
}

func newMennanov(c *redis.Client, l limit, key string, lock limiters.DistLocker, optimistic bool) mennanov {
	state := limiters.NewTokenBucketRedis(c, "bucket:"+key, 2*l.Per, optimistic)
	clock := limiters.NewSystemClock()
	return limiters.NewTokenBucket(int64(l.N), l.each(), lock, state, clock, silent{})
}

// askMennanov asks again at once when others were faster.
func askMennanov(of func(key string) mennanov) ask {
	return func(ctx context.Context, key string) (time.Duration, error) {
		for {
			again, err := of(key).Limit(ctx)
			switch {
			case err == nil:
				return 0, nil
			case errors.Is(err, limiters.ErrLimitExhausted):
				return max(again, time.Microsecond), nil
			case ctx.Err() != nil:
				return 0, ctx.Err()
			case !errors.Is(err, limiters.ErrRaceCondition) && !errors.Is(err, redsync.ErrFailed):
				return 0, err
			}
		}
	}
}

// silent is told of locks that expired before they were given back.
type silent struct{}

// Log says nothing.
func (silent) Log(...any) {}
