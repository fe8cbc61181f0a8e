package storetest

import (
	"time"

	"github.com/fleetthrottle/throttle"
)

// pauseChecks are about penalties.
var pauseChecks = []check{
	{"P11_PauseClosesTheBudget", func(b *bench) {
		for _, l := range []throttle.Limit{
			throttle.PerSecond(9), throttle.FixedWindow(9, sec), throttle.SlidingWindow(500, sec),
		} {
			begin, c := b.now(), charge(sentence(throttle.Charge{Limit: l}), l)
			b.pause(c, 5*sec)
			b.refused(begin+5*sec, c)
			b.start(begin+5*sec, c)
			b.at(begin + 5*sec - tick)
			b.refused(begin+5250*ms, c) // one goes first: see probe.go
			b.at(begin + 5*sec)
			b.start(begin+5250*ms, c)
		}
	}},

	{"P11_PauseClosesABudgetThatFlows", func(b *bench) {
		for l, next := range map[throttle.Limit]time.Duration{
			throttle.LeakyBucket(10, sec): 5100 * ms, throttle.TokenBucket(10, sec, 10): 5250 * ms,
		} {
			begin, c := b.now(), charge(sentence(throttle.Charge{Limit: l}), l)
			b.pause(c, 5*sec)
			b.refused(begin+5*sec, c)
			b.start(begin+5*sec, c)
			b.at(begin + 5*sec - tick)
			b.refused(begin+next, c)
			b.start(begin+next, c)
		}
	}},

	{"P11_LatestEndCounts", func(b *bench) {
		c := charge("c", throttle.PerSecond(9))
		b.pause(c, 2*sec)
		b.pause(c, 10*sec)
		b.pause(c, sec)
		b.refused(10*sec, c)
		b.at(3 * sec)
		b.pause(c, 6*sec)
		b.refused(10*sec, c)
		b.pause(c, 8*sec)
		b.refused(11*sec, c)
		b.at(11 * sec)
		b.start(11*sec, c)
	}},

	{"P11_BookedStartsStay", func(b *bench) {
		one := charge("one", throttle.PerSecond(1))
		b.start(0, one)
		b.start(sec+tick, one)
		b.start(2*sec+2*tick, one)
		b.pause(one, 2500*ms)
		b.start(3*sec+3*tick, one)
		b.status(one, throttle.Status{Used: 1, Waiting: 3, Wait: 4*sec + 4*tick, Paused: 2500 * ms})
	}},

	{"P11_PauseOfOneClosesTheBooking", func(b *bench) {
		a, c := charge("a", throttle.PerSecond(1)), charge("c", throttle.PerSecond(1))
		b.pause(a, 3*sec)
		b.start(3*sec, c, a)
		b.start(0, c)
		b.start(4*sec+tick, a)
	}},

	{"P11_OtherBudgetsStayOpen", func(b *bench) {
		l := throttle.PerSecond(1)
		b.pause(charge("a", l), time.Hour)
		b.start(0, charge("b", l))
	}},

	{"P11_PauseOutlivesTheWindow", func(b *bench) {
		c := charge("c", throttle.SlidingWindow(1, 10*ms))
		b.start(0, c)
		b.pause(c, 24*time.Hour)
		b.at(23 * time.Hour)
		b.start(23*time.Hour, charge("other", c.Limit)) // a store may tidy up now
		b.refused(24*time.Hour, c)
	}},
}
