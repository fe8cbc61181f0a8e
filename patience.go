package throttle

import (
	"time"

	"github.com/fleetthrottle/throttle/store"
)

// leastPatience is for how long the store is asked for a caller with patience, at the least.
const leastPatience = time.Second

// leastInLine is for how much longer than the horizon a caller with a rank stands in line. All starts within the horizon are booked, so one that
// stood there for less would never come to its turn, and others would go before it.
const leastInLine = 150 * time.Millisecond

// patienceEnd is when a caller with patience leaves its line.
func (a *acquisition) patienceEnd() time.Duration {
	patience := a.patience
	if a.ranked {
		patience = max(patience, max(a.horizon(), store.LeastHorizon)+leastInLine)
	}

	return a.arrivedAt + patience
}

// lineEnd is when a caller leaves its line that has patience, or a MaxWait.
func (a *acquisition) lineEnd() time.Duration {
	if a.patience > 0 {
		return a.patienceEnd()
	}
	return a.waitDeadline
}

// remainingPatience is remainingWait for a caller with patience. One that has no rank yet must get in
// line to get one, however long it would wait. One that has a rank gets in line only if its turn comes
// soon.
func (a *acquisition) remainingPatience(asked time.Duration) time.Duration {
	a.remaining, a.remainingBy = store.AnyWait, ""
	if a.ranked {
		a.remaining = max(a.horizon(), a.patienceEnd()-asked)
	}
	return a.remaining
}

// outOfPatience reports whether a caller with patience has a place in line whose turn comes too late for
// it, by the store's answer of that time.
func (a *acquisition) outOfPatience(g store.Grant, answered time.Duration) bool {
	return a.patience > 0 && a.state == inLine && answered+g.Wait > max(a.patienceEnd(), answered+a.horizon())
}
