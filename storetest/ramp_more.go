package storetest

import (
	"fmt"
	"time"

	"github.com/fleetthrottle/throttle"
)

// rampMoreChecks are about what a slow start has to do with other things.
var rampMoreChecks = []check{
	// Limits this large keep starts of a 128th of their window together.
	{"P11_SlowStartOfALargeLimit", func(b *bench) {
		for i, l := range []throttle.Limit{throttle.SlidingWindow(10_000, 20*sec), throttle.FixedWindow(10_000, 20*sec)} {
			c := charge(fmt.Sprint("large ", i), l)
			b.pause(c, 40*sec)
			b.at(b.now() + 40*sec)
			b.start(b.now(), c)
			b.at(b.now() + 250*ms)
			for range 10 {
				b.starts(50, b.now(), c)
				b.at(b.now() + 5*ms)
			}
		}
	}},

	{"P11_SlowStartOfLargeCosts", func(b *bench) {
		for cost, start := range map[int]time.Duration{5: 10 * sec, 6: 11*sec + tick, 20: 11*sec + tick, 21: 12*sec + 2*tick, 40: 12*sec + 2*tick} {
			c := charge(fmt.Sprint("cost ", cost), throttle.PerSecond(40))
			b.pause(c, 10*sec)
			b.start(start, costing(c, cost))
			if cost > 5 {
				b.start(10*sec, c) // others need not wait for it
			}
			if cost > 20 {
				b.starts(4, 10250*ms, c)
			}
		}
		fixed, bucket := charge("fixed", throttle.FixedWindow(40, sec)), charge("bucket", throttle.TokenBucket(10, sec, 20))
		b.pause(fixed, 10*sec)
		b.start(11*sec, costing(fixed, 20))
		b.start(12*sec, costing(fixed, 40))
		b.pause(bucket, 10*sec)
		b.start(11900*ms, costing(bucket, 20))
	}},

	{"P11_SlowStartWithAReserve", func(b *bench) {
		forty, fixed := charge("forty", throttle.PerSecond(40)), charge("fixed", throttle.FixedWindow(40, sec))
		bucket := charge("bucket", throttle.TokenBucket(10, sec, 20))
		for _, c := range []throttle.Charge{forty, fixed, bucket} {
			b.pause(c, 10*sec)
		}
		b.start(11*sec+tick, leaving(forty, 19))
		b.start(12*sec+2*tick, leaving(forty, 39))
		b.start(10*sec, forty)
		b.starts(4, 10250*ms, forty)
		b.start(11*sec, leaving(fixed, 19))
		b.start(12*sec, leaving(fixed, 39))
		b.start(10500*ms, leaving(bucket, 5))
		b.start(10*sec, bucket)
	}},

	{"P11_SlowStartOfOneHoldsTheBooking", func(b *bench) {
		wide, narrow := charge("wide", throttle.PerSecond(40)), charge("narrow", throttle.SlidingWindow(6, 3*sec))
		b.pause(wide, 10*sec)
		b.start(10*sec, narrow, wide)
		b.starts(4, 10250*ms, narrow, wide)
		b.isHeld(b.start(11*sec+tick, narrow, wide), 1, true)
		b.isHeld(b.start(13*sec+tick, narrow, wide), 0, false)
		b.starts(6, 0, narrow)
	}},

	{"P11_SlowStartBesideWhatIsBooked", func(b *bench) {
		eight := charge("eight", throttle.PerSecond(8))
		b.starts(8, 0, eight)
		for range 8 {
			b.later(3*sec+tick, eight)
		}
		b.pause(eight, 3*sec) // these stay
		b.starts(4, 4*sec+2*tick, eight)
		b.starts(4, 5*sec+2*tick, eight)
		b.starts(4, 5*sec+3*tick, eight)
	}},

	{"P11_SlowStartAfterAShortPenalty", func(b *bench) {
		eight := charge("eight", throttle.PerSecond(8))
		b.starts(3, 0, eight)
		b.pause(eight, 500*ms)
		b.start(500*ms, eight)
		b.start(750*ms, eight)
		b.starts(3, sec, eight)
		b.start(sec+tick, eight) // the three count, too
	}},

	{"P11_SlowStartGivenBack", func(b *bench) {
		eight := charge("eight", throttle.PerSecond(8))
		b.pause(eight, 3*sec)
		k, g := b.book(throttle.Booking{Charges: []throttle.Charge{eight}, MaxWait: -1})
		b.isStart(g, 3*sec)
		b.start(4*sec+tick, eight)
		b.store.Cancel(&k, g)
		b.start(3*sec, eight)
		b.start(4*sec+tick, eight)
	}},

	{"P11_SlowStartKeepsThePace", func(b *bench) {
		eight := charge("eight", throttle.PerSecond(8))
		eight.Pace = 10 * ms
		b.pause(eight, 10*sec)
		b.start(10*sec, eight)
		b.start(11*sec+tick, eight)
		b.start(11010*ms+tick, eight)
		b.start(11020*ms+tick, eight)
		b.start(11030*ms+tick, eight)
		b.start(12*sec+2*tick, eight)
		b.start(12010*ms+2*tick, eight)
	}},

	{"P11_SlowStartWithASpread", func(b *bench) {
		eight := charge("eight", throttle.PerSecond(8))
		b.pause(eight, 3*sec)
		b.at(3100 * ms)
		b.spread(300*ms, 3100*ms, eight)
		b.starts(3, 4*sec+tick, eight)
		b.start(4400*ms+tick, eight)
	}},

	{"P11_SlowStartOfAShadow", func(b *bench) {
		dark := shadow(charge("dark", throttle.PerSecond(40)))
		b.pause(dark, 10*sec)
		b.at(10 * sec)
		b.over(10*sec, 0, dark)
		for range 4 {
			b.over(10*sec, 250*ms, dark)
		}
		b.over(10*sec, sec+tick, dark)
	}},

	{"P11_SlowStartOfAnotherLimit", func(b *bench) {
		b.pause(charge("c", throttle.PerSecond(8)), 10*sec)
		b.start(10*sec, charge("c", throttle.PerSecond(40)))
		b.starts(4, 10250*ms, charge("c", throttle.PerSecond(40)))
		b.start(10500*ms+tick, charge("c", throttle.SlidingWindow(33, 500*ms)))
	}},

	{"P11_StatusOfASlowStart", func(b *bench) {
		forty, bucket := charge("forty", throttle.PerSecond(40)), charge("bucket", throttle.TokenBucket(10, sec, 20))
		b.pause(forty, 10*sec)
		b.pause(bucket, 10*sec)
		b.start(10*sec, bucket)
		b.start(10*sec, forty)
		b.starts(4, 10250*ms, forty)
		b.start(11*sec+tick, forty)
		b.status(forty, throttle.Status{Booked: 6, Waiting: 6, Wait: 11*sec + tick, Paused: 10 * sec})
		b.status(bucket, throttle.Status{Booked: 1, Waiting: 1, Wait: 10250 * ms, Paused: 10 * sec})
		b.at(10 * sec)
		b.status(forty, throttle.Status{Used: 1, Booked: 5, Waiting: 5, Wait: sec + tick})
	}},
}

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

	// A start that may be used until after the first step counts in both.
	{"P11_SlowStartAcrossAStep", func(b *bench) {
		for i, l := range []throttle.Limit{throttle.SlidingWindow(40, 1200*ms), throttle.FixedWindow(40, 1200*ms)} {
			begin, c := b.now(), charge(fmt.Sprint("across ", i), l)
			b.pause(c, 600*ms)
			b.start(begin+600*ms, c)
			b.spread(100*ms, begin+850*ms, c)
			b.starts(4, begin+900*ms, c)
			b.start(begin+1200*ms, c)
			b.at(begin + 12*sec)
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
