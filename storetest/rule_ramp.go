package storetest

import (
	"slices"
	"time"

	"github.com/fleetthrottle/throttle"
)

// A ramp is the slow start of a charge after a penalty: from its begin until its
// end a start must fit next to its stays, too.
type ramp struct {
	begin, end int64
	stays      []stay
}

// longestRamped is the longest window that begins slowly.
const longestRamped = 20 * time.Second

// rampOf returns the slow start after a penalty that ended at closed, 0 if there
// was none, next to what was booked.
func rampOf(c throttle.Charge, stays []stay, closed int64) ramp {
	switch per := c.Limit.Per(); {
	case closed == 0:
		return ramp{}
	case c.Limit.Kind() == throttle.KindTokenBucket:
		return rampOfBucket(c, stays, closed)
	case c.Limit.Kind() == throttle.KindSlidingWindow && per <= longestRamped,
		c.Limit.Kind() == throttle.KindFixedWindow && 0 < per && per <= longestRamped:
		return rampOfWindows(c, stays, closed, shares(c.Limit.N()))
	default:
		return ramp{}
	}
}

// shares are what the first windows have of a limit: an eighth, a half.
func shares(n int) []int { return []int{(n + 7) / 8, (n + 1) / 2} }

// rampOfWindows: all but its share of each of the first windows counts as booked
// when it begins.
func rampOfWindows(c throttle.Charge, stays []stay, closed int64, shares []int) ramp {
	r := ramp{closed, closed, slices.Clone(stays)}
	for _, share := range shares {
		booked := stay{at: r.end, until: r.end, cost: c.Limit.N() - share}
		r.stays = append(r.stays, booked)
		r.end = over(c, booked)
	}
	return r
}

// rampOfBucket: the bucket comes back with a single token, whatever was spent of
// it before, until it would have filled up.
func rampOfBucket(c throttle.Charge, stays []stay, closed int64) ramp {
	booked := stay{at: closed, until: closed, cost: c.Limit.Capacity() - 1}
	r := ramp{closed, over(c, booked), []stay{booked}}
	for _, s := range stays {
		if s.until >= closed {
			r.stays = append(r.stays, s)
		}
	}
	return r
}

// allows reports whether the ramp has room for a start.
func (r ramp) allows(c throttle.Charge, s stay) bool {
	return s.at < r.begin || s.at >= r.end || fits(c, r.stays, s)
}
