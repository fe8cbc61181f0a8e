package storetest

import (
	"slices"
	"time"

	"github.com/fleetthrottle/throttle"
)

// A gap is the time after the first start that follows a penalty in which
// nobody else starts: the answer to that one, the probe, may be another penalty.
type gap struct{ begin, end int64 }

// A probe is alone for twice as long as the refusal took, within these bounds, and not
// for longer than the penalty lasted unless that is less than the least.
const (
	probeTime   = 250 * time.Millisecond // the least
	longestTime = 5 * time.Second
)

// probeOf is for how long the probe after a penalty of such a length is alone, if its
// refusal took so long; 0: it was no refusal.
func probeOf(length, refused int64) int64 {
	return max(micros(probeTime), min(2*refused, micros(longestTime), length))
}

// gapOf returns the gap after a penalty next to what was booked: none until something
// begins in it.
func gapOf(c throttle.Charge, stays []stay, p penalty) gap {
	g := gap{p.end, p.end + p.probe}
	if p.end == 0 || c.Limit.Kind() == throttle.KindLeakyBucket || inFlight(c) || !slices.ContainsFunc(stays, g.holds) {
		return gap{}
	}
	return g
}

// holds reports whether something booked can begin in the gap.
func (g gap) holds(s stay) bool { return s.at < g.end && s.until >= g.begin }

// allows reports whether a start lies outside the gap.
func (g gap) allows(s stay) bool { return s.at < g.begin || s.at >= g.end }
