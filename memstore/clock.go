package memstore

import (
	"sync/atomic"
	"time"

	"github.com/fleetthrottle/throttle/internal/virtual"
)

// A clock reads microseconds since the Unix epoch and never goes back. It
// follows the monotonic clock; when the wall clock is found ahead of it (the
// machine was suspended, or the time was corrected), it catches up, so that
// calendar windows stay right.
type clock struct {
	base  time.Time    // with its monotonic reading
	begun int64        // base, in nanoseconds since the Unix epoch
	ahead atomic.Int64 // how much the wall clock has gained since, in nanoseconds
	next  atomic.Int64 // when, in nanoseconds since base, to compare the two again

	virtual *virtual.Clock // of a simulation, or nil if time is the machine's
}

// A timer is one of the machine's, or of a simulation.
type timer interface {
	Reset(time.Duration) bool
	Stop() bool
}

// compareEvery is how often the wall clock, which is dearer to read, is looked
// at.
const compareEvery = int64(100 * time.Millisecond)

// drift is the gain that is not worth following: the two clocks are read and
// disciplined with small differences.
const drift = int64(100 * time.Millisecond)

// start sets the clock to the machine's time.
func (c *clock) start() {
	c.base = time.Now()
	c.begun = c.base.UnixNano()
}

// now reads the clock in microseconds.
func (c *clock) now() int64 {
	if c.virtual != nil {
		return c.virtual.Now()
	}
	return c.nanos() / int64(time.Microsecond)
}

// since returns how long ago a reading of now was, with the part of a microsecond that now has cut off. A penalty is
// longer by this part, so that it does not end early.
func (c *clock) since(now int64) time.Duration {
	if c.virtual != nil {
		return 0
	}
	return time.Duration(c.nanos() - now*int64(time.Microsecond))
}

// nanos reads the clock in nanoseconds.
func (c *clock) nanos() int64 {
	elapsed := int64(time.Since(c.base))
	if elapsed >= c.next.Load() {
		c.next.Store(elapsed + compareEvery)
		c.compare()
	}
	return c.begun + elapsed + c.ahead.Load()
}

// compare finds out how much the wall clock has gained.
func (c *clock) compare() {
	t := time.Now()
	c.follow(t.UnixNano() - c.begun - int64(t.Sub(c.base)))
}

// follow goes ahead with the wall clock, if the gain is worth it.
func (c *clock) follow(gain int64) {
	for {
		// Two goroutines may follow at once. The larger gain wins, and the clock never goes back.
		ahead := c.ahead.Load()
		if gain <= ahead+drift || c.ahead.CompareAndSwap(ahead, gain) {
			return
		}
	}
}

// afterFunc calls f in d.
func (c *clock) afterFunc(d time.Duration, f func()) timer {
	if c.virtual != nil {
		return c.virtual.AfterFunc(d, f)
	}
	return time.AfterFunc(d, f)
}

// wake closes the channel of a waiter whose turn it is.
func (c *clock) wake(ready chan struct{}) {
	if c.virtual != nil {
		c.virtual.Close(ready)
		return
	}
	close(ready)
}
