package throttle

import (
	"sync/atomic"
	"time"
)

// A recent is what some duration was like lately; a guess that many goroutines
// may improve at once.
type recent struct{ nanos atomic.Int64 }

func (r *recent) get() time.Duration { return time.Duration(r.nanos.Load()) }

// noteMost keeps the longest. Each shorter one takes a 256th off, until
// less than a millisecond is left, which is not worth remembering.
func (r *recent) noteMost(d time.Duration) {
	old := r.get()
	next := max(d, old-old/256)
	if next < time.Millisecond {
		next = 0
	}
	if next != old {
		r.nanos.Store(int64(next))
	}
}
