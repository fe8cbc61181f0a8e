package llm

import (
	"time"

	"github.com/fleetthrottle/throttle"
)

// Evenly is the limit of requests where a number for a minute is enforced second by second. It
// is a window and not a distance, because requests differ in how long their ways take: two that
// start a second apart may arrive closer together.
func Evenly(perMinute int) throttle.Limit {
	if perMinute < 60 {
		return throttle.SlidingWindow(1, time.Minute/time.Duration(perMinute))
	}
	return throttle.PerSecond(perMinute / 60)
}

// Requests is a limit of requests a minute. With 0 it is [Unpublished].
func Requests(perMinute int, even bool) throttle.Limit {
	if perMinute > 0 && even {
		return Evenly(perMinute)
	}
	return Tokens(perMinute, false)
}

// Tokens is a limit of tokens a minute. With 0 it is [Unpublished]. One request may take the tokens
// of many seconds, so even spaces requests out in proportion to their tokens.
func Tokens(perMinute int, even bool) throttle.Limit {
	switch {
	case perMinute == 0:
		return throttle.PerMinute(Unpublished)
	case even:
		return throttle.LeakyBucket(perMinute, time.Minute)
	}
	return throttle.PerMinute(perMinute)
}
