package dashboard

import "github.com/fleetthrottle/throttle"

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
	case throttle.KindSlidingWindow, throttle.KindFixedWindow:
		return windowed, l.Capacity()
	case throttle.KindLeakyBucket:
		return spaced, 1 // one start counts at a time
	case throttle.KindTokenBucket:
		return bucketed, l.Capacity()
	case throttle.KindConcurrency:
		return inFlight, l.Capacity()
	}
	return unlimited, 0
}
