package storetest

import (
	"time"

	"github.com/fleetthrottle/throttle"
)

// slidingChecks are about windows that begin anywhere. Two starts may be in
// use at once if they are more than per apart, so that no closed interval of
// length per holds both.
var slidingChecks = []check{
	{"P1_SlidingIntervalIsClosed", func(b *bench) {
		one := charge("one", throttle.PerSecond(1))
		b.start(0, one)
		b.start(sec+tick, one)
		b.start(2*sec+2*tick, one)
		b.at(3*sec + 3*tick)
		b.start(3*sec+3*tick, one)
	}},

	{"P1_SlidingBurst", func(b *bench) {
		three := charge("three", throttle.PerSecond(3))
		b.starts(3, 0, three)
		b.starts(3, sec+tick, three)
		b.at(sec)
		b.starts(3, 2*sec+2*tick, three)
	}},

	{"P1_SlidingFollowsEachStart", func(b *bench) {
		two := charge("two", throttle.PerSecond(2))
		b.start(0, two)
		b.at(600 * ms)
		b.start(600*ms, two)
		b.at(700 * ms)
		b.start(sec+tick, two)
		b.start(1600*ms+tick, two)
		b.start(2*sec+2*tick, two)
	}},

	{"P1_SlidingAtTheEdge", func(b *bench) {
		one := charge("one", throttle.PerSecond(1))
		b.start(0, one)
		b.at(sec)
		b.refused(sec+tick, one)
		b.at(sec + tick)
		b.start(sec+tick, one)
	}},

	{"P1_SlidingCosts", func(b *bench) {
		ten := charge("ten", throttle.PerSecond(10))
		b.start(0, costing(ten, 7))
		b.start(sec+tick, costing(ten, 4))
		b.start(0, costing(ten, 3)) // still fits before the costly one
		b.start(sec+tick, costing(ten, 6))
		b.start(2*sec+2*tick, ten)
	}},

	{"P1_SlidingAllAtOnce", func(b *bench) {
		ten := charge("ten", throttle.PerSecond(10))
		b.at(300 * ms)
		b.start(300*ms, ten)
		b.start(1300*ms+tick, costing(ten, 10))
		b.start(300*ms, costing(ten, 9))
		b.start(2300*ms+2*tick, ten)
	}},

	{"P1_SlidingLongWindow", func(b *bench) {
		const day = 24 * time.Hour
		five := charge("five", throttle.SlidingWindow(5, day))
		b.starts(3, 0, five)
		b.at(23 * time.Hour)
		b.starts(2, 23*time.Hour, five)
		b.starts(3, day+tick, five)
		b.start(47*time.Hour+tick, five)
	}},

	{"P1_SlidingShortWindow", func(b *bench) {
		two := charge("two", throttle.SlidingWindow(2, tick))
		b.starts(2, 0, two)
		b.starts(2, 2*tick, two)
		b.starts(2, 4*tick, two)
	}},

	{"P1_SlidingPartsOfAMicrosecond", func(b *bench) {
		third := charge("third", throttle.SlidingWindow(1, sec/3))
		b.start(0, third)
		_, g := b.book(throttle.Booking{Charges: []throttle.Charge{third}, MaxWait: -1})
		if g.Wait <= sec/3 || g.Wait > sec/3+2*tick {
			b.errorf("second start after %v, want just more than %v", g.Wait, sec/3)
		}
	}},

	{"P1_SlidingGapBeforeALaterStart", func(b *bench) {
		two := charge("two", throttle.PerSecond(2))
		b.later(1500*ms, costing(two, 2))
		b.starts(2, 0, two)
		b.start(2500*ms+tick, two)
	}},

	{"P1_SlidingGapTooShort", func(b *bench) {
		two := charge("two", throttle.PerSecond(2))
		b.later(500*ms, two)
		b.start(0, two)
		b.start(sec+tick, two) // a second start now would make three with the one at 0.5 s
		b.start(1500*ms+tick, two)
	}},

	{"P1_SlidingGapBetweenLaterStarts", func(b *bench) {
		one := charge("one", throttle.PerSecond(1))
		b.later(5*sec, one)
		b.later(3*sec-2*tick, one)
		b.start(0, one)
		b.start(sec+tick, one)
		b.start(4*sec-tick, one) // exactly one place is left before 5 s
		b.start(6*sec+tick, one)
	}},

	{"P2_SlidingJitter", func(b *bench) {
		two := late(charge("two", throttle.PerSecond(2)), 35*ms)
		b.starts(2, 0, two)
		b.starts(2, 1035*ms+tick, two)
		b.at(1035*ms + tick)
		b.starts(2, 2070*ms+2*tick, two)
	}},

	{"P1_SlidingBudgetsAreApart", func(b *bench) {
		l := throttle.PerSecond(1)
		b.start(0, charge("a", l))
		b.start(0, charge("b", l))
		other := charge("a", l)
		other.Budget.Key[15] = 1 // differs in the last place of the key only
		b.start(0, other)
		b.start(sec+tick, charge("b", l))
	}},
}

// pacedChecks are about starts that keep their distance.
var pacedChecks = []check{
	{"P1_PacedSpacing", func(b *bench) {
		ten := charge("ten", throttle.LeakyBucket(10, sec))
		b.start(0, ten)
		b.start(100*ms, ten)
		b.start(200*ms, ten)
		b.at(300*ms - tick)
		b.refused(300*ms, ten)
		b.at(300 * ms)
		b.start(300*ms, ten)
	}},

	{"P1_PacedRoundsUp", func(b *bench) {
		three := charge("three", throttle.LeakyBucket(3, sec))
		b.start(0, three)
		b.start(333334*tick, three)
		b.start(666668*tick, three)
	}},

	{"P1_PacedSavesNothingUp", func(b *bench) {
		ten := charge("ten", throttle.LeakyBucket(10, sec))
		b.start(0, ten)
		b.at(10 * sec)
		b.start(10*sec, ten)
		b.start(10100*ms, ten)
	}},

	{"P1_PacedCosts", func(b *bench) {
		ten := charge("ten", throttle.LeakyBucket(10, sec))
		b.start(0, costing(ten, 3))
		b.start(300*ms, ten)
		b.start(400*ms, costing(ten, 10))
		b.start(1400*ms, ten)
	}},

	{"P1_PacedGaps", func(b *bench) {
		ten := charge("ten", throttle.LeakyBucket(10, sec))
		b.later(250*ms, ten)
		b.start(350*ms, costing(ten, 3)) // the gap before has room for 2
		b.start(0, costing(ten, 2))
		b.start(650*ms, ten) // 50 ms are left before the one at 250 ms
		b.at(150 * ms)
		b.refused(750*ms, ten)
	}},

	{"P1_PacedGapOfExactlyOne", func(b *bench) {
		ten := charge("ten", throttle.LeakyBucket(10, sec))
		b.later(200*ms, ten)
		b.start(0, ten)
		b.start(100*ms, ten)
		b.start(300*ms, ten)
	}},

	{"P2_PacedJitter", func(b *bench) {
		ten := late(charge("ten", throttle.LeakyBucket(10, sec)), 50*ms)
		b.start(0, ten)
		b.start(105*ms, costing(ten, 2))
		b.start(315*ms, ten)
	}},
}
