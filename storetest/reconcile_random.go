package storetest

import (
	"slices"

	"github.com/fleetthrottle/throttle"
)

// state tells the store, and the truth, that an upstream has less left, or more,
// than we believe. A bucket with starts to come is left alone: nothing says how
// far a store can look into one that is overdrawn.
func (w *world) state() {
	w.Helper()
	c, now := w.budgets[w.rng.IntN(len(w.budgets))], w.clock()
	stays := w.truth.stays[c.Budget.Key]
	if c.Limit.Kind() == throttle.KindTokenBucket && slices.ContainsFunc(stays, func(s stay) bool { return s.at > now }) {
		return
	}
	q := throttle.Quota{Left: w.rng.IntN(c.Limit.Capacity()+2) - 1, Reset: w.duration(3 * sec)}
	w.states(c, q.Left, q.Reset)
	w.truth.reconcile(c, q, now)
	if len(w.truth.stays[c.Budget.Key]) > len(stays) {
		w.above[c.Budget.Key] = true // with what others have spent
	}
}
