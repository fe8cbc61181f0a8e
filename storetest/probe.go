package storetest

import (
	"time"

	"github.com/fleetthrottle/throttle"
)

// daily is a limit that has a probe and no slow start.
var daily = throttle.CalendarWindow(40, throttle.Day, nil)

// probeChecks are about the first start after a penalty: for a quarter of a second
// nobody follows it, because its answer may be another penalty.
var probeChecks = []check{
	{"P11_ProbeGoesFirst", func(b *bench) {
		for _, l := range []throttle.Limit{
			throttle.PerSecond(40), throttle.SlidingWindow(10_000, 20*sec), throttle.PerHour(100_000),
			throttle.FixedWindow(40, sec), throttle.FixedWindow(100_000, time.Hour),
			throttle.CalendarWindow(40, throttle.Day, nil), throttle.CalendarWindow(40, throttle.Month, nil),
			throttle.TokenBucket(40, sec, 40), throttle.TokenBucket(10_000, sec, 10_000),
		} {
			begin, c := b.now(), charge(sentence(throttle.Charge{Limit: l}), l)
			b.pause(c, 10*sec)
			b.start(begin+10*sec, c)
			b.isHeld(b.refused(begin+10250*ms, c), 0, true)
			b.starts(2, begin+10250*ms, c)
			b.at(begin + 10*sec)
			b.isHeld(b.refused(begin+10250*ms, c), 0, false)
			b.at(begin + 10250*ms - tick)
			b.refused(begin+10250*ms, c)
			b.at(begin + 10250*ms)
			b.start(begin+10250*ms, c)
		}
	}},

	// Later callers are alone for the rest of the time.
	{"P11_ProbeComesLater", func(b *bench) {
		late, never := charge("late", throttle.PerSecond(40)), charge("never", daily)
		b.pause(late, 10*sec)
		b.pause(never, 10*sec)
		b.at(10100 * ms)
		b.start(10100*ms, late)
		b.start(10250*ms, late)
		b.at(10250 * ms)
		b.starts(40, 10250*ms, never)
	}},

	{"P11_ProbeOfAnyCost", func(b *bench) {
		hour, forty := charge("day", daily), charge("forty", throttle.PerSecond(40))
		b.pause(hour, sec)
		b.start(sec, costing(hour, 30))
		b.start(1250*ms, leaving(hour, 9)) // a reserve neither helps nor hurts
		b.pause(forty, 3*sec)
		b.start(4*sec+tick, costing(forty, 6)) // that will not be the first
		b.start(3*sec, costing(forty, 4))
		b.start(3250*ms, forty)
	}},

	// A probe counts for as long as it is alone, however short the window.
	{"P11_ProbeOutlivesItsWindow", func(b *bench) {
		for _, l := range []throttle.Limit{
			throttle.SlidingWindow(9, 10*ms), throttle.FixedWindow(9, 10*ms), throttle.TokenBucket(9, 10*ms, 9),
		} {
			begin, alone := b.now(), charge("alone "+b.now().String(), l)
			followed, other := charge("followed "+begin.String(), l), charge("other "+begin.String(), l)
			for _, c := range []throttle.Charge{alone, followed} {
				b.start(begin, c)
				b.pause(c, 5*ms)
			}
			k, g := b.granted(begin+5*ms, alone)
			b.start(begin+5*ms, followed)
			b.start(begin+255*ms, followed)
			b.at(begin + 200*ms)
			b.start(begin+200*ms, other) // a store may tidy up now
			b.refused(begin+255*ms, alone)
			b.store.Cancel(&k, g)
			b.start(begin+200*ms, alone)
			b.starts(9, begin+255*ms, alone)
			b.starts(8, begin+255*ms, followed)
		}
	}},

	{"P11_ProbeGivenBack", func(b *bench) {
		hour := charge("day", daily)
		b.pause(hour, 10*sec)
		k, g := b.granted(10*sec, hour)
		b.starts(2, 10250*ms, hour)
		b.store.Cancel(&k, g)
		k, g = b.granted(10*sec, hour)
		b.at(10100 * ms)
		b.refused(10250*ms, hour)
		b.store.Cancel(&k, g)
		b.start(10100*ms, hour)
		b.refused(10250*ms, hour)
	}},

	// Starts of which it was not known that they come after a penalty.
	{"P11_ProbeWasBookedBefore", func(b *bench) {
		for at, next := range map[time.Duration]time.Duration{
			10*sec - tick: 10 * sec, 10 * sec: 10250 * ms, 10250*ms - tick: 10250 * ms, 10250 * ms: 10 * sec,
		} {
			c := charge(at.String(), daily)
			b.later(at, c)
			b.pause(c, 10*sec)
			b.start(next, c)
			b.start(10250*ms, c)
		}
	}},

	{"P11_ProbeWithASpread", func(b *bench) {
		before, after := charge("before", daily), charge("after", daily)
		b.spread(300*ms, 0, before)
		b.pause(before, 300*ms) // it may be used at that moment
		b.start(550*ms, before)
		b.spread(300*ms, 0, after)
		b.pause(after, 300*ms+tick)
		b.spread(sec, 300*ms+tick, after)
		b.start(550*ms+tick, after)
	}},

	{"P11_ProbeAfterTheLatestEnd", func(b *bench) {
		hour := charge("day", daily)
		b.pause(hour, 10*sec)
		b.pause(hour, sec)
		b.start(10*sec, hour)
		b.starts(2, 10250*ms, hour)
		b.at(10100 * ms)
		b.pause(hour, 5*sec) // so said the upstream
		b.start(15100*ms, hour)
		b.start(15350*ms, hour)
	}},

	{"P11_ProbeOfSeveralBudgets", func(b *bench) {
		a, c := charge("a", daily), charge("c", daily)
		b.pause(a, 10*sec)
		b.pause(c, 10200*ms)
		b.isHeld(b.start(10200*ms, a, c), 1, true)
		b.isHeld(b.start(10450*ms, a, c), 1, true)
		b.start(10250*ms, a)
	}},

	{"P11_ProbeOfAShadow", func(b *bench) {
		dark := shadow(charge("dark", daily))
		b.pause(dark, 10*sec)
		b.at(10 * sec)
		b.over(10*sec, 0, dark)
		b.over(10*sec, 250*ms, dark)
		b.at(10250 * ms)
		b.over(10250*ms, 0, dark)
	}},

	{"P11_ProbeOfOthers", func(b *bench) {
		forty := charge("forty", throttle.FixedWindow(40, sec))
		b.pause(forty, 10*sec)
		b.at(10100 * ms)
		b.states(forty, 38, 900*ms) // they began at 10 s as well
		b.start(10250*ms, forty)
	}},

	{"P11_ProbeIsSeenByStatus", func(b *bench) {
		hour := charge("day", daily)
		b.pause(hour, 10*sec)
		b.status(hour, throttle.Status{Wait: 10 * sec, Paused: 10 * sec})
		b.start(10*sec, hour)
		b.status(hour, throttle.Status{Booked: 1, Waiting: 1, Wait: 10250 * ms, Paused: 10 * sec})
		b.at(10100 * ms)
		b.status(hour, throttle.Status{Used: 1, Wait: 150 * ms})
	}},

	{"P11_NoProbe", func(b *bench) {
		paced, seats := charge("paced", throttle.LeakyBucket(40, sec)), charge("seats", throttle.Concurrency(2))
		b.pause(paced, sec)
		b.start(sec, paced)
		b.start(1025*ms, paced)
		b.pause(seats, sec)
		hour, day := charge("hour", daily), charge("day", throttle.FixedWindow(40, 24*time.Hour))
		b.pause(hour, time.Minute)
		b.at(sec)
		b.holds(seats)
		b.holds(seats)
		b.resume(hour)
		b.starts(2, sec, hour)
		b.pause(day, 0)
		b.starts(2, sec, day)
	}},
}
