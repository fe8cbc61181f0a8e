package memstore

import (
	"sync/atomic"
	"time"
)

// A clock reads microseconds since the Unix epoch and never goes back. It
// follows the monotonic clock; when the wall clock is found ahead of it (the
// machine was suspended, or the time was corrected), it catches up, so that
// calendar windows stay right.
type clock struct {
	base  time.Time    // with its monotonic reading
	ahead atomic.Int64 // how much the wall clock has gained since, in nanoseconds
	next  atomic.Int64 // when, in nanoseconds since base, to compare the two again
}

// compareEvery is how often the wall clock, which is dearer to read, is looked
// at.
const compareEvery = int64(100 * time.Millisecond)

// drift is the gain that is not worth following: the two clocks are read and
// disciplined with small differences.
const drift = int64(100 * time.Millisecond)

func (c *clock) now() int64 {
	elapsed := int64(time.Since(c.base))
	if elapsed >= c.next.Load() {
		c.next.Store(elapsed + compareEvery)
		c.compare()
	}
	return (c.base.UnixNano() + elapsed + c.ahead.Load()) / int64(time.Microsecond)
}

// compare finds out what the wall clock has gained.
func (c *clock) compare() {
	t := time.Now()
	c.follow(t.UnixNano() - c.base.UnixNano() - int64(t.Sub(c.base)))
}

// follow goes ahead with the wall clock, if the gain is worth it.
func (c *clock) follow(gain int64) {
	for {
		ahead := c.ahead.Load()
		if gain <= ahead+drift || c.ahead.CompareAndSwap(ahead, gain) {
			return
		}
	}
}
