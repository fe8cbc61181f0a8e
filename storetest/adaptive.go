package storetest

import (
	"fmt"
	"slices"
	"time"

	"github.com/fleetthrottle/throttle"
)

// adaptive returns the charge as that of a budget that learns.
func adaptive(c throttle.Charge) throttle.Charge {
	c.Adaptive = true
	return c
}

// refuse tells of a refusal and compares the ceiling before and after.
func (b *bench) refuse(c throttle.Charge, g throttle.Grant, d time.Duration, from, to float64) {
	b.Helper()
	f, t, err := b.store.Refuse(b.Context(), c, throttle.Refusal{Length: d, Ago: tick, Start: g})
	if err != nil {
		b.fatalf("Refuse(%v, %v) at %v: %v", c.Budget, d, b.now(), err)
	}
	if f != from || t != to {
		b.errorf("refused at %v: ceiling from %v to %v, want %v and %v", b.now(), f, t, from, to)
	}
}

// ceilings fills a budget of n in any second, has the upstream refuse so many, and returns
// its charge.
func (b *bench) lowered(name string, l throttle.Limit, used int, from, to float64) throttle.Charge {
	b.Helper()
	c := adaptive(charge(name, l))
	b.starts(used-1, b.now(), c)
	b.refuse(c, b.start(b.now(), c), 0, from, to)
	return c
}

