package storetest

import "github.com/fleetthrottle/throttle"

// togetherChecks are about bookings with several charges.
var togetherChecks = []check{
	{"P6_OneStartForAll", func(b *bench) {
		slow, fast := charge("slow", throttle.SlidingWindow(1, 3*sec)), charge("fast", throttle.PerSecond(1))
		b.start(0, slow, fast)
		b.start(3*sec+tick, fast, slow)
		// The fast budget is booked at that same start, not earlier.
		b.start(sec+tick, fast)
		b.start(4*sec+2*tick, fast)
	}},

	{"P6_EachMovesTheOther", func(b *bench) {
		a, c := charge("a", throttle.PerSecond(1)), charge("c", throttle.PerSecond(1))
		b.start(0, a)
		b.later(1100*ms, c)
		b.later(2200*ms, a)
		b.later(3300*ms, c)
		b.start(4300*ms+tick, a, c)
		b.start(sec+tick, a)
	}},

	{"P6_AllKindsTogether", func(b *bench) {
		all := []throttle.Charge{
			charge("sliding", throttle.PerSecond(2)),
			charge("window", throttle.FixedWindow(3, 5*sec)),
			charge("paced", throttle.LeakyBucket(5, sec)),
		}
		b.start(0, all...)
		b.start(200*ms, all...)
		b.start(sec+tick, all...)
		b.start(5*sec, all...)
		b.start(5200*ms, all...)
		b.start(6*sec+tick, all...)
		b.start(1200*ms+tick, all[0])
		b.start(400*ms, all[2])
	}},

	{"P6_CostsDiffer", func(b *bench) {
		bytes, calls := charge("bytes", throttle.PerSecond(100)), charge("calls", throttle.PerSecond(3))
		b.start(0, costing(bytes, 80), calls)
		b.start(sec+tick, costing(bytes, 30), calls)
		b.start(0, costing(bytes, 20), calls)
		b.start(0, calls)
		b.start(sec+tick, calls)
	}},

	{"P6_RefusalSpendsNothing", func(b *bench) {
		full, free := charge("full", throttle.PerSecond(1)), charge("free", throttle.PerSecond(5))
		window, paced := charge("window", throttle.FixedWindow(5, sec)), charge("paced", throttle.LeakyBucket(5, sec))
		b.start(0, full)
		for range 20 {
			b.refused(sec+tick, free, window, paced, full)
			b.refused(sec+tick, full, free, window, paced)
		}
		b.status(free, throttle.Status{})
		b.status(window, throttle.Status{})
		b.status(full, throttle.Status{Used: 1, Wait: sec + tick})
		b.starts(5, 0, free)
		b.starts(5, 0, window)
		b.start(0, paced)
		b.start(sec+tick, full)
	}},

	{"P6_RefusalOfALimitedWaitSpendsNothing", func(b *bench) {
		full, free := charge("full", throttle.PerSecond(1)), charge("free", throttle.PerSecond(5))
		b.start(0, full)
		for range 20 {
			_, g := b.book(throttle.Booking{Charges: []throttle.Charge{free, full}, MaxWait: sec})
			b.isRefused(g, sec+tick)
		}
		b.status(free, throttle.Status{})
		b.status(full, throttle.Status{Used: 1, Wait: sec + tick})
		b.start(sec+tick, free, full)
		b.status(free, throttle.Status{Waiting: 1})
	}},

	{"P6_CancelGivesBackAll", func(b *bench) {
		a, c := charge("a", throttle.PerSecond(1)), charge("c", throttle.PerSecond(1))
		b.start(0, a)
		k, g := b.book(throttle.Booking{Charges: []throttle.Charge{a, c}, MaxWait: -1})
		b.isStart(g, sec+tick)
		b.store.Cancel(&k, g)
		b.status(c, throttle.Status{})
		b.start(sec+tick, a)
		b.start(0, c)
		b.start(sec+tick, c)
	}},
}
