package storetest

import (
	"slices"
	"time"

	"github.com/fleetthrottle/throttle"
)

// settleChecks are about costs that are known only after the start.
var settleChecks = []check{
	{"Store_SettleMore", func(b *bench) {
		ten := charge("ten", throttle.PerSecond(10))
		k, g := b.granted(0, costing(ten, 2))
		b.at(300 * ms)
		b.settle(k, g, 7)
		b.status(ten, throttle.Status{Used: 7})
		b.start(300*ms, costing(ten, 3))
		b.start(sec+tick, costing(ten, 7)) // the difference counts from the start, not from when it was told
	}},

	{"Store_SettleAboveTheLimit", func(b *bench) {
		ten := charge("ten", throttle.PerSecond(10))
		k, g := b.granted(0, costing(ten, 2))
		b.start(0, costing(ten, 5))
		b.settle(k, g, 25)
		b.status(ten, throttle.Status{Used: 30, Wait: sec + tick})
		b.start(sec+tick, costing(ten, 10))
		b.start(2*sec+2*tick, ten)
	}},

	{"P7_SettleLess", func(b *bench) {
		ten := charge("ten", throttle.PerSecond(10))
		k, g := b.granted(0, costing(ten, 9))
		b.start(sec+tick, costing(ten, 2))
		b.at(300 * ms)
		b.settle(k, g, 4)
		b.start(300*ms, costing(ten, 4)) // ten with those that start at 1 s
		b.start(sec+tick, costing(ten, 4))
		b.start(1300*ms+tick, ten)
	}},

	{"P7_SettleNothing", func(b *bench) {
		ten := charge("ten", throttle.PerSecond(10))
		k, g := b.granted(0, costing(ten, 9))
		b.at(300 * ms)
		b.settle(k, g, 0)
		b.status(ten, throttle.Status{})
		b.start(300*ms, costing(ten, 10))
	}},

	{"Store_SettleTheSame", func(b *bench) {
		ten := charge("ten", throttle.PerSecond(10))
		k, g := b.granted(0, costing(ten, 9))
		b.settle(k, g, 9)
		b.start(0, ten)
		b.start(sec+tick, ten)
	}},

	{"Store_SettleThenCancel", func(b *bench) {
		ten := charge("ten", throttle.PerSecond(10))
		k, g := b.granted(0, costing(ten, 3))
		b.start(0, ten)
		b.settle(k, g, 6)
		k.Charges[0].Cost = 6
		b.store.Cancel(&k, g)
		b.status(ten, throttle.Status{Used: 1})
		b.start(0, costing(ten, 9))
	}},

	{"Store_SettleAStartToCome", func(b *bench) {
		two := charge("two", throttle.PerSecond(2))
		b.starts(2, 0, two)
		k, g := b.granted(sec+tick, two)
		b.settle(k, g, 2)
		b.status(two, throttle.Status{Used: 2, Booked: 2, Waiting: 2, Wait: 2*sec + 2*tick})
	}},

	{"Store_SettleInAWindow", func(b *bench) {
		ten := charge("ten", throttle.FixedWindow(10, sec))
		b.at(900 * ms)
		k, g := b.granted(900*ms, costing(ten, 2))
		b.settle(k, g, 9)
		b.start(900*ms, ten)
		b.start(sec, ten)
	}},

	{"Store_SettleAtAPace", func(b *bench) {
		ten := charge("ten", throttle.LeakyBucket(10, sec))
		k, g := b.granted(0, costing(ten, 2))
		b.start(200*ms, ten)
		b.settle(k, g, 1)
		b.start(100*ms, ten)
		b.at(250 * ms)
		k, g = b.granted(300*ms, ten)
		b.settle(k, g, 4)
		b.start(700*ms, ten)
	}},

	{"Store_SettleInABucket", func(b *bench) {
		ten := charge("ten", throttle.TokenBucket(1, sec, 10))
		k, g := b.granted(0, costing(ten, 2))
		b.at(sec)
		b.settle(k, g, 8)
		b.start(sec, costing(ten, 3))
		k, g = b.granted(2*sec, ten)
		b.at(4 * sec)
		b.settle(k, g, 0)
		b.start(4*sec, costing(ten, 3))
		b.start(5*sec, ten)
	}},

	{"Store_SettleSeveralBudgets", func(b *bench) {
		a, c, d := charge("a", throttle.PerSecond(10)), charge("c", throttle.TokenBucket(1, sec, 10)), charge("d", throttle.PerSecond(10))
		k, g := b.granted(0, costing(a, 4), costing(c, 4), d)
		b.settle(k, g, 10, 0, 1)
		b.status(a, throttle.Status{Used: 10, Wait: sec + tick})
		b.status(c, throttle.Status{})
		b.status(d, throttle.Status{Used: 1})
	}},

	{"Store_SettleOfOne", func(b *bench) {
		ten := charge("ten", throttle.PerSecond(10))
		k, g := b.granted(0, costing(ten, 2))
		b.start(0, costing(ten, 2))
		b.start(0, costing(ten, 2))
		b.settle(k, g, 0)
		b.status(ten, throttle.Status{Used: 4}) // those of the same moment stay
	}},

	{"Store_SettleOfAShadow", func(b *bench) {
		dark := charge("dark", throttle.PerSecond(10))
		k, g := b.granted(0, shadow(costing(dark, 2)))
		b.settle(k, g, 10)
		b.start(sec+tick, dark)
	}},

	{"Store_SettleTheMost", func(b *bench) {
		ten, window := charge("ten", throttle.PerSecond(10)), charge("window", throttle.FixedWindow(10, sec))
		bucket := charge("bucket", throttle.TokenBucket(1, sec, 10))
		k, g := b.granted(0, ten, window, bucket)
		b.settle(k, g, maxCost, maxCost, maxCost)
		b.start(sec, window)
		b.start(sec+tick, ten)
		b.start(sec, bucket) // no more than the bucket is spent, whatever is spent at one moment
	}},

	{"Store_SettleAfterTheWindow", func(b *bench) {
		ten := charge("ten", throttle.PerSecond(10))
		k, g := b.granted(0, costing(ten, 2))
		b.at(sec + tick)
		b.settle(k, g, 10)
		b.status(ten, throttle.Status{})
		b.start(sec+tick, costing(ten, 10))
		b.settle(k, g, 0)
		b.status(ten, throttle.Status{Used: 10, Wait: sec + tick})
	}},

	{"Store_SettleAfterThePace", func(b *bench) {
		ten := charge("ten", throttle.LeakyBucket(10, sec))
		k, g := b.granted(0, ten)
		b.at(150 * ms)
		b.settle(k, g, 10)
		b.start(150*ms, ten)
	}},

	{"Store_SettleAfterTheBucket", func(b *bench) {
		two := charge("two", throttle.TokenBucket(1, sec, 2))
		k, g := b.granted(0, costing(two, 2))
		for i := range 5 {
			b.at(time.Duration(i+1) * sec)
			b.start(b.now(), two)
		}
		b.settle(k, g, 0)
		b.refused(6*sec, two) // what it had spent then is long forgotten, and still missing
		b.settle(k, g, 2)
		b.refused(6*sec, two)
	}},
}

