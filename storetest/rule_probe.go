package storetest

import (
	"slices"
	"time"

	"github.com/fleetthrottle/throttle"
)

// A gap is the time after the first start that follows a penalty in which
// nobody else starts: the answer to that one, the probe, may be another penalty.
type gap struct{ begin, end int64 }

// probeTime is how long a probe has.
const probeTime = 250 * time.Millisecond

// gapOf returns the gap after a penalty that ended at closed, 0 if there was
// none, next to what was booked: none until something begins in it.
func gapOf(c throttle.Charge, stays []stay, closed int64) gap {
	g := gap{closed, closed + micros(probeTime)}
	if closed == 0 || c.Limit.Kind() == throttle.KindLeakyBucket || inFlight(c) || !slices.ContainsFunc(stays, g.holds) {
		return gap{}
	}
	return g
}

// holds reports whether something booked can begin in the gap.
func (g gap) holds(s stay) bool { return s.at < g.end && s.until >= g.begin }

// allows reports whether a start lies outside the gap.
func (g gap) allows(s stay) bool { return s.at < g.begin || s.at >= g.end }
