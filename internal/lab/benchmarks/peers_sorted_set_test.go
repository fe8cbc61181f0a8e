package benchmarks

import (
	"context"
	_ "embed"
	"math/rand/v2"
	"strconv"
	"time"

	"github.com/redis/go-redis/v9"
)

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
