package storetest

import (
	"math"
	"slices"
	"time"

	"github.com/fleetthrottle/throttle"
)

// A ramp is the slow start of a charge after a penalty: from its begin until its
// end a start must fit next to its stays, too.
type ramp struct {
	begin, end int64
	stays      []stay

	// Steps that are shorter than the window count the starts of intervals as long as a
	// step, and parts is how many of those a window has.
	step  int64 // 0: they are windows
	parts int
}

// longestStep is the longest step of a slow start.
const longestStep = 20 * time.Second

// rampOf returns the slow start after a penalty, next to what was booked.
func rampOf(c throttle.Charge, stays []stay, p penalty) ramp {
	switch per := c.Limit.Per(); {
	case p.end == 0:
		return ramp{}
	case c.Limit.Kind() == throttle.KindTokenBucket:
		return rampOfBucket(c, stays, p.end)
	case c.Limit.Kind() == throttle.KindSlidingWindow && p.step() < span(c):
		return rampOfSteps(c, since(stays, p.end-span(c)), p, span(c), shares)
	case c.Limit.Kind() == throttle.KindFixedWindow && per > 0 && p.step() < micros(per):
		return rampOfSteps(c, since(stays, p.end-micros(per)), p, micros(per), shares)
	case c.Limit.Kind() == throttle.KindSlidingWindow, c.Limit.Kind() == throttle.KindFixedWindow && per > 0:
		return rampOfWindows(c, stays, p.end, shares)
	default:
		return ramp{}
	}
}

// shares are what the first windows, or steps, have of a limit: an eighth, a half.
func shares(n int) []int { return []int{(n + 7) / 8, (n + 1) / 2} }

// rampOfWindows: all but its share of each of the first windows counts as booked
// when it begins.
func rampOfWindows(c throttle.Charge, stays []stay, closed int64, shares func(n int) []int) ramp {
	r := ramp{begin: closed, end: closed, stays: slices.Clone(stays)}
	for _, share := range shares(c.Limit.N()) {
		booked := stay{at: r.end, until: r.end, cost: c.Limit.N() - share}
		r.stays = append(r.stays, booked)
		r.end = over(c, booked)
	}
	return r
}

// rampOfSteps: the same with steps that are shorter than the window, and a limit of as
// much as the window has for so long.
func rampOfSteps(c throttle.Charge, stays []stay, p penalty, window int64, shares func(n int) []int) ramp {
	r := ramp{begin: p.end, end: p.end, stays: stays, step: p.step()}
	if r.step == 0 {
		return ramp{}
	}
	r.parts = int(window / r.step)
	n := part(c.Limit.N(), r.parts)
	for _, share := range shares(n) {
		r.stays = append(r.stays, stay{at: r.end, until: r.end, cost: n - share})
		r.end += r.step
	}
	return r
}

// since returns a copy of what was booked and can be used from a moment on.
func since(stays []stay, t int64) []stay {
	return slices.DeleteFunc(slices.Clone(stays), func(s stay) bool { return s.until < t })
}

// part is what one of so many parts has, rounded up.
func part(n, parts int) int { return (n + parts - 1) / parts }

// over is when something booked no longer counts in the ramp, if that is later than for
// the limit: a fixed window ends, and a step goes on.
func (r ramp) over(s stay) int64 {
	if r.step == 0 {
		return 0
	}
	return s.until + r.step
}

// rampOfBucket: the bucket comes back with a single token, whatever was spent of
// it before, until it would have filled up.
func rampOfBucket(c throttle.Charge, stays []stay, closed int64) ramp {
	booked := stay{at: closed, until: closed, cost: c.Limit.Capacity() - 1}
	r := ramp{begin: closed, end: over(c, booked), stays: []stay{booked}}
	for _, s := range stays {
		if s.until >= closed {
			r.stays = append(r.stays, s)
		}
	}
	return r
}

// allows reports whether the ramp has room for a start.
func (r ramp) allows(c throttle.Charge, s stay) bool {
	switch {
	case s.at < r.begin || s.at >= r.end:
		return true
	case r.step == 0:
		return fits(c, r.stays, s)
	}
	return fitsSpan(r.stays, s, r.step, part(c.Limit.N(), r.parts)-part(c.Reserve, r.parts))
}

// next returns the first moment after t at which the ramp may begin to have room.
func (r ramp) next(c throttle.Charge, t int64) int64 {
	first := int64(math.MaxInt64)
	if t < r.end {
		first = r.end
	}
	for _, s := range r.stays {
		end := s.until + r.step
		if r.step == 0 {
			end = over(c, s)
		}
		if end > t {
			first = min(first, end)
		}
	}
	return first
}
