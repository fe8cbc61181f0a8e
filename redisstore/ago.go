package redisstore

import "time"

// slept is by how much the two clocks of a computer may differ about how long ago
// something was.
const slept = time.Second

// By so much the times of two calls may differ though no clock was set: a little, and
// one part in steady of what has passed between them. As in lua/age.lua.
const (
	stall  = 50 * time.Millisecond
	steady = 1000
)

// ago is how long ago something was, in microseconds, as scripts are told it to see
// whether their server's clock was set forward; see lua/age.lua. It is below 0 if
// nobody can tell: it never was, or the computer slept meanwhile, which its
// monotonic clock does not count.
func ago(then, now time.Time) int64 {
	passed := now.Sub(then)
	if then.IsZero() || (now.Round(0).Sub(then.Round(0))-passed).Abs() > slept {
		return -1
	}
	return micros(passed)
}
