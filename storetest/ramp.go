package storetest

import (
	"fmt"
	"time"

	"github.com/fleetthrottle/throttle"
)

// rampChecks are about how budgets begin again after a penalty: with one start,
// then an eighth of their limit, then a half, then all of it.
var rampChecks = []check{
	{"P11_SlowStartSliding", func(b *bench) {
		forty := charge("forty", throttle.PerSecond(40))
		b.pause(forty, 10*sec)
		b.isHeld(b.start(10*sec, forty), 0, true)
		b.starts(4, 10250*ms, forty)
		b.isHeld(b.refused(11*sec+tick, forty), 0, true)
		b.starts(15, 11*sec+tick, forty)
		b.at(10 * sec)
		b.isHeld(b.refused(11*sec+tick, forty), 0, false) // slow, but not closed
		b.start(11*sec+tick, forty)
		b.starts(4, 11250*ms+tick, forty)
		b.starts(36, 12*sec+2*tick, forty)
		b.starts(4, 12250*ms+2*tick, forty)
		b.start(13*sec+3*tick, forty)
	}},

	{"P11_SlowStartSlidingInBetween", func(b *bench) {
		forty := charge("forty", throttle.PerSecond(40))
		b.pause(forty, 10*sec)
		b.at(10 * sec)
		b.start(10*sec, forty)
		b.at(10400 * ms)
		b.starts(4, 10400*ms, forty)
		b.starts(16, 11*sec+tick, forty)
		b.starts(4, 11400*ms+tick, forty)
		b.starts(36, 12*sec+2*tick, forty)
		b.start(12400*ms+2*tick, forty)
	}},

	{"P11_SlowStartWithJitter", func(b *bench) {
		nine := late(charge("nine", throttle.PerSecond(9)), 100*ms)
		b.pause(nine, 3*sec)
		b.start(3*sec, nine)
		b.start(3250*ms, nine) // an eighth, rounded up
		b.starts(4, 4100*ms+tick, nine)
		b.start(4350*ms+tick, nine)
		b.starts(8, 5200*ms+2*tick, nine)
		b.start(5450*ms+2*tick, nine)
	}},

	{"P11_SlowStartAligned", func(b *bench) {
		forty := charge("forty", throttle.FixedWindow(40, sec))
		b.pause(forty, 10300*ms)
		b.start(10300*ms, forty)
		b.starts(4, 10550*ms, forty)
		b.starts(20, 11*sec, forty)
		b.starts(40, 12*sec, forty)
		b.start(13*sec, forty)
	}},

	{"P11_SlowStartOfABucket", func(b *bench) {
		five := charge("five", throttle.TokenBucket(10, sec, 5))
		b.pause(five, 10*sec)
		b.start(10*sec, five)
		b.starts(2, 10250*ms, five)
		b.start(10300*ms, five)
		b.start(10400*ms, five)
		b.starts(3, 10500*ms, five) // it would be full
		b.start(10550*ms, five)
	}},

	{"P11_SlowStartOfAnEmptyBucket", func(b *bench) {
		ten := charge("ten", throttle.TokenBucket(10, sec, 10))
		b.starts(10, 0, ten)
		b.pause(ten, 300*ms)
		b.start(300*ms, ten) // more than empty it cannot be
		b.starts(2, 550*ms, ten)
		b.start(600*ms, ten)
	}},

	{"P11_SlowStartOfSmallLimits", func(b *bench) {
		one, two := charge("one", throttle.PerSecond(1)), charge("two", throttle.PerSecond(2))
		token := charge("token", throttle.TokenBucket(1, sec, 1))
		for _, c := range []throttle.Charge{one, two, token} {
			b.pause(c, 3*sec)
			b.start(3*sec, c)
		}
		b.start(4*sec+tick, one)
		b.start(4*sec+tick, two)
		b.starts(2, 5*sec+2*tick, two)
		b.start(4*sec, token)
	}},

	{"P11_NoSlowStart", func(b *bench) {
		for i, l := range []throttle.Limit{
			throttle.CalendarWindow(40, throttle.Day, nil), throttle.CalendarWindow(40, throttle.Month, nil),
		} {
			c := charge(fmt.Sprint("long ", i), l)
			b.pause(c, 10*sec)
			b.start(10*sec, c)
			b.starts(39, 10250*ms, c)
		}
		paced, seats := charge("paced", throttle.LeakyBucket(10, sec)), charge("seats", throttle.Concurrency(2))
		b.pause(paced, 10*sec)
		for i := range 9 {
			b.start(10*sec+time.Duration(i)*100*ms, paced)
		}
		b.pause(seats, 10*sec)
		b.at(10 * sec)
		b.holds(seats)
		b.holds(seats)
	}},

	{"P11_SlowStartOfTheLongestStep", func(b *bench) {
		sliding, fixed := charge("sliding", throttle.SlidingWindow(40, 20*sec)), charge("fixed", throttle.FixedWindow(40, 20*sec))
		b.pause(sliding, 40*sec)
		b.start(40*sec, sliding)
		b.starts(4, 40250*ms, sliding)
		b.start(60*sec, sliding)
		b.pause(fixed, 40*sec)
		b.start(40*sec, fixed)
		b.starts(4, 40250*ms, fixed)
		b.start(60*sec, fixed)
	}},

	{"P11_SlowStartIsOver", func(b *bench) {
		sliding, fixed := charge("sliding", throttle.PerSecond(40)), charge("fixed", throttle.FixedWindow(40, sec))
		bucket := charge("bucket", throttle.TokenBucket(10, sec, 20))
		for _, c := range []throttle.Charge{sliding, fixed, bucket} {
			b.pause(c, sec)
		}
		b.at(3 * sec)
		b.starts(20, 3*sec, bucket)
		b.starts(40, 3*sec, fixed)
		b.at(3*sec + 2*tick)
		b.starts(40, 3*sec+2*tick, sliding)
	}},

	{"P11_SlowStartOutlivesIdleness", func(b *bench) {
		sliding, fixed := charge("sliding", throttle.SlidingWindow(40, 20*sec)), charge("fixed", throttle.FixedWindow(40, 20*sec))
		b.pause(sliding, 40*sec)
		b.pause(fixed, 40*sec)
		b.at(63 * sec)
		for _, name := range []string{"sliding too", "fixed too"} {
			b.start(63*sec, charge(name, sliding.Limit)) // a store may tidy up now
		}
		b.starts(20, 63*sec, sliding)
		b.refused(80*sec, sliding)
		b.starts(20, 63*sec, fixed)
		b.refused(80*sec, fixed)
	}},

	{"P11_SlowStartEndsWithResume", func(b *bench) {
		for _, l := range []throttle.Limit{throttle.PerSecond(40), throttle.FixedWindow(40, sec), throttle.TokenBucket(40, sec, 40)} {
			begin, c := b.now(), charge(sentence(throttle.Charge{Limit: l}), l)
			b.pause(c, 10*sec)
			b.at(begin + 3*sec)
			b.resume(c)
			b.starts(40, begin+3*sec, c)
			b.at(begin + 8*sec)
			b.pause(c, 2*sec)
			b.at(begin + 10*sec)
			b.start(begin+10*sec, c)
			b.resume(c)
			b.starts(39, begin+10*sec, c)
			b.at(begin + 20*sec)
		}
	}},

	{"P11_SlowStartAfterTheLatestEnd", func(b *bench) {
		forty := charge("forty", throttle.PerSecond(40))
		b.pause(forty, 2*sec)
		b.pause(forty, 10*sec)
		b.pause(forty, sec)
		b.start(10*sec, forty)
		b.starts(4, 10250*ms, forty)
		b.starts(16, 11*sec+tick, forty)
		b.at(11500 * ms)
		b.starts(4, 11500*ms, forty)
		b.pause(forty, 2500*ms) // again
		b.start(14*sec, forty)
		b.starts(4, 14250*ms, forty)
		b.starts(16, 15*sec+tick, forty)
	}},

	{"P11_NoPenaltyNoSlowStart", func(b *bench) {
		forty := charge("forty", throttle.PerSecond(40))
		b.pause(forty, 0)
		b.starts(40, 0, forty)
		b.at(5 * sec)
		b.pause(forty, sec)
		b.at(30 * sec)
		b.pause(forty, 0)
		b.pause(forty, -sec)
		b.starts(40, 30*sec, forty)
	}},
}
