package storetest

import "github.com/fleetthrottle/throttle"

// alignedChecks are about windows that begin at fixed moments. A bench begins
// at a full second of the Unix epoch.
var alignedChecks = []check{
	{"P1_FixedWindowResets", func(b *bench) {
		two := charge("two", throttle.FixedWindow(2, sec))
		b.at(900 * ms)
		b.starts(2, 900*ms, two)
		b.starts(2, sec, two) // at once after the edge: twice n, as documented
		b.starts(2, 2*sec, two)
		b.at(2*sec - tick)
		b.refused(3*sec, two)
		b.at(2 * sec)
		b.refused(3*sec, two)
		b.at(3 * sec)
		b.starts(2, 3*sec, two)
	}},

	{"P1_FixedWindowLastMoment", func(b *bench) {
		one := charge("one", throttle.FixedWindow(1, sec))
		b.at(sec - tick)
		b.start(sec-tick, one)
		b.start(sec, one)
	}},

	{"P1_FixedWindowCosts", func(b *bench) {
		ten := charge("ten", throttle.FixedWindow(10, sec))
		b.at(500 * ms)
		b.start(500*ms, costing(ten, 7))
		b.start(sec, costing(ten, 4))
		b.start(500*ms, costing(ten, 3))
		b.start(2*sec, costing(ten, 7))
		b.start(sec, costing(ten, 6))
		b.start(2*sec, costing(ten, 3))
		b.start(3*sec, ten)
	}},

	{"P1_FixedWindowOfOddLength", func(b *bench) {
		// 946,684,800 s after the epoch is 2 s before the end of a window of 7 s.
		one := charge("one", throttle.FixedWindow(1, 7*sec))
		b.start(0, one)
		b.refused(2*sec, one)
		b.start(2*sec, one)
		b.start(9*sec, one)
	}},

	{"P1_FixedWindowLaterStart", func(b *bench) {
		two := charge("two", throttle.FixedWindow(2, sec))
		b.later(1300*ms, two)
		b.starts(2, 0, two)
		b.start(sec, two)
		b.start(2*sec, two)
	}},

	{"P2_FixedWindowJitter", func(b *bench) {
		five := late(charge("five", throttle.FixedWindow(5, sec)), 100*ms)
		b.at(900*ms - tick)
		b.start(900*ms-tick, five)
		b.at(900 * ms)
		b.refused(sec, five) // it could arrive in the next window
		b.start(sec, five)
		b.at(sec)
		b.starts(4, sec, five)
		b.refused(2*sec, five)
	}},
}
