package storetest

import (
	"time"

	"github.com/fleetthrottle/throttle"
)

// changeChecks are about a budget whose limit changes while it is in use. The
// history stays. A store need not know more of it than the old limit wanted,
// and may then be more careful for one new window, but not less.
var changeChecks = []check{
	{"P1_ChangeToMore", func(b *bench) {
		c := charge("c", throttle.PerSecond(5))
		b.starts(5, 0, c)
		b.start(sec+tick, c)
		c.Limit = throttle.PerSecond(8)
		b.starts(3, 0, c)
		b.starts(7, sec+tick, c)
		b.start(2*sec+2*tick, c)
	}},

	{"P1_ChangeToLess", func(b *bench) {
		c := charge("c", throttle.PerSecond(10))
		b.starts(10, 0, c)
		b.starts(2, sec+tick, c)
		b.at(500 * ms)
		c.Limit = throttle.PerSecond(4)
		b.starts(2, sec+tick, c)
		b.starts(4, 2*sec+2*tick, c)
	}},

	{"P1_ChangeThereAndBack", func(b *bench) {
		many, few := charge("c", throttle.PerSecond(10)), charge("c", throttle.PerSecond(1))
		b.starts(6, 0, many)
		b.start(sec+tick, few)
		b.starts(4, 0, many)
		b.starts(9, sec+tick, many)
		b.start(2*sec+2*tick, few)
	}},

	{"P1_ChangeToLonger", func(b *bench) {
		c := charge("c", throttle.PerSecond(10))
		b.starts(10, 0, c)
		b.at(500 * ms)
		c.Limit = throttle.SlidingWindow(10, 10*sec)
		b.between(10*sec+tick, 10500*ms+tick, c)
	}},

	{"P1_ChangeToLongerWithHistory", func(b *bench) {
		c := charge("c", throttle.PerSecond(10))
		for i := range 8 {
			b.at(time.Duration(i) * 2 * sec)
			b.starts(10, b.now(), c)
		}
		c.Limit = throttle.SlidingWindow(40, 10*sec)
		b.between(18*sec+tick, 24*sec+tick, c) // 50 have started in the last 10 s
	}},

	{"P1_ChangeToLongerAfterAnIdleWhile", func(b *bench) {
		c := charge("c", throttle.SlidingWindow(6, 50*ms))
		b.starts(6, 0, c)
		b.at(2 * sec)
		b.start(2*sec, c)
		c.Limit = throttle.SlidingWindow(6, 3*sec)
		b.between(3*sec+tick, 5*sec+tick, c)
	}},

	{"P1_ChangeToShorter", func(b *bench) {
		c := charge("c", throttle.SlidingWindow(1, 10*sec))
		b.start(0, c)
		b.at(500 * ms)
		c.Limit = throttle.PerSecond(1)
		b.between(sec+tick, 10*sec+tick, c)
	}},

	{"P1_ChangeFromFixedToSliding", func(b *bench) {
		c := charge("c", throttle.FixedWindow(2, sec))
		b.at(900 * ms)
		b.starts(2, 900*ms, c)
		b.starts(2, sec, c)
		b.at(sec)
		c.Limit = throttle.PerSecond(3)
		b.between(1900*ms+tick, 2*sec+tick, c)
	}},

	{"P1_ChangeFromSlidingToFixed", func(b *bench) {
		c := charge("c", throttle.PerSecond(3))
		b.at(100 * ms)
		b.starts(3, 100*ms, c)
		b.at(200 * ms)
		c.Limit = throttle.FixedWindow(3, sec)
		b.between(sec, 2*sec, c)
	}},

	{"P1_ChangeFromSlidingToPaced", func(b *bench) {
		c := charge("c", throttle.PerSecond(3))
		b.start(0, c)
		c.Limit = throttle.LeakyBucket(2, sec)
		b.between(500*ms, sec, c)
	}},

	{"P1_ChangeFromPacedToSliding", func(b *bench) {
		c := charge("c", throttle.LeakyBucket(10, sec))
		b.start(0, c)
		b.start(100*ms, c)
		c.Limit = throttle.PerSecond(2)
		b.between(sec+tick, 1100*ms+tick, c)
	}},

	{"P1_ChangeToASlowerPace", func(b *bench) {
		c := charge("c", throttle.LeakyBucket(100, sec))
		b.start(0, costing(c, 5))
		c.Limit = throttle.LeakyBucket(10, sec)
		b.between(500*ms, sec, c)
	}},

	{"P1_ChangeToASmallerBucket", func(b *bench) {
		c := charge("c", throttle.TokenBucket(1, sec, 10))
		b.start(0, costing(c, 8))
		c.Limit = throttle.TokenBucket(1, sec, 4)
		b.between(sec, 5*sec, c)
	}},

	{"P1_ChangeToALargerBucketUnderLoad", func(b *bench) {
		c := charge("c", throttle.TokenBucket(1, sec, 2))
		b.starts(2, 0, c)
		for i := range 20 {
			b.start(time.Duration(i+1)*sec, c)
			b.at(time.Duration(i+1) * sec)
		}
		c.Limit = throttle.TokenBucket(1, sec, 5)
		b.between(20*sec, 25*sec, costing(c, 3)) // what was spent of two is not spent of five
	}},

	{"P1_ChangeToASlowerBucket", func(b *bench) {
		c := charge("c", throttle.TokenBucket(10, sec, 10))
		b.starts(10, 0, c)
		for i := range 30 {
			b.start(time.Duration(i+1)*100*ms, c)
			b.at(time.Duration(i+1) * 100 * ms)
		}
		c.Limit = throttle.TokenBucket(1, sec, 10)
		b.between(4*sec, 33*sec, c) // not even the last second fits
	}},

	{"P1_ChangeFromSlidingToBucket", func(b *bench) {
		c := charge("c", throttle.PerSecond(10))
		b.starts(6, 0, c)
		c.Limit = throttle.TokenBucket(1, sec, 5)
		b.between(sec, 2*sec, c)
	}},

	{"P1_ChangeFromBucketToSliding", func(b *bench) {
		c := charge("c", throttle.TokenBucket(10, sec, 10))
		b.starts(10, 0, c)
		b.at(100 * ms)
		b.start(100*ms, c)
		c.Limit = throttle.PerSecond(10)
		b.between(sec+tick, 2*sec+2*tick, c)
	}},

	{"P11_ChangeKeepsThePause", func(b *bench) {
		c := charge("c", throttle.PerSecond(1))
		b.pause(c, 5*sec)
		c.Limit = throttle.FixedWindow(7, sec)
		b.start(5*sec, c)
	}},
}

// between books and wants a start that is not before what the definition says
// and not after what a careful store may say.
func (b *bench) between(exact, careful time.Duration, c throttle.Charge) {
	b.Helper()
	_, g := b.book(throttle.Booking{Charges: []throttle.Charge{c}, MaxWait: -1})
	if got := b.now() + g.Wait; !g.OK || got < exact || got > careful {
		b.errorf("booked at %v: OK %t, start at %v; want one from %v to %v", b.now(), g.OK, got, exact, careful)
	}
}
