package throttle

import (
	"math"
	"time"
)

// validFor is how long an answer of the store about a start counts as current. A
// penalty may take effect that much later.
const validFor = 5 * time.Millisecond

// usableFor is how long after its start a grant may be used: 10 of the default 35 ms. The
// rest of Jitter is left for the way to the upstream, so that a connection that came late
// does not use it up.
func (a *acquisition) usableFor() time.Duration { return a.jitter * 2 / 7 }

// age returns how long ago the start was, at most: part of the time that the store's
// answer was on its way may have passed after the start.
func (a *acquisition) age() time.Duration {
	return now() - a.startAt + a.grant.Age - a.booking.Spread
}

// late returns by how much a request that is written now may arrive later than Jitter
// after its start, even if the way takes no time; 0 if it does not.
func (a *acquisition) late() time.Duration {
	if a.jitter == 0 {
		return 0
	}
	return max(0, a.age()-a.jitter)
}

// stale reports whether the grant is too old to be used now.
func (a *acquisition) stale() bool { return a.jitter > 0 && a.age() > a.usableFor() }

// unusable reports whether the start cannot be used in time, even if it is still to
// come: the store's answer took so long that it is unknown when the start is. Then
// another is booked at once, and not after the wait.
func (a *acquisition) unusable() bool {
	return a.jitter > 0 && a.grant.Age-a.booking.Spread > a.usableFor()
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
	room := lag + lag/4 - a.usableFor()/2
	if room <= 0 {
		return 0
	}
	return min(room, spreadLimit(a.booking.Charges))
}

// adjustPace lets starts flow evenly. The room behind a start is part of the distance to the
// next one: as far apart as both together, starts would leave a part of the limit unused. So would
// starts of different costs: each window has room for some of them, and what keeps them apart on top
// of that leaves room that none of them fits into. One that costs more than 1 keeps no distance, but in
// a long window: if costs are guessed too low there, all of a window's would be too many at once.
func (a *acquisition) adjustPace() {
	for i := range a.booking.Charges {
		c := &a.booking.Charges[i]
		c.Pace = max(0, pace(c.Limit)-a.booking.Spread)
		if c.Cost > 1 && c.Limit.per <= longestEven {
			c.Pace = 0
		}
	}
}

// countStale counts the answers in a row that alone made the grant too old.
func (a *acquisition) countStale() {
	if a.staleStreak++; a.grant.Age-a.booking.Spread <= a.usableFor() {
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
// line, so that the line can move when something changes. What is booked is not moved any more,
// so the nearer the horizon is, the less a caller that leaves disturbs the order. docs/internals/line.md
// explains the numbers.
const (
	leastHorizon = 350 * time.Millisecond
	longHorizon  = 750 * time.Millisecond
	mostHorizon  = 2 * time.Second
	leadMargin   = 250 * time.Millisecond
	horizonTrips = 5 // so many answers of the store must fit into it
)

// horizon is how far ahead the next start is booked. A caller that wants to go on
// long before it, because its connections take long, must know it then.
func (a *acquisition) horizon() time.Duration {
	least := leastHorizon
	for i := range a.booking.Charges {
		least = max(least, a.booking.Charges[i].Limit.Horizon())
	}
	return max(min(max(least, horizonTrips*a.rtt.get()), mostHorizon), a.lead+leadMargin)
}

// Horizon returns how far ahead a [Transport] or a [Limiter] books a start under the limit, if its
// store is near: [Booking.Horizon]. Of several limits the largest counts.
func (l Limit) Horizon() time.Duration {
	switch {
	case !l.counts() || l.n < 1:
		return leastHorizon
	case l.unit != 0, l.kind != KindLeakyBucket && l.kind != KindTokenBucket && l.per > longestEven:
		// The window leaves in bunches. A near horizon makes them denser, and where costs are guessed
		// too low a bunch spends more than the limit.
		return longHorizon
	}
	// Starts that keep a distance need a horizon that holds one and a half of it.
	return max(leastHorizon, min(longHorizon, l.per*3/2/time.Duration(l.n)))
}
