package throttle

import "time"

// A Quota is what an upstream says is left of one budget. It is how the fleet
// hears of others that use the same budget: another team, a program that was not
// told of throttle.
type Quota struct {
	Left int // what may still be spent; below 0 means 0

	// Reset is for how long that is all there is: until when nothing is given
	// back, which is not when all of it is. A [TokenBucket] does not need it;
	// for other limits 0 makes the statement void. If nothing is left the budget is
	// closed for so long, at most [MaxPenalty] at a time, also if that is longer than
	// the limit's own window.
	Reset time.Duration

	// Age is how long ago that was so: what the fleet has started since is spent, too.
	// The [Transport] sets it, to the time that the answer took.
	Age time.Duration
}
