package line

import (
	"cmp"
	"slices"
	"time"

	"github.com/fleetthrottle/throttle"
	"github.com/fleetthrottle/throttle/redisstore/internal/wire"
)

// A lease is what this node holds of one budget of concurrency, and the callers that wait
// here for more; see docs/in-flight.md. It exists while there is either, and
// as long as Redis is sure to keep the record after that. The lock of the slots guards all
// but the record lock.
type lease struct {
	key        string
	recordLock chan struct{} // full while a call reports the lease: one at a time

	charge     throttle.Charge // one of the budget, as it was last seen
	held       int             // by granted bookings that were not released
	line       []*waiter       // in the order in which they came
	most       int             // how many of the line are reported for each reserve
	generation wire.Generation // of the record in Redis, and how often it was written, as far as is known
	asked      time.Time       // when that was asked
	answered   time.Time       // and when it was answered
	again      time.Duration   // when to ask again at the latest; 0: whenever
	calls      int             // how many report the lease, or will soon
	early      []int64         // the waiters that were called while a call was on its way
	next       *time.Timer     // renews
}

// lineMost is how many of a line are reported for each reserve, at the most.
const lineMost = 8

// A waiter is one place in line.
type waiter struct {
	arrival int64 // by the server's clock: its name
	cost    int
	reserve int
	ready   chan struct{} // the caller's Grant.Ready
	woken   bool          // ready is closed
}

// live reports whether the node holds something or waits.
func (l *lease) live() bool { return l.held > 0 || len(l.line) > 0 }

// find returns the index in the line of the waiter that came then, or where it would be.
func (l *lease) find(arrival int64) (int, bool) {
	return slices.BinarySearchFunc(l.line, arrival, func(w *waiter, at int64) int { return cmp.Compare(w.arrival, at) })
}

// wake lets the waiters that came then book again.
func (l *lease) wake(arrivals []int64) {
	for _, at := range arrivals {
		if i, ok := l.find(at); ok && !l.line[i].woken {
			l.line[i].woken = true
			close(l.line[i].ready)
		}
	}
}
