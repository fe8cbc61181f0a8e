package ledger

import (
	"encoding/binary"
	"time"

	"github.com/fleetthrottle/throttle/store"
)

// keptSize is how many bytes a kept arrival takes.
const keptSize = len(Key{}) + 8

// Keep appends the arrivals of a waiter that is in no line: [Waiter.Restore] reads them.
func (w *Waiter) Keep(b []byte) []byte {
	for _, a := range w.arrivals {
		b = binary.BigEndian.AppendUint64(append(b, a.key[:]...), uint64(a.at))
	}
	return b
}

// Restore gives a new waiter the arrivals that another one kept. None is later than now, so that whoever
// changed the bytes gets no arrival that others cannot come behind. It returns false if there is none, or if the bytes
// are not those of arrivals.
func (w *Waiter) Restore(b []byte, now int64) bool {
	if len(b) == 0 || len(b)%keptSize != 0 {
		return false
	}
	for ; len(b) > 0; b = b[keptSize:] {
		at := int64(binary.BigEndian.Uint64(b[len(Key{}):keptSize]))
		w.came(Key(b[:len(Key{})]), max(1, min(at, now)))
	}
	return true
}

// Appointments are until when callers with places that left have appointments: those that left for the
// first time, and those that came back and left again. It is a moment in microseconds.
type Appointments [2]int64

// of returns the tail of one kind of callers.
func (a *Appointments) of(again bool) *int64 {
	if again {
		return &a[1]
	}
	return &a[0]
}

// Make returns in how long a caller should come again that leaves now, and that was told a wait: so much
// later than the one before it as its charge takes of the limit.
func (a *Appointments) Make(now int64, c *store.Charge, wait time.Duration, again bool) time.Duration {
	tail := a.of(again)
	at := max(now+Micros(wait), *tail)
	*tail = at + Micros(Distance(c))
	return time.Duration(at-now) * time.Microsecond
}

// Distance is how long a limit takes for a charge, where starts flow evenly; 0 if nobody knows.
func Distance(c *store.Charge) time.Duration {
	if n := c.Limit.N(); n > 0 && c.Limit.Per() > 0 {
		return time.Duration(float64(c.Limit.Per()) * float64(c.Cost) / float64(n))
	}
	return 0
}
