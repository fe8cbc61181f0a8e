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
