package storetest

import (
	"time"

	"github.com/fleetthrottle/throttle"
)

// queueChecks are about the order in which callers start.
var queueChecks = []check{
	{"P5_FirstComeFirstServed", func(b *bench) {
		five := charge("five", throttle.PerSecond(5))
		for i := range 100 {
			b.at(time.Duration(i) * ms)
			turn := time.Duration(i/5)*(sec+tick) + time.Duration(i%5)*ms
			b.start(turn, five)
		}
	}},

	{"P5_WaitingStartsKeepAPace", func(b *bench) {
		c := charge("c", throttle.PerSecond(4))
		c.Pace = 50 * ms
		b.starts(4, 0, c) // none of these waits, so none is spaced
		b.start(sec+tick, costing(c, 2))
		b.start(sec+tick+100*ms, c) // twice as far behind a cost of 2
		b.start(sec+tick+150*ms, c)
		b.start(2*sec+2*tick, c) // the limit wants more than the pace
	}},

	{"P5_APaceIsForItsOwnWaiters", func(b *bench) {
		slow, wide := charge("slow", throttle.PerSecond(1)), charge("wide", throttle.PerSecond(100))
		wide.Pace = 50 * ms
		other := charge("other", throttle.PerSecond(1))
		b.start(0, slow, wide)
		b.start(0, other, wide)
		b.start(sec+tick, slow, wide)
		b.start(sec+tick, other, wide) // the wide budget has room: it spaces nobody
	}},

	{"P5_CostlyIsNeverStarved", func(b *bench) {
		ten := charge("ten", throttle.PerSecond(10))
		b.starts(10, 0, ten)
		b.at(100 * ms)
		b.start(sec+tick, costing(ten, 10))
		b.starts(10, 2*sec+2*tick, ten) // cheap ones that come later queue behind it
		b.start(3*sec+3*tick, costing(ten, 10))
		b.starts(10, 4*sec+4*tick, ten)
	}},

	{"P5_CheapKeepOutOfTheWayOfCostly", func(b *bench) {
		ten := charge("ten", throttle.PerSecond(10))
		b.starts(4, 0, ten)
		b.at(500 * ms)
		b.start(500*ms, ten)
		b.start(1500*ms+tick, costing(ten, 10)) // waits for the one at 0.5 s as well
		b.starts(4, 500*ms, ten)
		b.at(500*ms + tick)
		b.start(2500*ms+2*tick, ten) // any earlier place lies within a second of the costly one
	}},

	{"P5_HeldBackElsewhereDelaysNobody", func(b *bench) {
		wide := charge("wide", throttle.PerSecond(100))
		slow, other := charge("slow", throttle.PerSecond(1)), charge("other", throttle.PerSecond(1))
		for i := range 11 {
			b.start(time.Duration(i)*(sec+tick), slow, wide)
		}
		b.start(0, other, wide)
		b.starts(98, 0, wide)
		b.start(sec+tick, wide)
	}},

	{"P5_NarrowQueuesFillTheWideBudget", func(b *bench) {
		wide := charge("wide", throttle.PerSecond(3))
		names := []string{"a", "b", "c", "d"}
		for _, want := range [][]time.Duration{
			{0, 0, 0, sec + tick},
			{sec + tick, sec + tick, 2*sec + 2*tick, 2*sec + 2*tick},
			{2*sec + 2*tick, 3*sec + 3*tick, 3*sec + 3*tick, 3*sec + 3*tick},
		} {
			for j, name := range names {
				b.start(want[j], charge(name, throttle.PerSecond(1)), wide)
			}
		}
	}},
}

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
		b.status(free, throttle.Status{Booked: 1, Waiting: 1})
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
