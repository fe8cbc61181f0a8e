package throttle

import (
	"math"
	"time"
)

// A grant may be used for so many sevenths of Jitter after its start. At the
// last look, right before the request is written, five: 10 of the default 35 ms
// are left for the way. Before that, two: the rest belongs to what comes
// between, such as a base that cannot be looked into.
const (
	jitterShares  = 7
	handoffShare  = 2
	preWriteShare = 5
)

// measure looks at what the charges ask of a grant. What is in flight is held
// and does not age.
func (a *acquisition) inspectCharges() {
	a.jitter, a.concurrent = 0, false
	for i := range a.booking.Charges {
		c := &a.booking.Charges[i]
		switch j := c.Jitter; {
		case c.Limit.kind == InFlight:
			a.concurrent = true
		case j > 0 && !c.Shadow && (a.jitter == 0 || j < a.jitter):
			a.jitter = j
		}
	}
}

// late returns how much too old the grant is to be used now, if some sevenths of
// Jitter may have passed; 0 if it is not.
func (a *acquisition) late(jitterShare time.Duration) time.Duration {
	if a.jitter == 0 {
		return 0
	}
	age := now() - a.startAt + a.grant.Age - a.booking.Spread
	return max(0, age-a.jitter*jitterShare/jitterShares)
}

// spoilt reports whether the start, though it may be still to come, cannot be used in
// time: the store's answer was on its way for too long to tell when it is. Then it is
// taken anew at once, and not after the wait.
func (a *acquisition) unusable(jitterShare time.Duration) bool {
	return a.jitter > 0 && a.grant.Age-a.booking.Spread > a.jitter*jitterShare/jitterShares
}

// spread asks for room behind the start where the store is so far away that its
// answer alone would use up what a grant may age. Others may hear answers that
// are faster than this caller's, whose budgets may be elsewhere: in the long run
// it believes its own.
func (a *acquisition) spread() time.Duration {
	if a.jitter == 0 {
		return 0
	}
	lag := a.rtt.get()
	if a.staleStreak >= rttSamples {
		lag = max(lag, a.grant.Age)
	}
	return min(max(0, lag+lag/4-a.jitter*handoffShare/jitterShares/2), spreadLimit(a.booking.Charges))
}

// keepPace lets starts flow evenly unless each needs much room behind it. Then they would
// be as far apart as that room, and most of the limit would be lost: it is better used by
// starts of one moment, which share their room.
func (a *acquisition) adjustPace() {
	for i := range a.booking.Charges {
		c := &a.booking.Charges[i]
		if c.Pace = pace(c.Limit); a.booking.Spread > c.Pace/4 {
			c.Pace = 0
		}
	}
}

// age counts the answers in a row that alone made the grant too old.
func (a *acquisition) countStale() {
	if a.staleStreak++; a.grant.Age-a.booking.Spread <= a.jitter*handoffShare/jitterShares {
		a.staleStreak = 0
	}
}

// mostSpread is the most that fits into the fixed windows among the charges. If
// the store is slower than that, no grant can be proved to be in time.
func spreadLimit(charges []Charge) time.Duration {
	most := time.Duration(math.MaxInt64)
	for i := range charges {
		if c := &charges[i]; c.Limit.kind == Aligned && c.Limit.per > 0 {
			most = min(most, (c.Limit.per-c.Jitter)/2)
		}
	}
	return most
}
