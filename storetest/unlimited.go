package storetest

import (
	"slices"
	"testing/synctest"
	"time"

	"github.com/fleetthrottle/throttle"
)

// free is a charge of an unlimited budget.
func free(name string) throttle.Charge { return charge(name, throttle.Unlimited()) }

// unlimitedChecks are about budgets that only a penalty closes: see docs/unlimited.md.
var unlimitedChecks = []check{
	{"P3_UnlimitedHoldsNothing", func(b *bench) {
		row := free("row")
		b.starts(300, 0, row)
		b.start(0, costing(row, maxCost))
		b.start(0, costing(row, maxCost))
		b.start(0, leaving(costing(row, 7), 3))
		b.status(row, throttle.Status{})
		b.spread(300*ms, 0, row)
		b.at(sec)
		b.starts(3, sec, row)
		b.status(row, throttle.Status{})
	}},

	{"P1_UnlimitedBesideOthers", func(b *bench) {
		row, two := free("row"), charge("two", throttle.PerSecond(2))
		b.starts(2, 0, row, two)
		b.isHeld(b.start(sec+tick, row, two), 1, false)
		b.isHeld(b.refused(sec+tick, two, row), 0, false)
		b.start(0, row)
		b.status(row, throttle.Status{})
		b.status(two, throttle.Status{Used: 2, Booked: 1, Waiting: 1, Wait: sec + tick})
	}},

	{"P7_UnlimitedGivesBack", func(b *bench) {
		row, one := free("row"), charge("one", throttle.PerSecond(1))
		k, g := b.granted(0, row, one)
		b.store.Cancel(&k, g)
		k, g = b.granted(0, row, one)
		b.settle(k, g, 5, 0)
		b.start(0, one, row)
		b.start(sec+tick, row, one)
		b.states(row, 0, sec) // says nothing
		b.start(0, row)
	}},

	// What was closed without a number, and what was refused, has counted nothing: a limit that
	// follows gives back what is cancelled under it.
	{"P7_UnlimitedBecomesALimitThatGivesBack", func(b *bench) {
		row, ten, gate := free("row"), charge("row", throttle.LeakyBucket(10, sec)), charge("gate", throttle.PerSecond(1))
		b.pause(row, time.Minute)
		b.resume(row)
		b.start(0, gate)
		b.refused(sec+tick, charge("row", throttle.LeakyBucket(1, sec)), gate)
		b.start(0, ten)
		k, g := b.granted(100*ms, ten)
		b.store.Cancel(&k, g)
		b.start(100*ms, ten)
	}},

	{"P11_UnlimitedIsClosed", func(b *bench) {
		row, two := free("row"), charge("two", throttle.PerSecond(2))
		b.start(0, row)
		b.pause(row, 10*sec)
		b.isHeld(b.refused(10*sec, row), 0, true)
		b.isHeld(b.refused(10*sec, two, row), 1, true)
		b.status(row, throttle.Status{Wait: 10 * sec, Paused: 10 * sec})
		b.pause(row, sec) // the latest end counts
		b.at(4 * sec)
		b.status(row, throttle.Status{Wait: 6 * sec, Paused: 6 * sec})
		b.refused(10*sec, row)
		b.starts(2, 4*sec, two)
		b.at(10 * sec)
		b.start(10*sec, row)
		b.at(10250 * ms)
		b.starts(40, 10250*ms, row)
		b.status(row, throttle.Status{})
		b.pause(row, sec)
		b.refused(11250*ms, row)
	}},

	{"P11_UnlimitedHasAProbe", func(b *bench) {
		row := free("row")
		b.pause(row, 10*sec)
		k, g := b.granted(10*sec, costing(row, 1000))
		b.status(row, throttle.Status{Booked: 1, Waiting: 1, Wait: 10250 * ms, Paused: 10 * sec})
		b.starts(100, 10250*ms, row)
		b.store.Cancel(&k, g)
		b.start(10*sec, row)
		b.isHeld(b.start(10250*ms, row), 0, true)
		b.at(10250*ms - tick)
		b.isHeld(b.refused(10250*ms, row), 0, false)
		b.status(row, throttle.Status{Wait: tick})
		b.at(10250 * ms)
		b.start(10250*ms, row)

		late := free("late")
		b.pause(late, sec)
		b.at(11300 * ms)
		b.start(11300*ms, late)
		b.start(11500*ms, late)
	}},

	// What started while the budget was open nobody remembers, and nothing is slow.
	{"P11_UnlimitedRemembersNothing", func(b *bench) {
		row := free("row")
		b.later(10100*ms, row)
		b.starts(100, 0, row)
		b.pause(row, 10*sec)
		b.start(10*sec, row)
		b.starts(100, 10250*ms, row)
		b.at(10200 * ms)
		b.pause(row, sec) // a start that was to come behind the first end is in no row
		b.start(11200*ms, row)
		b.starts(2, 11450*ms, row)
	}},

	{"P11_UnlimitedIsResumed", func(b *bench) {
		row := free("row")
		b.pause(row, time.Hour)
		b.start(time.Hour, row)
		first, next := b.watch(b.ask(row)), b.watch(b.ask(row))
		b.at(10 * sec)
		b.confirms(first, true)
		b.resume(row)
		b.useless(first)
		b.useless(next)
		b.moves(first, 10*sec)
		b.moves(next, 10*sec)
		b.starts(3, 10*sec, row)
		b.status(row, throttle.Status{})
		b.pause(row, time.Hour-10*sec) // the start that was to go first is forgotten
		b.start(time.Hour, row)
		b.resume(row)
		b.resume(row)
		b.resume(free("never closed"))
		b.start(10*sec, free("never closed"))
	}},

	{"P11_UnlimitedTellsSleepers", func(b *bench) {
		row, one := free("row"), charge("one", throttle.PerSecond(1))
		b.start(0, row, one)
		w, far := b.watches(sec+tick, one, row), b.watches(2*sec+2*tick, one, row)
		b.at(500 * ms)
		b.start(500*ms, free("other"))
		b.pause(row, sec)
		b.useless(w)
		b.confirms(far, true)
		w = b.moves(w, 3*sec+3*tick)
		b.pause(row, time.Minute)
		b.useless(w)
		b.useless(far)
		w = b.moves(w, time.Minute+500*ms)
		b.at(sec)
		b.pause(free("other"), time.Minute)
		b.confirms(w, true)
	}},

	// A sleeper is told however long ago it came.
	{"P11_UnlimitedTellsALongSleeper", func(b *bench) {
		row, one := free("row"), charge("one", throttle.PerHour(1))
		b.start(0, row, one)
		w := b.watches(time.Hour+tick, row, one)
		b.at(10 * time.Minute)
		b.start(b.now(), charge("rest", throttle.PerSecond(1))) // a store may tidy up now
		b.start(b.now(), row)
		b.at(20 * time.Minute)
		b.pause(row, 50*time.Minute)
		b.useless(w)
		b.resume(row)
		b.moves(w, time.Hour+tick)
	}},

	{"P11_UnlimitedAsAShadow", func(b *bench) {
		dark := shadow(free("dark"))
		b.over(0, 0, dark)
		b.pause(dark, 10*sec)
		b.over(0, 10*sec, charge("real", throttle.PerSecond(1)), dark)
		b.at(10 * sec)
		b.over(10*sec, 0, dark)
		b.over(10*sec, 250*ms, dark)
	}},

	{"P11_UnlimitedOfANode", func(b *bench) {
		node, fleet := free("node"), charge("fleet", throttle.PerSecond(1))
		node.Node = true
		b.start(0, fleet, node)
		w := b.watches(sec+tick, fleet, node)
		b.pause(node, time.Minute)
		b.useless(w)
		w = b.moves(w, time.Minute)
		b.resume(node)
		b.useless(w)
		b.moves(w, sec+tick)
	}},

	{"P11_UnlimitedBecomesALimit", func(b *bench) {
		row, two := free("changes"), charge("changes", throttle.PerSecond(2))
		b.starts(9, 0, row)
		b.starts(2, 0, two) // those were not counted
		b.refused(sec+tick, two)
		b.start(0, row)
		b.pause(row, time.Minute)
		b.resume(row)
		b.refused(sec+tick, two) // those two still count
		b.start(0, row)
		b.pause(row, 10*sec)
		b.refused(10*sec, two)
		b.refused(10*sec, row)
		b.start(10*sec, row)
		b.refused(11*sec+tick, two) // it went first, and counts in the slow start
	}},
}

