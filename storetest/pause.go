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
		b.status(one, throttle.Status{Used: 1, Booked: 3, Waiting: 3, Wait: 4*sec + 4*tick, Paused: 2500 * ms})
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

// resumeChecks are about penalties that are ended before their time.
var resumeChecks = []check{
	{"P11_ResumeOpensTheBudget", func(b *bench) {
		for _, l := range []throttle.Limit{
			throttle.PerSecond(2), throttle.FixedWindow(2, sec), throttle.TokenBucket(2, sec, 2), throttle.LeakyBucket(9, sec),
		} {
			c := charge(sentence(throttle.Charge{Limit: l}), l)
			b.pause(c, time.Hour)
			b.refused(b.now()+time.Hour, c)
			b.resume(c)
			b.status(c, throttle.Status{})
			b.start(b.now(), c)
			b.resume(c) // there is nothing to end
			b.at(b.now() + time.Minute)
		}
	}},

	{"P11_ResumeOpensWhatIsInFlight", func(b *bench) {
		two := charge("two", throttle.Concurrency(2))
		b.pause(two, time.Hour)
		b.refused(time.Hour, two)
		b.resume(two)
		b.status(two, throttle.Status{})
		b.holds(two)
	}},

	{"P11_ResumeOfOneBudgetOnly", func(b *bench) {
		a, c := charge("a", throttle.PerSecond(1)), charge("c", throttle.PerSecond(1))
		b.pause(a, time.Minute)
		b.pause(c, time.Hour)
		b.resume(c)
		b.start(0, c)
		b.refused(time.Minute, a)
	}},

	{"P11_ResumeThenPause", func(b *bench) {
		c := charge("c", throttle.PerSecond(1))
		b.pause(c, time.Hour)
		b.resume(c)
		b.pause(c, 2*sec) // what was ended does not count any more
		b.refused(2*sec, c)
	}},

	{"P11_ResumeLetsSleepersMoveUp", func(b *bench) {
		two := charge("two", throttle.PerSecond(2))
		b.pause(two, time.Hour)
		first, next := b.watch(b.ask(two)), b.watch(b.ask(two))
		b.at(10 * sec)
		b.confirms(first, true)
		b.resume(two)
		b.useless(first)
		b.useless(next)
		first, next = b.moves(first, 10*sec), b.moves(next, 10*sec)
		b.confirms(first, true)
		b.confirms(next, true)
		b.start(11*sec+tick, two)
	}},

	{"P11_ResumeBetweenBookAndWatch", func(b *bench) {
		one := charge("one", throttle.PerSecond(1))
		b.pause(one, time.Hour)
		k := b.ask(one)
		b.at(ms)
		b.resume(one)
		w := b.watch(k)
		b.useless(w)
		b.confirms(b.moves(w, ms), true)
	}},

	{"P11_ResumeOfANodeBudget", func(b *bench) {
		node, fleet := charge("node", throttle.PerSecond(1)), charge("fleet", throttle.PerSecond(1))
		node.Node = true
		b.pause(node, time.Minute)
		b.pause(fleet, time.Hour)
		w := b.watches(time.Hour, fleet, node)
		b.resume(fleet)
		b.useless(w)
		w = b.moves(w, time.Minute)
		b.resume(node)
		b.useless(w)
		b.moves(w, 0)
	}},

	{"P11_ResumeOfAnOpenBudget", func(b *bench) {
		one := charge("one", throttle.PerSecond(1))
		b.start(0, one)
		w := b.watches(sec+tick, one)
		b.resume(one)
		b.confirms(w, true)
		b.pause(one, 500*ms)
		b.at(600 * ms)
		b.resume(one) // it is over
		b.at(sec + tick)
		b.confirms(b.watch(w.ticket), true)
	}},
}
