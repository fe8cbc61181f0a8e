package throttle

import (
	"sync/atomic"
	"time"
)

// A recent is what some duration was like lately; a guess that many goroutines
// may improve at once.
type decayingMax struct{ nanos atomic.Int64 }

func (m *decayingMax) get() time.Duration { return time.Duration(m.nanos.Load()) }

// noteMost keeps the longest. Each shorter one takes a 256th off, until
// less than a millisecond is left, which is not worth remembering.
func (m *decayingMax) add(d time.Duration) {
	old := m.get()
	next := max(d, old-old/256)
	if next < time.Millisecond {
		next = 0
	}
	if next != old {
		m.nanos.Store(int64(next))
	}
}
