package storetest

import (
	"slices"

	"github.com/fleetthrottle/throttle"
)

// settleOne settles one of the latest starts, past or to come, in the store and in
// the truth.
func (w *world) settleOne() {
	w.Helper()
	old, ok := w.take()
	if !ok || !w.current(old.booking) {
		return
	}
	costs := make([]int, len(old.booking.Charges))
	for i, c := range old.booking.Charges {
		costs[i] = w.trueCost(c, old)
	}
	w.settle(old.booking, old.grant, costs...)
	w.truth.settle(old.booking, old.at, w.clock(), costs)
	old.booking.Charges = slices.Clone(old.booking.Charges)
	for i := range costs {
		c := &old.booking.Charges[i]
		if c.Cost = costs[i]; c.Cost < 1 || c.Cost > c.Limit.Capacity()-c.Reserve {
			return // nobody books that again
		}
	}
	w.grants = append(w.grants, old)
}

// trueCost is what a start turns out to have cost: less, the same, or more, even
// above the limit. Two things are not tried, because stores may be more careful
// then: blocks of a pace that overlap, and, where starts share entries, more
// than a full bucket.
func (w *world) trueCost(c throttle.Charge, g granted) int {
	cost := w.rng.IntN(c.Cost + 1)
	if w.chance(50) {
		cost = c.Cost + w.rng.IntN(c.Limit.Capacity()+1)
	}
	if w.chance(3) {
		cost = throttle.MaxCost
	}
	if cost <= c.Cost {
		return cost
	}
	s := stayOf(c, g.booking.Spread, g.at)
	switch c.Limit.Kind() {
	case throttle.Paced:
		others := slices.Clone(w.truth.stays[c.Budget.Key])
		if i := slices.Index(others, s); i >= 0 {
			others = slices.Delete(others, i, i+1)
		}
		if s.cost = min(cost, c.Limit.N()); !fits(c, others, s) {
			return c.Cost
		}
		return s.cost
	case throttle.Bucket:
		if w.mood != exact {
			return c.Cost
		}
	}
	w.above[c.Budget.Key] = true
	return cost
}
