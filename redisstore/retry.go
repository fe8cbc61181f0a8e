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

// A caller that does not wait for room still waits so long for Redis to answer;
// one that waits, but not long, a little.
const (
	patience      = time.Second
	leastPatience = 100 * time.Millisecond
)

// retry calls f until it succeeds, fails for good, or the time is up: that of
// ctx and, if maxWait is not negative, maxWait. It tells f what is left of it.
func retry(ctx context.Context, maxWait time.Duration,
	f func(ctx context.Context, left time.Duration) error,
) error {
	start, left, bound := time.Now(), maxWait, ctx
	if maxWait >= 0 {
		var cancel context.CancelFunc
		long := max(maxWait, leastPatience)
		if maxWait == 0 {
			long = patience
		}
		bound, cancel = context.WithTimeout(ctx, long)
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

// undone reports whether a call failed before it did anything: a key held
// something else, its row could not be read, or a start was too far away.
func undone(err error) bool {
	return errors.Is(err, errFar) || redis.HasErrorPrefix(errors.Unwrap(err), "WRONGTYPE") ||
		redis.HasErrorPrefix(errors.Unwrap(err), "ERR ")
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
