package storetest

import (
	"time"

	"github.com/fleetthrottle/throttle"
)

// bookingChecks are about what a Booking asks for and a Grant says.
var bookingChecks = []check{
	{"Store_MaxWaitIsTheLongestWait", func(b *bench) {
		one := charge("one", throttle.PerSecond(1))
		b.start(0, one)
		k := throttle.Booking{Charges: []throttle.Charge{one}, MaxWait: sec}
		_, g := b.book(k)
		b.isRefused(g, sec+tick)
		k.MaxWait = sec + tick
		_, g = b.book(k)
		b.isStart(g, sec+tick)
		k.MaxWait = 0
		b.at(2*sec + tick)
		_, g = b.book(k)
		b.isRefused(g, 2*sec+2*tick)
		b.at(2*sec + 2*tick)
		_, g = b.book(k)
		b.isStart(g, 2*sec+2*tick)
	}},

	{"Store_HeldNamesTheCharge", func(b *bench) {
		fast, slow := charge("fast", throttle.PerSecond(5)), charge("slow", throttle.SlidingWindow(1, 2*sec))
		b.isHeld(b.start(0, fast, slow), -1, false)
		b.isHeld(b.refused(2*sec+tick, fast, slow), 1, false)
		b.isHeld(b.refused(2*sec+tick, slow, fast), 0, false)
		b.isHeld(b.start(2*sec+tick, fast, slow), 1, false)
		b.starts(4, 0, fast)
		b.isHeld(b.refused(4*sec+2*tick, slow, fast), 0, false)
		b.at(5 * sec)
		b.isHeld(b.start(5*sec, fast, slow), -1, false)
	}},

	{"Store_NotBeforeIsTheLeastWait", func(b *bench) {
		one := charge("one", throttle.PerSecond(1))
		b.isHeld(b.notBefore(300*ms, 300*ms, one), -1, false)
		b.start(1300*ms+tick, one) // at once would be too close to it
		b.isHeld(b.notBefore(2*sec, 2300*ms+2*tick, one), 0, false)
		b.isHeld(b.notBefore(10*sec, 10*sec, one), -1, false)
		b.at(3 * sec)
		b.isHeld(b.notBefore(sec, 4*sec, one), -1, false) // counted from when it is asked for
	}},

	{"Store_NotBeforeForAllKinds", func(b *bench) {
		window, paced := charge("window", throttle.FixedWindow(1, sec)), charge("paced", throttle.LeakyBucket(10, sec))
		bucket := charge("bucket", throttle.TokenBucket(1, sec, 2))
		b.notBefore(1200*ms, 1200*ms, window)
		b.notBefore(1300*ms, 2*sec, window)
		b.start(0, window)
		b.notBefore(150*ms, 150*ms, paced)
		b.notBefore(200*ms, 250*ms, paced)
		b.notBefore(sec, sec, costing(bucket, 2))
		b.notBefore(sec, 2*sec, bucket)
		b.start(0, bucket)
		b.notBefore(100*ms, 3*sec, bucket, costing(paced, 10))
	}},

	{"Store_NotBeforeAndMaxWait", func(b *bench) {
		one := charge("one", throttle.PerSecond(1))
		k := throttle.Booking{Charges: []throttle.Charge{one}, NotBefore: 500 * ms}
		for _, k.MaxWait = range []time.Duration{0, 500*ms - tick} {
			_, g := b.book(k)
			b.isRefused(g, 500*ms)
			b.isHeld(g, -1, false)
		}
		k.MaxWait = 500 * ms
		_, g := b.book(k)
		b.isStart(g, 500*ms)
	}},

	{"P11_HeldNamesThePenalty", func(b *bench) {
		a, c := charge("a", throttle.PerSecond(1)), charge("c", throttle.PerSecond(1))
		b.pause(c, 10*sec)
		b.isHeld(b.refused(10*sec, a, c), 1, true)
		b.isHeld(b.start(10*sec, c, a), 0, true)
		b.isHeld(b.refused(11*sec+tick, c), 0, true) // behind others, but closed all the same
		b.isHeld(b.start(0, a), -1, false)
		b.at(10 * sec)
		b.isHeld(b.refused(11*sec+tick, a), 0, false)
	}},
}

// notBefore books with a least wait and compares the start.
func (b *bench) notBefore(d, want time.Duration, charges ...throttle.Charge) throttle.Grant {
	b.Helper()
	_, g := b.book(throttle.Booking{Charges: charges, MaxWait: -1, NotBefore: d})
	b.isStart(g, want)
	return g
}

// isHeld compares which charge a grant says held it back.
func (b *bench) isHeld(g throttle.Grant, held int, paused bool) {
	b.Helper()
	if g.Held != held || g.Paused != paused {
		b.errorf("grant at %v: Held %d, Paused %t; want %d, %t", b.now()+g.Wait, g.Held, g.Paused, held, paused)
	}
}

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

	{"P3_SpreadsOverlap", func(b *bench) {
		// Starts that come closer together than they may be used apart use the whole limit.
		for range 300 {
			b.at(b.now() + 10600*tick)
			b.spread(50*ms, b.now(), charge("window", throttle.PerSecond(100)))
			b.spread(50*ms, b.now(), charge("bucket", throttle.TokenBucket(100, sec, 10)))
		}
		for range 1000 {
			b.at(b.now() + 1050*tick)
			b.spread(5*ms, b.now(), charge("large", throttle.PerSecond(1000)))
		}
	}},

	{"P1_CancelledAmongOverlapping", func(b *bench) {
		two := charge("two", throttle.PerSecond(2))
		b.book(throttle.Booking{Charges: []throttle.Charge{two}, MaxWait: -1, Spread: 300 * ms, NotBefore: sec})
		k, g := b.book(throttle.Booking{Charges: []throttle.Charge{two}, MaxWait: -1, Spread: 300 * ms, NotBefore: 1200 * ms})
		b.store.Cancel(&k, g)
		b.at(150 * ms)
		b.start(150*ms, two)
		b.start(1150*ms+tick, two) // the start that stays may be used at 1 s
	}},

	{"P1_ForgottenAmongOverlapping", func(b *bench) {
		three := charge("three", throttle.PerSecond(3))
		k, g := b.book(throttle.Booking{Charges: []throttle.Charge{three}, MaxWait: -1, NotBefore: 100 * ms})
		b.spread(200*ms, 0, three)
		b.at(50 * ms)
		b.spread(2*sec, 50*ms, three)
		b.at(1300 * ms)
		b.refused(3050*ms+tick, costing(three, 3))
		b.store.Cancel(&k, g) // which is over, and was before the one that may be used until 2.05 s
		b.starts(2, 1300*ms, three)
		b.between(2300*ms+tick, 3050*ms+tick, three)
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
