package redisstore

import (
	"context"
	"errors"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
)

// While Redis is away it is asked again after pauses that double between these
// two.
const (
	firstPause = 10 * time.Millisecond
	lastPause  = 500 * time.Millisecond
)

// patience is how long a caller that does not wait for room still waits for
// Redis to answer.
const patience = time.Second

// retry calls f until it succeeds, fails for good, or the time is up: that of
// ctx and, if maxWait is not negative, maxWait. It tells f what is left of it.
func retry(ctx context.Context, maxWait time.Duration,
	f func(ctx context.Context, left time.Duration) error,
) error {
	start, left, bound := time.Now(), maxWait, ctx
	if maxWait >= 0 {
		var cancel context.CancelFunc
		bound, cancel = context.WithTimeout(ctx, max(maxWait, patience))
		defer cancel()
	}
	var last error
	for pause := firstPause; ; pause = min(2*pause, lastPause) {
		err := f(bound, left)
		switch {
		case err == nil:
			return nil
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case bound.Err() != nil:
			return errors.Join(errors.New("redisstore: no answer in time"), last)
		case !passing(err):
			return err
		}
		last = err
		timer := time.NewTimer(pause)
		select {
		case <-bound.Done():
		case <-timer.C:
		}
		timer.Stop()
		if maxWait >= 0 {
			left = max(0, maxWait-time.Since(start))
		}
	}
}

// passing reports whether asking again may help. What the server itself says is
// final, unless it says that it is not ready.
func passing(err error) bool {
	if errors.Is(err, redis.ErrClosed) || errors.Is(err, errFar) || errors.Is(err, errAnswer) {
		return false
	}
	var said redis.Error
	if !errors.As(err, &said) {
		return true
	}
	for _, p := range []string{"LOADING", "READONLY", "MASTERDOWN", "CLUSTERDOWN", "TRYAGAIN", "BUSY", "NOREPLICAS"} {
		if strings.HasPrefix(said.Error(), p) {
			return true
		}
	}
	return false
}
