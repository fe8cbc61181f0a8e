package storetest

import "github.com/fleetthrottle/throttle"

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
