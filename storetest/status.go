package storetest

import "github.com/fleetthrottle/throttle"

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
