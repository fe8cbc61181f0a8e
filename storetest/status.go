package storetest

import (
	"time"

	"github.com/fleetthrottle/throttle"
)

// statusChecks are about the description of a budget.
var statusChecks = []check{
	{"Store_StatusOfNothing", func(b *bench) {
		b.status(charge("a", throttle.PerSecond(1)), throttle.Status{})
		b.status(charge("b", throttle.FixedWindow(1, sec)), throttle.Status{})
		b.status(charge("c", throttle.LeakyBucket(1, sec)), throttle.Status{})
	}},

	{"Store_StatusSliding", func(b *bench) {
		ten := charge("ten", throttle.PerSecond(10))
		b.start(0, costing(ten, 7))
		b.status(ten, throttle.Status{Used: 7})
		b.at(500 * ms)
		b.start(500*ms, costing(ten, 3))
		b.start(sec+tick, costing(ten, 4))
		b.status(ten, throttle.Status{Used: 10, Waiting: 4, Wait: 500*ms + tick})
		b.at(sec)
		b.status(ten, throttle.Status{Used: 10, Waiting: 4, Wait: tick})
		b.at(sec + tick)
		b.status(ten, throttle.Status{Used: 7})
		b.at(10 * sec)
		b.status(ten, throttle.Status{})
	}},

	{"Store_StatusAligned", func(b *bench) {
		two := charge("two", throttle.FixedWindow(2, sec))
		b.at(600 * ms)
		b.starts(2, 600*ms, two)
		b.start(sec, two)
		b.status(two, throttle.Status{Used: 2, Waiting: 1, Wait: 400 * ms})
		b.at(sec)
		b.status(two, throttle.Status{Used: 1})
		b.at(2 * sec)
		b.status(two, throttle.Status{})
	}},

	{"Store_StatusOfABucket", func(b *bench) {
		three := charge("three", throttle.TokenBucket(1, sec, 3))
		b.status(three, throttle.Status{})
		b.starts(3, 0, three)
		b.start(sec, three)
		b.status(three, throttle.Status{Used: 3, Waiting: 1, Wait: 2 * sec})
		b.at(1500 * ms)
		b.status(three, throttle.Status{Used: 4, Wait: 500 * ms})
		b.at(3 * sec)
		b.status(three, throttle.Status{Used: 1}) // it takes three seconds to fill the bucket
		b.at(4 * sec)
		b.status(three, throttle.Status{})
	}},

	{"P11_StatusPaused", func(b *bench) {
		one := charge("one", throttle.PerSecond(1))
		b.start(0, one)
		b.pause(one, 10*sec)
		b.status(one, throttle.Status{Used: 1, Wait: 10 * sec, Paused: 10 * sec})
		b.at(4 * sec)
		b.status(one, throttle.Status{Wait: 6 * sec, Paused: 6 * sec})
		b.at(10 * sec)
		b.status(one, throttle.Status{})
	}},

	{"Store_StatusChangesNothing", func(b *bench) {
		one := charge("one", throttle.PerSecond(1))
		for range 5 {
			b.status(one, throttle.Status{})
		}
		b.start(0, one)
		for range 5 {
			b.status(one, throttle.Status{Used: 1, Wait: sec + tick})
		}
		b.start(sec+tick, one)
	}},
}

// shadowChecks are about charges that count but never hold.
var shadowChecks = []check{
	{"Store_ShadowNeverHolds", func(b *bench) {
		dark := shadow(charge("dark", throttle.PerSecond(1)))
		b.over(0, 0, dark)
		b.over(0, sec+tick, dark)
		b.over(0, sec+tick, dark)
		b.at(400 * ms)
		b.over(400*ms, 600*ms+tick, dark)
		b.at(1400*ms + tick)
		b.over(1400*ms+tick, 0, dark)
	}},

	{"Store_ShadowCountsAtTheStart", func(b *bench) {
		real, dark := charge("real", throttle.PerSecond(1)), charge("dark", throttle.SlidingWindow(2, 5*sec))
		b.over(0, 0, real, shadow(dark))
		b.over(sec+tick, 0, real, shadow(dark))
		b.over(2*sec+2*tick, 3*sec-tick, real, shadow(dark))
		b.status(dark, throttle.Status{Used: 1, Waiting: 2, Wait: 6*sec + 2*tick})
		b.start(6*sec+2*tick, dark) // for a charge that is not shadow the others count
	}},

	{"Store_ShadowDoesNotRefuse", func(b *bench) {
		real, dark := charge("real", throttle.PerSecond(1)), charge("dark", throttle.PerSecond(1))
		b.pause(dark, 10*sec)
		_, g := b.book(throttle.Booking{Charges: []throttle.Charge{shadow(dark), real}})
		b.isStart(g, 0)
		b.isHeld(g, -1, false)
		g = b.refused(sec+tick, shadow(dark), real)
		b.isHeld(g, 1, false)
		b.status(dark, throttle.Status{Used: 1, Wait: 10 * sec, Paused: 10 * sec})
	}},

	{"P7_ShadowLeavesTheOthers", func(b *bench) {
		dark := shadow(charge("dark", throttle.LeakyBucket(10, sec)))
		b.over(0, 0, dark)
		k, g := b.book(throttle.Booking{Charges: []throttle.Charge{costing(dark, 3)}})
		b.store.Cancel(&k, g)
		b.overAtLeast(100*ms, dark)
	}},

	{"P7_ShadowIsGivenBack", func(b *bench) {
		dark := charge("dark", throttle.PerSecond(1))
		k, g := b.book(throttle.Booking{Charges: []throttle.Charge{shadow(dark)}})
		b.store.Cancel(&k, g)
		b.status(dark, throttle.Status{})
		b.over(0, 0, shadow(dark))
	}},
}

// overOf is how much later the start would have been if the i-th charge counted.
func overOf(g throttle.Grant, i int) time.Duration {
	if g.Over == nil {
		return 0
	}
	return g.Over[i]
}

// overAtLeast books at once and checks that the Over of the charge is no less.
func (b *bench) overAtLeast(least time.Duration, c throttle.Charge) {
	b.Helper()
	_, g := b.book(throttle.Booking{Charges: []throttle.Charge{c}})
	if got := overOf(g, 0); got < least {
		b.errorf("Over is %v, want at least %v", got, least)
	}
}

// over books at once and compares the start and the Over of the last charge.
func (b *bench) over(start, over time.Duration, charges ...throttle.Charge) {
	b.Helper()
	_, g := b.book(throttle.Booking{Charges: charges, MaxWait: -1})
	b.isStart(g, start)
	if got := overOf(g, len(charges)-1); got != over {
		b.errorf("booked at %v: Over is %v, want %v", b.now(), got, over)
	}
}
