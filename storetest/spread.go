package storetest

import (
	"time"

	"github.com/fleetthrottle/throttle"
)

// spreadChecks are about starts that may be used some time later.
var spreadChecks = []check{
	{"P2_SpreadSliding", func(b *bench) {
		one := charge("one", throttle.PerSecond(1))
		b.spread(300*ms, 0, one)
		b.start(1300*ms+tick, one)
		b.start(2300*ms+2*tick, one)
	}},

	{"P2_SpreadSlidingBeforeALaterStart", func(b *bench) {
		one := charge("one", throttle.PerSecond(1))
		b.later(1200*ms+tick, one)
		b.spread(300*ms, 2200*ms+2*tick, one) // now it could be used too close to the later start
		b.spread(200*ms, 0, one)
	}},

	{"P2_SpreadFixedWindow", func(b *bench) {
		two := late(charge("two", throttle.FixedWindow(2, sec)), 100*ms)
		b.at(600 * ms)
		b.spread(300*ms, sec, two)
		b.spread(300*ms-tick, 600*ms, two)
	}},

	{"P2_SpreadPaced", func(b *bench) {
		ten := charge("ten", throttle.LeakyBucket(10, sec))
		b.spread(30*ms, 0, ten)
		b.start(130*ms, ten)
		b.later(350*ms, ten)
		b.spread(30*ms, 450*ms, ten) // 120 ms are free before 350 ms
		b.start(230*ms, ten)
	}},

	{"P2_SpreadBucket", func(b *bench) {
		one := charge("one", throttle.TokenBucket(1, sec, 1))
		b.spread(300*ms, 0, one)
		b.later(2500*ms, one)
		b.spread(300*ms, 3500*ms, one) // from 1.3 s on it could be used until 1.6 s, too close to 2.5 s
		b.spread(200*ms, 1300*ms, one)
	}},

	{"P7_SpreadIsGivenBack", func(b *bench) {
		one := charge("one", throttle.PerSecond(1))
		k, g := b.book(throttle.Booking{Charges: []throttle.Charge{one}, Spread: 300 * ms})
		b.store.Cancel(&k, g)
		b.start(0, one)
		b.start(sec+tick, one)
	}},
}

// spread books with a Spread and compares the start.
func (b *bench) spread(d, want time.Duration, charges ...throttle.Charge) {
	b.Helper()
	_, g := b.book(throttle.Booking{Charges: charges, MaxWait: -1, Spread: d})
	b.isStart(g, want)
}
