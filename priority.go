package throttle

import (
	"errors"
	"fmt"
	"math"
)

// A Priority is how much a request matters. It decides which of the waiters in line
// goes first and, with a policy's Headroom, how much a request must leave free.
// High goes before Normal, and Normal before Low, however long the others have
// waited. A start that is booked, for the next second at most, is never taken away
// again.
type Priority int8

// The priorities.
const (
	Low    Priority = -1 // batch work
	Normal Priority = 0  // the default
	High   Priority = 1  // a user is waiting for it
)

// String returns the priority's name in lower case.
func (p Priority) String() string {
	switch p {
	case Low:
		return "low"
	case Normal:
		return "normal"
	case High:
		return "high"
	}
	return fmt.Sprintf("priority %d", int8(p))
}

// reserves is a policy's Headroom in units of its limit.
type reserves [3]int

// of returns what a request of priority p must leave free.
func (r *reserves) of(p Priority) int {
	if p < Low || p > High {
		return 0
	}
	return r[p-Low]
}

// newReserves checks a policy's Headroom. A share is rounded up, but a request
// may always use the last unit of an idle budget.
func newReserves(headroom map[Priority]float64, l Limit) (r reserves, err error) {
	var errs []error
	for p, share := range headroom {
		switch {
		case p < Low || p > High:
			errs = append(errs, fmt.Errorf("%v is no priority: use Low, Normal or High", p))
		case math.IsNaN(share) || share < 0 || share >= 1:
			errs = append(errs, fmt.Errorf("%v must leave %v free: use a share from 0 to below 1", p, share))
		case share > 0 && l.kind == KindUnlimited:
			errs = append(errs, errors.New("an unlimited policy has nothing to share out: leave Headroom out, or set a limit with a number"))
		case share > 0 && l.kind == KindLeakyBucket:
			errs = append(errs, errors.New("a leaky bucket spaces starts out and has no share to leave free: use a window or a token bucket"))
		default:
			r[p-Low] = min(int(math.Ceil(share*float64(l.Capacity()))), max(0, l.Capacity()-1))
		}
	}
	return r, errors.Join(errs...)
}
