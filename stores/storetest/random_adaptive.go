package storetest

import (
	"slices"
	"time"

	"github.com/fleetthrottle/throttle/store"
)

// adaptiveRandomChecks are random runs in which upstreams refuse starts in spite of room.
func adaptiveRandomChecks() []check {
	return seeded("P1_RandomAdaptive", randomSeeds, func(b *bench, seed uint64) {
		b.Helper()
		w := newAdaptiveWorld(b, seed)
		for w.op = range randomOps {
			if w.chance(6) {
				w.refuse()
			} else {
				w.step()
			}

			if w.op%50 == 49 {
				time.Sleep(w.duration(3 * time.Minute)) // ceilings take their time
			}
		}

		w.count()
	})
}

// newAdaptiveWorld returns a world whose budgets learn. Its limits are small: a store
// may join the starts of a large one, and then find a window fuller than it was.
func newAdaptiveWorld(b *bench, seed uint64) *world {
	w := newWorld(b, seed, exact, false)
	w.settles = false
	for i := range w.budgets {
		w.adapt(&w.budgets[i])
	}
	return w
}

// adapt makes a budget learn. How the rest of a pace or a bucket is counted,
// while the ceiling rises, is the store's own affair.
func (w *world) adapt(c *store.Charge) {
	for k := c.Limit.Kind(); k != store.KindSlidingWindow && k != store.KindFixedWindow || c.Limit.Per() == 0; k = c.Limit.Kind() {
		c.Limit, c.Jitter = w.limit()
	}
	if c.Limit.Kind() != store.KindSlidingWindow {
		c.Pace = 0
	}
	c.Adaptive = !w.chance(10)
}

// refuse tells the store and the truth that the upstream refused one of the latest starts,
// and compares the ceilings. A store need not know how full the window of the start
// was, if a part of it is over.
func (w *world) refuse() {
	w.Helper()
	if len(w.grants) == 0 {
		return
	}

	g, now := w.grants[len(w.grants)-1-w.rng.IntN(min(5, len(w.grants)))], w.clock()
	c := g.booking.Charges[w.rng.IntN(len(g.booking.Charges))]
	forgotten := func(s stay) bool { return s.at <= g.at && over(c, s) > g.at && over(c, s) <= now }
	if g.at > now || slices.ContainsFunc(w.truth.stays[c.Budget.Key], forgotten) || over(c, stay{at: g.at, until: g.at}) <= now {
		return
	}

	d := w.duration([]time.Duration{0, 100 * ms, 2 * sec}[w.rng.IntN(3)])
	ago := w.duration(time.Duration(now-g.at) * tick)
	from, to, err := w.store.Refuse(w.Context(), c, store.Refusal{Length: d, Ago: ago, Start: g.grant})
	if err != nil {
		w.failf("Refuse: %v", err)
	}

	wantFrom, wantTo := w.truth.learn(c, g.at, now)
	w.truth.shut(c, now, d, max(tick, ago))

	if from != wantFrom || to != wantTo {
		w.failf("refusal of the start at %d in %s (%s) at %d: ceiling from %v to %v, want %v and %v",
			g.at, c.Budget.Policy, sentence(c), now, from, to, wantFrom, wantTo)
	}
}
