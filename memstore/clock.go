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
}

// drift is the gain that is not worth following: the two clocks are read and
// disciplined with small differences.
const drift = int64(100 * time.Millisecond)

func (c *clock) now() int64 {
	t := time.Now()
	elapsed := int64(t.Sub(c.base))
	gain := t.UnixNano() - c.base.UnixNano() - elapsed
	ahead := c.ahead.Load()
	for gain > ahead+drift {
		if c.ahead.CompareAndSwap(ahead, gain) {
			ahead = gain
			break
		}
		ahead = c.ahead.Load()
	}
	return (c.base.UnixNano() + elapsed + ahead) / int64(time.Microsecond)
}
