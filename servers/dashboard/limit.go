package dashboard

import (
	"github.com/fleetthrottle/throttle"
	"github.com/fleetthrottle/throttle/store"
)

// The kinds of limits, as the page tells them apart.
const (
	windowed  = "window" // counts starts in a window
	spaced    = "spaced" // keeps starts apart
	bucketed  = "bucket" // holds tokens
	inFlight  = "flight" // counts what is in flight
	unlimited = "unlimited"
)

// kindOf returns the kind of a limit, and how much fits into it; 0: the limit has no number.
func kindOf(l throttle.Limit) (kind string, capacity int) {
	switch l.Kind() {
	case store.KindSlidingWindow, store.KindFixedWindow:
		return windowed, l.Capacity()
	case store.KindLeakyBucket:
		return spaced, 1 // one start counts at a time
	case store.KindTokenBucket:
		return bucketed, l.Capacity()
	case store.KindConcurrency:
		return inFlight, l.Capacity()
	}
	return unlimited, 0
}
