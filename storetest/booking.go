package storetest

import "github.com/fleetthrottle/throttle"

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

	{"P11_HeldNamesThePenalty", func(b *bench) {
		a, c := charge("a", throttle.PerSecond(1)), charge("c", throttle.PerSecond(1))
		b.pause(c, 10*sec)
		b.isHeld(b.refused(10*sec, a, c), 1, true)
		b.isHeld(b.start(10*sec, c, a), 0, true)
		b.isHeld(b.start(0, a), -1, false)
		b.at(10 * sec)
		b.isHeld(b.refused(11*sec+tick, a), 0, false)
	}},
}

// isHeld compares what a grant says about who held it back.
func (b *bench) isHeld(g throttle.Grant, held int, paused bool) {
	b.Helper()
	if g.Held != held || g.Paused != paused {
		b.errorf("grant at %v: Held %d, Paused %t; want %d, %t", b.now()+g.Wait, g.Held, g.Paused, held, paused)
	}
}
