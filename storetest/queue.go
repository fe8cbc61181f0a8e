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
