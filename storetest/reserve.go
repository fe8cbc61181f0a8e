package storetest

import "github.com/fleetthrottle/throttle"

// reserveChecks are about starts that leave a part of the limit free.
var reserveChecks = []check{
	{"P5_ReserveOfASlidingWindow", func(b *bench) {
		ten := charge("ten", throttle.PerSecond(10))
		low := leaving(ten, 3)
		b.starts(7, 0, low)
		b.isHeld(b.refused(sec+tick, low), 0, false)
		b.starts(2, 0, ten)
		b.starts(2, sec+tick, low)
		b.start(0, ten) // a place is still free, whatever waits
		b.start(sec+tick, ten)
		b.start(sec+tick, costing(low, 4))
		b.start(2*sec+2*tick, low)
	}},

	{"P5_ReserveBeforeALaterStart", func(b *bench) {
		ten := charge("ten", throttle.PerSecond(10))
		b.later(500*ms, costing(ten, 6))
		b.start(0, leaving(ten, 3))
		b.start(sec+tick, leaving(ten, 3)) // another at 0 would leave but 2 free at 0.5 s
		b.start(1500*ms+tick, leaving(ten, 3))
		b.starts(3, 0, ten)
	}},

	{"P5_ReserveOfAFixedWindow", func(b *bench) {
		ten := charge("ten", throttle.FixedWindow(10, sec))
		low := leaving(ten, 3)
		b.start(0, costing(low, 7))
		b.start(sec, low)
		b.start(0, costing(ten, 3))
		b.start(sec, costing(low, 6))
		b.start(2*sec, low)
		b.start(sec, costing(ten, 3))
	}},

	{"P5_ReserveOfABucket", func(b *bench) {
		ten := charge("ten", throttle.TokenBucket(1, sec, 10))
		low := leaving(ten, 4)
		b.starts(6, 0, low)
		b.start(sec, low)
		b.starts(4, 0, ten)
		b.start(2*sec, ten)
		b.start(7*sec, low)
		b.at(6 * sec)
		b.start(6*sec, costing(ten, 4))
	}},

	{"P5_ReserveOfABucketBeforeALaterStart", func(b *bench) {
		ten := charge("ten", throttle.TokenBucket(1, sec, 10))
		b.later(2*sec, costing(ten, 8))
		b.start(5*sec, leaving(ten, 4)) // until then fewer than 5 are back of the 8
		b.start(0, costing(ten, 3))
	}},

	{"P5_ReserveOfAllButOne", func(b *bench) {
		ten := charge("ten", throttle.PerSecond(10))
		b.start(0, leaving(ten, 9))
		b.start(sec+tick, leaving(ten, 9))
		b.starts(9, 0, ten)
	}},

	{"P5_ReserveIsNotRemembered", func(b *bench) {
		ten, bucket := charge("ten", throttle.PerSecond(10)), charge("bucket", throttle.TokenBucket(1, sec, 10))
		b.start(0, leaving(ten, 5), leaving(bucket, 5))
		b.start(0, costing(ten, 9), costing(bucket, 9))
		b.status(ten, throttle.Status{Used: 10, Wait: sec + tick})
	}},

	{"P5_ReserveOfAPlaceIsKept", func(b *bench) {
		two := charge("two", throttle.PerSecond(2))
		low := leaving(two, 1)
		b.starts(2, 0, two)
		b.start(sec+tick, low) // what matters more and comes later does not drive it away
		b.start(sec+tick, two)
		b.starts(2, 2*sec+2*tick, two)
		b.start(3*sec+3*tick, low)
	}},

	{"P6_ReserveInOneOfTwoBudgets", func(b *bench) {
		a, c := charge("a", throttle.PerSecond(4)), charge("c", throttle.PerSecond(4))
		b.starts(2, 0, leaving(a, 2), c)
		b.start(sec+tick, leaving(a, 2), c)
		b.starts(2, 0, a, c)
	}},

	{"Store_ReserveOfAShadow", func(b *bench) {
		dark := shadow(charge("dark", throttle.PerSecond(2)))
		b.over(0, 0, leaving(dark, 1))
		b.over(0, sec+tick, leaving(dark, 1))
	}},
}
