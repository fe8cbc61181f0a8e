package benchmarks

import (
	"context"
	_ "embed"
	"errors"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-redis/redis_rate/v10"
	"github.com/go-redsync/redsync/v4"
	"github.com/go-redsync/redsync/v4/redis/goredis/v9"
	"github.com/mennanov/limiters"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
	"github.com/throttled/throttled/v2"
	throttledstore "github.com/throttled/throttled/v2/store/goredisstore.v9"
	ulule "github.com/ulule/limiter/v3"
	ululestore "github.com/ulule/limiter/v3/drivers/store/redis"

	"github.com/fleetthrottle/throttle"
	"github.com/fleetthrottle/throttle/internal/lab/redistest"
	"github.com/fleetthrottle/throttle/redisstore"
)

// Each peer keeps a limit of five an hour: the sixth is told to wait, or gets an
// error because it cannot wait so long.
func TestPeers(t *testing.T) {
	client := redistest.Single(t).Client(t)
	for _, p := range peers {
		t.Run(p.name, func(t *testing.T) {
			require.NoError(t, client.FlushAll(t.Context()).Err())
			a, err := p.open(client, limit{5, time.Hour})
			require.NoError(t, err)
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			for range 5 {
				require.NoError(t, a.take(ctx, "key"))
			}
			require.NoError(t, a.take(ctx, "another key"))
			require.Error(t, a.take(ctx, "key"))
			require.NoError(t, ctx.Err(), "it says so at once")
		})
	}
}

// openThrottle is throttle as it comes.
func openThrottle(c *redis.Client, l limit) (ask, error) {
	return openLimiter(c, throttle.Policy{Name: "benchmark", Keyed: true, Limit: throttle.SlidingWindow(l.N, l.Per)})
}

// openLimiter returns an ask of throttle's Limiter under a policy.
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

// askRedisRate returns an ask of go-redis/redis_rate under a limit.
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

//go:embed sorted_set.lua
var sortedSetSource string

// pad is what the wait is made longer by, so that the oldest start is surely
// over.
const pad = 3 * time.Millisecond

// openSortedSet is a limiter in the manner of Redisson's RRateLimiter: a log of
// starts by the callers' clocks, and callers that are told when the oldest ends.
// It is kinder to Redis than the original, whose limit is in Redis too.
func openSortedSet(c *redis.Client, l limit) (ask, error) {
	script := redis.NewScript(sortedSetSource)
	return func(ctx context.Context, key string) (time.Duration, error) {
		start := strconv.FormatUint(rand.Uint64(), 36)
		wait, err := script.Run(ctx, c, []string{"{" + key + "}:free", "{" + key + "}:log"},
			time.Now().UnixMilli(), l.N, l.Per.Milliseconds(), start).Int64()
		if err != nil || wait < 0 {
			return 0, err
		}
		return time.Duration(wait)*time.Millisecond + pad, nil
	}, nil
}

// A shared peer keeps one limit for all processes that use the same Redis.
type peer struct {
	name string
	open func(*redis.Client, limit) (ask, error)
}

// A limit is the same for all peers: n for each per.
type limit struct {
	N   int
	Per time.Duration
}

// each is the even distance of starts.
func (l limit) each() time.Duration { return l.Per / time.Duration(l.N) }

// An ask takes one start of the key's budget and returns 0, or says how long to
// sleep before it is worth asking again. Peers that wait by themselves always
// return 0.
type ask func(ctx context.Context, key string) (time.Duration, error)

// peers are all that share a limit through Redis, ours first.
var peers = []peer{
	{"throttle", openThrottle},
	{"redis_rate", openRedisRate},
	{"sorted_set", openSortedSet},
	{"mennanov", openMennanov},
	{"mennanov_no_lock", openMennanovNoLock},
	{"mennanov_sliding", openMennanovSliding},
	{"throttled", openThrottled},
	{"ulule", openUlule},
}

func findPeer(name string) (peer, bool) {
	for _, p := range slices.Concat(peers, tables) {
		if p.name == name {
			return p, true
		}
	}
	return peer{}, false
}

// wait asks until there is a start, and sleeps as long as the peer says.
func (a ask) wait(ctx context.Context, key string) error {
	for {
		again, err := a(ctx, key)
		if err != nil || again <= 0 {
			return err
		}
		if err := sleep(ctx, again); err != nil {
			return err
		}
	}
}

var errNoRoom = errors.New("there is no room, and there should be")

// take asks once, where there is always room.
func (a ask) take(ctx context.Context, key string) error {
	again, err := a(ctx, key)
	if err == nil && again > 0 {
		return errNoRoom
	}
	return err
}

// sleep waits for d, or until ctx ends.
func sleep(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// perKey is what a user of a limiter without keys has to write: it makes one
// for each key.
func perKey[T any](make func(key string) T) func(key string) T {
	var all sync.Map
	return func(key string) T {
		if l, ok := all.Load(key); ok {
			return l.(T)
		}
		l, _ := all.LoadOrStore(key, make(key))
		return l.(T)
	}
}
