package storetest

import (
	"time"

	"github.com/fleetthrottle/throttle"
)

// cancelChecks are about callers that leave.
var cancelChecks = []check{
	{"P7_CancelNow", func(b *bench) {
		one := charge("one", throttle.PerSecond(1))
		k, g := b.book(throttle.Booking{Charges: []throttle.Charge{one}})
		b.store.Cancel(&k, g)
		b.start(0, one)
		b.start(sec+tick, one)
	}},

	{"P7_CancelAPlaceInTheQueue", func(b *bench) {
		one := charge("one", throttle.PerSecond(1))
		b.start(0, one)
		k, g := b.book(throttle.Booking{Charges: []throttle.Charge{one}, MaxWait: -1})
		b.isStart(g, sec+tick)
		b.start(2*sec+2*tick, one)
		b.store.Cancel(&k, g)
		b.start(sec+tick, one) // the next caller gets the place, the others keep theirs
		b.start(3*sec+3*tick, one)
	}},

	{"P7_CancelAPastStart", func(b *bench) {
		two := charge("two", throttle.PerSecond(2))
		k, g := b.book(throttle.Booking{Charges: []throttle.Charge{two}})
		b.start(0, two)
		b.at(500 * ms)
		b.store.Cancel(&k, g)
		b.status(two, throttle.Status{Used: 1})
		b.start(500*ms, two)
		b.start(sec+tick, two)
	}},

	{"P7_CancelGivesBackTheCost", func(b *bench) {
		ten := charge("ten", throttle.PerSecond(10))
		b.start(0, costing(ten, 3))
		k, g := b.book(throttle.Booking{Charges: []throttle.Charge{costing(ten, 7)}})
		b.store.Cancel(&k, g)
		b.starts(7, 0, ten)
		b.start(sec+tick, ten)
	}},

	{"P7_CancelInAWindow", func(b *bench) {
		two := charge("two", throttle.FixedWindow(2, sec))
		b.start(0, two)
		k, g := b.book(throttle.Booking{Charges: []throttle.Charge{two}})
		b.at(400 * ms)
		b.store.Cancel(&k, g)
		b.start(400*ms, two)
		b.start(sec, two)
	}},

	{"P7_CancelPaced", func(b *bench) {
		ten := charge("ten", throttle.LeakyBucket(10, sec))
		b.start(0, ten)
		k, g := b.book(throttle.Booking{Charges: []throttle.Charge{costing(ten, 3)}, MaxWait: -1})
		b.isStart(g, 100*ms)
		b.start(400*ms, ten)
		b.store.Cancel(&k, g)
		b.start(100*ms, costing(ten, 2))
		b.start(300*ms, ten)
		b.start(500*ms, ten)
	}},

	{"P7_CancelPacedLast", func(b *bench) {
		ten := charge("ten", throttle.LeakyBucket(10, sec))
		b.start(0, ten)
		b.later(150*ms, ten)
		k, g := b.book(throttle.Booking{Charges: []throttle.Charge{ten}, MaxWait: -1})
		b.isStart(g, 250*ms)
		b.store.Cancel(&k, g)
		b.at(170 * ms)
		b.start(250*ms, ten)
	}},

	{"P7_CancelPacedKeepsTheOthers", func(b *bench) {
		ten := charge("ten", throttle.LeakyBucket(10, sec))
		b.start(0, ten)
		b.later(150*ms, ten)
		b.at(100 * ms)
		k, g := b.book(throttle.Booking{Charges: []throttle.Charge{ten}, MaxWait: -1})
		b.isStart(g, 250*ms)
		b.later(400*ms, ten)
		b.store.Cancel(&k, g)
		b.start(250*ms, ten) // neither neighbour has moved
		b.start(500*ms, ten)
	}},

	{"P7_CancelledWaiters", func(b *bench) {
		ten := charge("ten", throttle.PerSecond(10))
		b.starts(10, 0, ten)
		b.leave(1000, 0, ten)
		b.starts(10, sec+tick, ten)
	}},

	{"P7_CancelledWaitersOfAllKinds", func(b *bench) {
		all := []throttle.Charge{
			charge("sliding", throttle.PerSecond(10)), charge("window", throttle.FixedWindow(10, sec)),
			charge("paced", throttle.LeakyBucket(10, sec)),
		}
		b.start(0, all...)
		b.leave(200, 0, all...)
		b.start(100*ms, all...)
	}},
}

// leave lets waiters arrive in even steps, and then all of them go.
func (b *bench) leave(waiters int, step time.Duration, charges ...throttle.Charge) {
	b.Helper()
	bookings, grants := make([]throttle.Booking, waiters), make([]throttle.Grant, waiters)
	for i := range waiters {
		bookings[i], grants[i] = b.book(throttle.Booking{Charges: charges, MaxWait: -1})
		time.Sleep(step)
	}
	for i := range waiters {
		b.store.Cancel(&bookings[i], grants[i])
	}
}

// withinOneSpan checks that the next caller is no worse off than one interval.
func (b *bench) withinOneSpan(c throttle.Charge) {
	b.Helper()
	_, g := b.book(throttle.Booking{Charges: []throttle.Charge{c}, MaxWait: -1})
	if most := tickTimes(span(c)); !g.OK || g.Wait > most {
		b.errorf("after all waiters left: %+v, want a start within %v", g, most)
	}
}

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