// unlimitedLineChecks are about waiters for the end of an unlimited budget's penalty.
var unlimitedLineChecks = []check{
	{"P11_UnlimitedLine", func(b *bench) {
		row := free("row")
		b.pause(row, 10*sec)
		line := b.lineUp(20, row)
		b.isInLine(line[0], 0, 10*sec)
		b.hasWaiting(row, 20)
		b.isTurnedAway(b.comes(throttle.Booking{Charges: []throttle.Charge{row}, MaxWait: 2 * sec}), 10*sec)
		b.oneGoesFirst(10*sec, line...)
		b.hasWaiting(row, 0)
	}},

	{"P11_UnlimitedLineResumed", func(b *bench) {
		row, ten := free("row"), charge("ten", throttle.PerSecond(100))
		b.pause(row, time.Hour)
		line := b.lineUp(20, row)
		line = append(line, b.lineUp(20, ten, row)...)
		b.at(5 * sec)
		b.resume(row)
		synctest.Wait()
		b.allOver(5*sec+2*sec, line...)
		for i, v := range line {
			if got := v.begun(); got < 5*sec || got > 5*sec+b.slack.Start {
				b.errorf("visitor %d begins at %v, resumed at 5s", i, got)
			}
		}
		b.hasWaiting(row, 0)
		b.start(b.now(), row)
	}},

	{"P11_UnlimitedLineLeavers", func(b *bench) {
		row := free("row")
		b.pause(row, 10*sec)
		line := b.lineUp(10, row)
		b.at(2 * sec)
		for _, v := range line[:9] {
			v.leaves()
		}
		synctest.Wait()
		b.hasWaiting(row, 1)
		b.begin(line[9:], 10*sec)
	}},

	{"P11_UnlimitedLineIsClosedForLonger", func(b *bench) {
		row, one := free("row"), charge("one", throttle.PerSecond(10))
		b.pause(row, 5*sec)
		line := b.lineUp(5, row, one)
		b.at(4 * sec)
		b.pause(row, 10*sec)
		b.oneGoesFirst(14*sec, line...)
	}},
}

// oneGoesFirst wants that one visitor begins then, the first one if the store keeps their
// order, and the others a quarter of a second later.
func (b *bench) oneGoesFirst(t time.Duration, visitors ...*visitor) {
	b.Helper()
	b.allOver(t+sec+b.slack.Start, visitors...)
	var starts []time.Duration
	for _, v := range visitors {
		starts = append(starts, v.begun())
	}
	if b.slack.Order > 0 {
		slices.Sort(starts)
	}
	for i, start := range starts {
		if i == 1 {
			t += probeTime
		}
		if start < t || start > t+b.slack.Start {
			b.errorf("visitor %d of %d begins at %v, want %v", i, len(visitors), start, t)
			return
		}
	}
}
