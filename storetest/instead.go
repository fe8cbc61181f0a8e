package storetest

import "github.com/fleetthrottle/throttle"

// insteadChecks are about a start that is given back for another.
var insteadChecks = []check{
	{"P7_InsteadGivesBackFirst", func(b *bench) {
		one := charge("one", throttle.PerSecond(1))
		k, g := b.book(throttle.Booking{Charges: []throttle.Charge{one}})
		b.at(300 * ms)
		k.Instead = g.Handle
		k, g = b.book(k)
		b.isStart(g, 300*ms)
		b.status(one, throttle.Status{Used: 1, Wait: sec + tick})
		b.at(400 * ms)
		k.Instead = g.Handle
		_, g = b.book(k)
		b.isStart(g, 400*ms)
		b.start(1400*ms+tick, one)
	}},

	{"P7_InsteadOfAPlaceInTheQueue", func(b *bench) {
		two, other := charge("two", throttle.PerSecond(2)), charge("other", throttle.PerSecond(1))
		b.starts(2, 0, two)
		k, g := b.book(throttle.Booking{Charges: []throttle.Charge{two, other}, MaxWait: -1})
		b.isStart(g, sec+tick)
		k.Instead = g.Handle
		_, g = b.book(k)
		b.isStart(g, sec+tick)
		b.start(sec+tick, two)
		b.start(2*sec+2*tick, two)
		b.start(0, other)
	}},

	{"P7_InsteadIsGivenBackByARefusal", func(b *bench) {
		one := charge("one", throttle.PerSecond(1))
		k, g := b.book(throttle.Booking{Charges: []throttle.Charge{one}})
		b.pause(one, 5*sec)
		k.Instead = g.Handle
		_, g = b.book(k)
		b.isRefused(g, 5*sec)
		b.status(one, throttle.Status{Wait: 5 * sec, Paused: 5 * sec})
	}},
}
