package storetest

import (
	"fmt"
	"time"

	"github.com/fleetthrottle/throttle"
)

// rampShortChecks are about slow starts whose steps are shorter than the window: because
// the penalty was short, or the window is long.
var rampShortChecks = []check{
	{"P11_SlowStartAfterASecond", func(b *bench) {
		for i, l := range []throttle.Limit{throttle.SlidingWindow(800, 20*sec), throttle.FixedWindow(800, 20*sec)} {
			begin, c := b.now(), charge(fmt.Sprint("after a second ", i), l)
			b.pause(c, sec)
			b.isHeld(b.start(begin+sec, c), 0, true)
			b.starts(2, begin+1250*ms, c)
			b.starts(8, begin+1500*ms, c)
			b.starts(2, begin+1750*ms, c)
			b.starts(787, begin+2*sec, c)
			b.at(begin + 80*sec)
		}
	}},

	{"P11_SlowStartOfLongWindows", func(b *bench) {
		for i, l := range []throttle.Limit{throttle.SlidingWindow(3000, time.Minute), throttle.FixedWindow(3000, time.Minute)} {
			begin, c := b.now(), charge(fmt.Sprint("long ", i), l)
			b.pause(c, 10*time.Minute)
			b.start(begin+10*time.Minute, c)
			b.start(begin+10*time.Minute+250*ms, costing(c, 124))
			b.start(begin+10*time.Minute+20*sec, costing(c, 375))
			b.start(begin+10*time.Minute+20250*ms, costing(c, 124))
			b.start(begin+10*time.Minute+40*sec, costing(c, 2000))
			b.at(begin + 15*time.Minute)
		}
	}},

	{"P11_SlowStartOfSmallSteps", func(b *bench) {
		nine, fixed := charge("nine", throttle.SlidingWindow(9, 10*sec)), charge("fixed", throttle.FixedWindow(9, 10*sec))
		for _, c := range []throttle.Charge{nine, fixed} {
			b.pause(c, 2*sec)
			b.start(2*sec, c) // one in each step
			b.start(3*sec, c)
			b.starts(7, 4*sec, c)
		}
		b.start(12*sec+tick, nine)
		b.start(10*sec, fixed)
	}},

	{"P11_SlowStartOfStepsWithAReserve", func(b *bench) {
		c := charge("c", throttle.SlidingWindow(800, 20*sec))
		b.pause(c, sec)
		b.start(2*sec, leaving(c, 400))
		b.start(2*sec, costing(c, 11))
		b.start(1500*ms, costing(c, 10))
		b.start(sec, leaving(c, 80))
	}},

	// What is left of a window ends, and a step goes on.
	{"P11_SlowStartOfStepsAcrossWindows", func(b *bench) {
		c := charge("c", throttle.FixedWindow(80, 10*sec))
		b.pause(c, 8*sec)
		b.start(8*sec, c)
		b.start(8250*ms, costing(c, 4))
		b.start(12*sec, costing(c, 15))
		b.at(11 * sec)
		b.refused(12*sec, c)
		b.at(12 * sec)
		b.start(12250*ms, costing(c, 4))
		b.start(16*sec, costing(c, 60))
	}},

	{"P11_SlowStartIsNotLongerThanThePenalty", func(b *bench) {
		for _, l := range []throttle.Limit{throttle.PerSecond(100), throttle.PerHour(100), throttle.FixedWindow(100, time.Minute)} {
			begin, c := b.now(), charge(sentence(throttle.Charge{Limit: l}), l)
			b.pause(c, 400*ms)
			b.at(begin + 800*ms)
			b.starts(100, begin+800*ms, c)
			b.pause(c, tick) // it is over before it begins
			b.at(begin + 3*time.Hour)
		}
	}},
}
