package storetest

import (
	"slices"

	"github.com/fleetthrottle/throttle/store"
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
		c.Cost = costs[i]
		if c.Cost < 1 || c.Cost > c.Limit.Capacity()-c.KeepFree {
			return // nobody books that again
		}
		if !isOpen(*c) && !slices.Contains(w.truth.stays[c.Budget.Key], stayOf(*c, old.booking.Spread, old.at)) {
			return // it was over before its cost was known: no cost is given back that was not booked
		}
	}

	w.grants = append(w.grants, old)
}

// trueCost is the cost that a start turns out to have: less, the same, or more, even
// above the limit of a window. A pace and a bucket are not overdrawn: there a
// store may be more careful, or forget the excess over a full bucket once
// nothing has happened for as long as it takes to fill it.
func (w *world) trueCost(c store.Charge, g granted) int {
	cost := w.rng.IntN(c.Cost + 1)
	if w.chance(50) {
		cost = c.Cost + w.rng.IntN(c.Limit.Capacity()+1)
	}
	if w.chance(3) {
		cost = maxCost
	}
	if cost <= c.Cost {
		return cost
	}
	if k := c.Limit.Kind(); k == store.KindLeakyBucket || k == store.KindTokenBucket {
		return w.affordable(c, g, min(cost, c.Limit.Capacity()))
	}

	w.above[c.Budget.Key] = true
	return cost
}

// affordable is the cost, if the limit allows that, or the booked cost.
func (w *world) affordable(c store.Charge, g granted, cost int) int {
	s := stayOf(c, g.booking.Spread, g.at)
	others := slices.Clone(w.truth.stays[c.Budget.Key])
	if i := slices.Index(others, s); i >= 0 {
		others = slices.Delete(others, i, i+1)
	}
	s.cost, c.KeepFree = cost, 0
	if !fits(c, others, s) {
		return c.Cost
	}
	return cost
}

// state tells the store, and the truth, that an upstream has less left, or more,
// than we believe. A bucket with starts to come is left alone: nothing says how
// far a store can look into an overdrawn bucket.
func (w *world) state() {
	w.Helper()
	c, now := w.budgets[w.rng.IntN(len(w.budgets))], w.clock()
	stays := w.truth.stays[c.Budget.Key]
	if c.Limit.Kind() == store.KindTokenBucket && slices.ContainsFunc(stays, func(s stay) bool { return s.at > now }) {
		return
	}

	q := store.Quota{Left: w.rng.IntN(c.Limit.Capacity()+2) - 1, Reset: w.duration(3 * sec)}
	if w.chance(50) && !w.slow(c) { // a store keeps the probe of a penalty longer than others
		q.Age = w.duration(3 * sec)
	}

	w.states(c, q)
	w.truth.reconcile(c, q, now)
	if len(w.truth.stays[c.Budget.Key]) > len(stays) {
		w.above[c.Budget.Key] = true // with what others have spent
	}
}
