package throttle

import "time"

// A Quota is what an upstream says is left of one budget. It is how the fleet
// hears of others that use the same budget: another team, a program that was not
// told of throttle.
type Quota struct {
	Left int // what may still be spent; below 0 means 0

	// Reset is how long it takes until the upstream gives something back, be it a
	// part. A [TokenBucket] does not need it; for other limits 0 makes the Quota void.
	// If nothing is left the budget closes for so long, at most [MaxPenalty] at a time,
	// also if that is longer than the limit's own window.
	Reset time.Duration

	// Age is how long ago Left was true: what the fleet has started since is spent,
	// too. The [Transport] sets it to the time that the answer took.
	Age time.Duration
}
