package throttle

import (
	"sync/atomic"
	"time"
)

// A caller whose policies are all in shadow mode is only counted: no answer of the store holds it.
// So the caller does not wait for a store that is away, and no failure of the store refuses it. It
// goes on without being counted.
const (
	countPatience = 500 * time.Millisecond // so long the store has to answer a caller that is only counted
	countPause    = time.Second            // after a failure so long no such caller asks, and then one
)

// A counting says whether callers that are only counted ask the store.
type counting struct {
	from atomic.Int64 // as of now: the next caller asks from then on; 0: all ask
}

// mayAsk reports whether a caller may ask the store now. After a failure, one caller may each countPause.
func (c *counting) mayAsk(at time.Duration) bool {
	from := c.from.Load()
	return from == 0 || int64(at) >= from && c.from.CompareAndSwap(from, int64(at+countPause))
}

// note notes whether the store answered the call that has just ended.
func (c *counting) note(answered bool) {
	if !answered {
		c.from.Store(int64(now() + countPause))
	} else if c.from.Load() != 0 {
		c.from.Store(0)
	}
}
