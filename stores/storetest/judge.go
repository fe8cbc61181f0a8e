package storetest

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/fleetthrottle/throttle/store"
)

// isExact compares a grant with the earliest start that the definition gives.
func (w *world) isExact(k store.Booking, g store.Grant, now, want int64) {
	w.Helper()
	wait := time.Duration(want-now) * tick
	ok := k.MaxWait < 0 || wait <= k.MaxWait
	if g.OK != ok || g.Wait != wait {
		w.failf("%s: OK %t, Wait %v; want %t, %v", describe(k), g.OK, g.Wait, ok, wait)
	}
	w.isHolder(k, g, now, want)
	if g.OK {
		w.isOver(k, g, want)
	}
}

// isHolder checks which charge the grant says held it back. Where several
// charges rule out the moment before the start, any of them may be named.
func (w *world) isHolder(k store.Booking, g store.Grant, now, start int64) {
	w.Helper()
	if start == soonest(k, now) {
		if g.HeldBy != -1 || g.Paused {
			w.failf("%s: nothing held it back, but Held is %d, Paused %t", describe(k), g.HeldBy, g.Paused)
		}
		return
	}

	if g.HeldBy < 0 || g.HeldBy >= len(k.Charges) || k.Charges[g.HeldBy].Shadow {
		w.failf("%s: waits %v, but Held is %d", describe(k), g.Wait, g.HeldBy)
	}

	q := w.truth.ask(k.Charges[g.HeldBy], k, now)
	switch {
	case q.allows(start - 1):
		w.failf("%s: Held is %d, which has room a moment before the start", describe(k), g.HeldBy)
	case g.Paused != (q.closed > soonest(k, now)):
		w.failf("%s: Paused %t, but charge %d is closed until %d", describe(k), g.Paused, g.HeldBy, q.closed)
	}
}

// isOver checks the Over of shadow charges: at least the time that the charge alone
// would have added, at most what all together would have.
func (w *world) isOver(k store.Booking, g store.Grant, start int64) {
	w.Helper()
	counted := store.Booking{Spread: k.Spread}
	for _, c := range k.Charges {
		c.Shadow = false
		counted.Charges = append(counted.Charges, c)
	}

	together := w.truth.earliest(counted, start)
	for i, c := range k.Charges {
		if !c.Shadow {
			continue
		}

		only := store.Booking{Spread: k.Spread, Charges: counted.Charges[i : i+1]}
		alone := w.truth.earliest(only, start)

		over := overOf(g, i)
		if got := start + micros(over); got < alone || got > together {
			w.failf("%s: Over of charge %d is %v, want %v", describe(k), i, over, time.Duration(alone-start)*tick)
		}
	}
}

// isLawful checks that a start breaks no limit and no penalty, and that a
// refusal has a reason, where a store may be later than the definition.
func (w *world) isLawful(k store.Booking, g store.Grant, now int64) {
	w.Helper()
	start := now + micros(g.Wait)
	if fair := k.MaxWait < 0 || g.Wait <= k.MaxWait; g.OK != fair {
		w.failf("%s: OK %t with a wait of %v", describe(k), g.OK, g.Wait)
	}
	if start < soonest(k, now) {
		w.failf("%s: starts too soon, after %v", describe(k), g.Wait)
	}

	for _, c := range k.Charges {
		if !c.Shadow && !w.truth.ask(c, store.Booking{Spread: k.Spread}, start).allows(start) {
			w.failf("%s: %s does not allow a start after %v", describe(k), c.Budget.Policy, g.Wait)
		}
	}
}

// count checks that no interval of the history holds more than the limit.
func (w *world) count() {
	w.Helper()
	if w.mood == changing {
		return // each start was checked against the limit of its time
	}
	for _, c := range w.budgets {
		if c.Shadow || w.above[c.Budget.Key] {
			continue
		}
		if text := w.truth.excess(c); text != "" {
			w.failf("%s", text)
		}
	}
}

// excess counts the whole history of a budget, apart from the rules by which
// starts are judged one at a time. It returns a sentence about the first place
// where the limit is broken, or "".
func (l *ledger) excess(c store.Charge) string {
	if isOpen(c) {
		return ""
	}

	stays := slices.Clone(l.stays[c.Budget.Key])
	slices.SortFunc(stays, func(a, b stay) int { return cmp.Compare(a.at, b.at) })
	if c.Limit.Kind() == store.KindTokenBucket {
		return drained(c, stays)
	}

	for i, first := range stays {
		switch most := together(c, stays, first); {
		case c.Limit.Kind() == store.KindLeakyBucket && i > 0 && first.at < over(c, stays[i-1]):
			return fmt.Sprintf("budget %s: two starts are %d µs apart, too close for %s",
				c.Budget.Policy, first.at-stays[i-1].at, sentence(c))
		case c.Limit.Kind() != store.KindLeakyBucket && most > c.Limit.N():
			return fmt.Sprintf("budget %s: %d starts count together, too many for %s",
				c.Budget.Policy, most, sentence(c))
		}
	}

	return ""
}

// drained lets each start in turn arrive as late as it may, and all that come
// after it on time: the upstream's bucket, full before, must not run dry.
func drained(c store.Charge, stays []stay) string {
	tokens, each := c.Refill()
	for _, first := range stays {
		late := first.until + micros(c.Jitter)
		level := int64(c.Limit.Capacity()) * each
		for _, s := range stays {
			if s.until < first.until {
				continue
			}

			level -= int64(s.cost) * each
			if flown := tokens * max(0, s.at-late); level+flown < 0 {
				return fmt.Sprintf("budget %s: %d tokens are missing %d µs after another start, by %s",
					c.Budget.Policy, -(level+flown)/each, s.at-first.until, sentence(c))
			}
		}
	}

	return ""
}