// granted books however long it takes, compares the start and returns both.
func (b *bench) granted(want time.Duration, charges ...throttle.Charge) (throttle.Booking, throttle.Grant) {
	b.Helper()
	k, g := b.book(throttle.Booking{Charges: charges, MaxWait: -1})
	b.isStart(g, want)
	return k, g
}

// settle changes what a start cost.
func (b *bench) settle(k throttle.Booking, g throttle.Grant, costs ...int) {
	b.Helper()
	if err := b.store.Settle(b.Context(), &k, g, costs); err != nil {
		b.fatalf("Settle of %s at %v: %v", describe(k), b.now(), err)
	}
}

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
		if !isOpen(*c) && !slices.Contains(w.truth.stays[c.Budget.Key], stayOf(*c, old.booking.Spread, old.at)) {
			return // it was over before its cost was known: nobody gives back what was not booked
		}
	}
	w.grants = append(w.grants, old)
}

// trueCost is what a start turns out to have cost: less, the same, or more, even
// above the limit of a window. A pace and a bucket are not overdrawn: there a
// store may be more careful, or forget what is more than a full bucket once
// nothing has happened for as long as it takes to fill it.
func (w *world) trueCost(c throttle.Charge, g granted) int {
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
	if k := c.Limit.Kind(); k == throttle.KindLeakyBucket || k == throttle.KindTokenBucket {
		return w.affordable(c, g, min(cost, c.Limit.Capacity()))
	}
	w.above[c.Budget.Key] = true
	return cost
}

// affordable is the cost, if the limit allows that, or what was booked.
func (w *world) affordable(c throttle.Charge, g granted, cost int) int {
	s := stayOf(c, g.booking.Spread, g.at)
	others := slices.Clone(w.truth.stays[c.Budget.Key])
	if i := slices.Index(others, s); i >= 0 {
		others = slices.Delete(others, i, i+1)
	}
	s.cost, c.Reserve = cost, 0
	if !fits(c, others, s) {
		return c.Cost
	}
	return cost
}