// adaptiveChecks are about the ceilings of Adaptive charges: see docs/learning.md.
var adaptiveChecks = []check{
	{"P1_CeilingOfASlidingWindow", func(b *bench) {
		c := b.lowered("forty", throttle.PerSecond(40), 24, 40, 21)
		b.refused(sec+tick, c)
		b.at(2 * sec)
		b.starts(21, 2*sec, c)
		b.refused(3*sec+tick, c)
		b.at(80 * sec) // above the level that was refused it rises slowly
		b.starts(24, 80*sec, c)
		b.start(81*sec+tick, c)
	}},

	{"P1_CeilingOfAFixedWindow", func(b *bench) {
		c := b.lowered("forty", throttle.FixedWindow(40, sec), 24, 40, 21)
		b.start(sec, c)
		b.at(sec)
		b.starts(20, sec, c)
		b.start(2*sec, c)
	}},

	{"P1_CeilingOfALeakyBucket", func(b *bench) {
		c := adaptive(charge("ten", throttle.LeakyBucket(10, sec)))
		b.refuse(c, b.start(0, c), 0, 10, 8.75)
		b.start(114285*tick, c)
		b.at(300 * ms)
		b.start(300*ms, c)
	}},

	{"P1_CeilingOfATokenBucket", func(b *bench) {
		c := adaptive(charge("ten", throttle.TokenBucket(8, sec, 8)))
		g := b.start(0, c)
		b.starts(7, 0, c)
		b.refuse(c, g, 0, 8, 7)
		b.refused(285715*tick, c) // less flows in, and the bucket is smaller
	}},

	{"P1_CeilingRises", func(b *bench) {
		c := b.lowered("eighty", throttle.PerSecond(80), 64, 80, 56)
		see := func(at time.Duration, want float64) {
			b.Helper()
			b.at(at)
			b.status(c, throttle.Status{Ceiling: want})
		}
		see(36*sec, 63)  // half way: an eighth of the eighth is missing
		see(72*sec, 64)  // flat
		see(108*sec, 65) // and beyond
		see(144*sec, 72) // faster and faster
		see(162*sec, 79.625)
		see(165*sec, 0) // the limit again
		b.starts(80, 165*sec, c)
	}},

	{"P1_CeilingIsForgotten", func(b *bench) {
		c := b.lowered("thousand", throttle.PerSecond(1000), 1, 1000, 656.25)
		b.at(4*72*sec - tick)
		b.starts(1000, 4*72*sec-tick, c)
		b.at(5 * time.Minute)
		b.status(c, throttle.Status{})
		d := b.lowered("more", throttle.PerSecond(1000), 1, 1000, 656.25)
		d2 := b.lowered("less", throttle.PerSecond(1000), 1, 1000, 656.25)
		b.at(10 * time.Minute)
		b.status(d, throttle.Status{})
		b.starts(1000, 10*time.Minute, d2)
	}},

	{"P1_CeilingOnlyForAdaptive", func(b *bench) {
		c := b.lowered("forty", throttle.PerSecond(40), 24, 40, 21)
		firm := c
		firm.Adaptive = false
		b.starts(16, 0, firm)
		b.status(firm, throttle.Status{Used: 40, Wait: sec + tick})
		b.refuse(firm, b.start(sec+tick, firm), 0, 0, 0)
		b.status(c, throttle.Status{Used: 40, Booked: 1, Waiting: 1, Wait: sec + tick, Ceiling: 21})
	}},

	{"P1_CeilingIsEvidenceOnce", func(b *bench) {
		c := adaptive(charge("forty", throttle.PerSecond(40)))
		a := b.start(0, c)
		b.starts(21, 0, c)
		b.at(10 * ms)
		x := b.start(10*ms, c)
		late := b.start(10*ms, c)
		b.refuse(c, late, sec, 40, 21)
		b.refuse(c, a, sec, 21, 21)
		b.refuse(c, x, 2*sec, 21, 21)
		b.at(2010 * ms)
		b.refuse(c, b.start(2010*ms, c), 0, 21.243, 21.243) // the probe: the ban lasts longer than was said
	}},

	{"P1_CeilingAtLessThanHalf", func(b *bench) {
		c := b.lowered("forty", throttle.PerSecond(40), 2, 40, 26.25)
		b.at(1100 * ms)
		b.refuse(c, b.start(1100*ms, c), 0, 26.419, 17.337)
		one := b.lowered("one", throttle.PerSecond(1), 1, 1, 0.875)
		b.start(2100*ms+tick, one)
	}},

	{"P1_CeilingNoEvidenceAboveTheLimit", func(b *bench) {
		c := adaptive(charge("two", throttle.PerSecond(2)))
		k, g := b.book(throttle.Booking{Charges: []throttle.Charge{c}, MaxWait: -1})
		b.settle(k, g, 3)
		b.refuse(c, g, 0, 2, 2)
	}},

	{"P1_CeilingOfCosts", func(b *bench) {
		c := b.lowered("forty", throttle.PerSecond(40), 24, 40, 21)
		b.at(2 * sec)
		b.start(2*sec, costing(c, 30)) // fits an idle budget
		b.refused(3*sec+tick, c)
		b.at(4 * sec)
		b.start(4*sec, c)
		b.start(5*sec+tick, costing(c, 30))
	}},

	{"P1_CeilingAndReserve", func(b *bench) {
		c := b.lowered("forty", throttle.PerSecond(40), 24, 40, 21)
		b.at(2 * sec)
		low := c
		low.Reserve = 8
		b.starts(13, 2*sec, low)
		b.refused(3*sec+tick, low)
		b.starts(8, 2*sec, c)
		b.at(4 * sec)
		low.Reserve = 30
		b.start(4*sec, low)
		b.refused(5*sec+tick, low)
	}},

	{"P1_CeilingOfAnotherLimit", func(b *bench) {
		c := b.lowered("forty", throttle.PerSecond(40), 24, 40, 21)
		b.at(2 * sec)
		c.Limit = throttle.PerSecond(30) // the ceiling is a number of starts, no share
		b.starts(21, 2*sec, c)
		b.refused(3*sec+tick, c)
		c.Limit = throttle.PerMinute(400) // that is another one
		if st, err := b.store.Status(b.Context(), c); err != nil || st.Ceiling != 0 {
			b.errorf("a limit of another window: %+v, %v", st, err)
		}
	}},

	{"P11_ResumeForgetsTheCeiling", func(b *bench) {
		c := b.lowered("forty", throttle.PerSecond(40), 24, 40, 21)
		b.resume(c)
		b.starts(16, 0, c)
		b.status(c, throttle.Status{Used: 40, Wait: sec + tick})
	}},

	{"P11_RefuseCloses", func(b *bench) {
		c := adaptive(charge("forty", throttle.PerSecond(40)))
		b.refuse(c, b.start(0, c), 3*sec, 40, 26.25)
		b.isHeld(b.start(3*sec, c), 0, true)
		b.starts(3, 3250*ms, c) // an eighth of what the ceiling leaves
		b.start(4*sec+tick, c)
	}},

	{"P11_SlowStartOfStepsBelowACeiling", func(b *bench) {
		c := b.lowered("sixty", throttle.PerMinute(60), 30, 60, 26.25)
		b.at(120 * sec) // the ceiling is 27 and a bit, and a sixth of that 5
		b.pause(c, 20*sec)
		b.start(140*sec, c)
		b.starts(3, 150*sec, c)
		b.starts(23, 160*sec, c)
		b.start(200*sec+tick, c)
	}},

	{"P1_CeilingAndASlowProbe", func(b *bench) {
		c := adaptive(charge("forty", throttle.PerSecond(40)))
		b.denied(c, 10*sec, sec)
		b.at(11 * sec)
		b.refuse(c, b.start(11*sec, c), 0, 40, 40) // it had two seconds
		b.at(12*sec + ms)
		b.refuse(c, b.start(12*sec+ms, c), 0, 40, 26.25)
	}},
}

// adaptiveRandomChecks are random runs in which upstreams refuse starts in spite of room.
func adaptiveRandomChecks() []check {
	var all []check
	for seed := range uint64(randomSeeds) {
		all = append(all, check{fmt.Sprintf("P1_RandomAdaptive%d", seed), func(b *bench) {
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
		}})
	}
	return all
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

// adapt makes a budget one that learns. How what is left of a pace or a bucket is counted,
// while the ceiling rises, is the store's own affair.
func (w *world) adapt(c *throttle.Charge) {
	for k := c.Limit.Kind(); k != throttle.KindSlidingWindow && k != throttle.KindFixedWindow || c.Limit.Per() == 0; k = c.Limit.Kind() {
		c.Limit, c.Jitter = w.limit()
	}
	if c.Limit.Kind() != throttle.KindSlidingWindow {
		c.Pace = 0
	}
	c.Adaptive = !w.chance(10)
}

// refuse tells the store and the truth that the upstream refused one of the latest starts,
// and compares what they learn. A store need not know how full the window of the start
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
	from, to, err := w.store.Refuse(w.Context(), c, throttle.Refusal{Length: d, Ago: ago, Start: g.grant})
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
