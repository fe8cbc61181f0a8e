package throttle

import (
	"math"
	"time"
)

// A grant may be used for a share of Jitter after its start, in sevenths: for two when
// the request is handed to the base, so that the rest is left for the base and the way; for
// five right before the request is written, so that 10 of the default 35 ms are left for
// the way.
const (
	jitterShares  = 7
	handoffShare  = 2
	preWriteShare = 5
)

// late returns how much too old the grant is to be used now, if a share of Jitter
// may have passed; 0 if it is not too old.
func (a *acquisition) late(jitterShare time.Duration) time.Duration {
	if a.jitter == 0 {
		return 0
	}
	age := now() - a.startAt + a.grant.Age - a.booking.Spread
	return max(0, age-a.jitter*jitterShare/jitterShares)
}

// unusable reports whether the start cannot be used in time, even if it is still to
// come: the store's answer took so long that it is unknown when the start is. Then
// another is booked at once, and not after the wait.
func (a *acquisition) unusable(jitterShare time.Duration) bool {
	return a.jitter > 0 && a.grant.Age-a.booking.Spread > a.jitter*jitterShare/jitterShares
}

// spread asks for room behind the start if the store is so far away that its answer
// alone would use up the age that a grant may have. Other callers may get faster
// answers than this one, whose budgets may be elsewhere: after several stale answers
// in a row it believes its own.
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

// adjustPace lets starts flow evenly unless each needs much room behind it. Then
// they would be as far apart as that room, and most of the limit would be lost: it
// is better used by starts of one moment, which share their room.
func (a *acquisition) adjustPace() {
	for i := range a.booking.Charges {
		c := &a.booking.Charges[i]
		if c.Pace = pace(c.Limit); a.booking.Spread > c.Pace/4 {
			c.Pace = 0
		}
	}
}

// countStale counts the answers in a row that alone made the grant too old.
func (a *acquisition) countStale() {
	if a.staleStreak++; a.grant.Age-a.booking.Spread <= a.jitter*handoffShare/jitterShares {
		a.staleStreak = 0
	}
}

// spreadLimit returns the largest spread that fits into the fixed windows among the
// charges. If the store is slower than that, no grant can be proved to be in time.
func spreadLimit(charges []Charge) time.Duration {
	most := time.Duration(math.MaxInt64)
	for i := range charges {
		if c := &charges[i]; c.Limit.kind == KindFixedWindow && c.Limit.per > 0 {
			most = min(most, (c.Limit.per-c.Jitter)/2)
		}
	}
	return most
}

// A start is booked at most so far ahead: a caller that has to wait for longer stands in
// line, so that the line can move when something changes. docs/booking.md explains the
// numbers.
const (
	leastHorizon = 750 * time.Millisecond
	mostHorizon  = 2 * time.Second
	leadMargin   = 250 * time.Millisecond
	horizonTrips = 5 // so many answers of the store must fit into it
)

// horizon is how far ahead the next start is booked. A caller that wants to go on
// long before it, because its connections take long, must know it then.
func (a *acquisition) horizon() time.Duration {
	return max(min(max(leastHorizon, horizonTrips*a.rtt.get()), mostHorizon), a.lead+leadMargin)
}
