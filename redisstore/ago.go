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

// moment says to which moment an answer belongs that was decided by an earlier copy of
// its call, sent then: a time by the clock that it was decided by, which was not before
// since, and not after the answer was received. That is the time now, as the server
// tells it, unless its clock was set meanwhile: less has passed than nothing, or more
// than since the copy was sent. Then nobody knows how long ago it was decided. If the
// clock was set back by less than that, since is as much earlier, and who waits for a
// start may find that it is too old.
func moment(sent, received time.Time, decided, now int64) (at int64, since time.Time) {
	passed, most := now-decided, ago(sent, received)
	switch {
	case passed < 0 || most >= 0 && passed > most+most/steady:
		return decided, sent
	case most < 0:
		return now, sent
	}
	return now, sent.Add(time.Duration(passed) * time.Microsecond)
}
