package storetest

import (
	"time"

	"github.com/fleetthrottle/throttle"
)

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
