package storetest

import (
	"time"

	"github.com/fleetthrottle/throttle"
)

// statusChecks are about the description of a budget.
var statusChecks = []check{
	{"Store_StatusOfNothing", func(b *bench) {
		b.status(charge("a", throttle.PerSecond(1)), throttle.Status{})
		b.status(charge("b", throttle.FixedWindow(1, sec)), throttle.Status{})
		b.status(charge("c", throttle.LeakyBucket(1, sec)), throttle.Status{})
	}},

	{"Store_StatusSliding", func(b *bench) {
		ten := charge("ten", throttle.PerSecond(10))
		b.start(0, costing(ten, 7))
		b.status(ten, throttle.Status{Used: 7})
		b.at(500 * ms)
		b.start(500*ms, costing(ten, 3))
		b.start(sec+tick, costing(ten, 4))
		b.status(ten, throttle.Status{Used: 10, Booked: 4, Waiting: 4, Wait: 500*ms + tick})
		b.at(sec)
		b.status(ten, throttle.Status{Used: 10, Booked: 4, Waiting: 4, Wait: tick})
		b.at(sec + tick)
		b.status(ten, throttle.Status{Used: 7})
		b.at(10 * sec)
		b.status(ten, throttle.Status{})
	}},

	{"Store_StatusAligned", func(b *bench) {
		two := charge("two", throttle.FixedWindow(2, sec))
		b.at(600 * ms)
		b.starts(2, 600*ms, two)
		b.start(sec, two)
		b.status(two, throttle.Status{Used: 2, Booked: 1, Waiting: 1, Wait: 400 * ms})
		b.at(sec)
		b.status(two, throttle.Status{Used: 1})
		b.at(2 * sec)
		b.status(two, throttle.Status{})
	}},

	{"Store_StatusOfABucket", func(b *bench) {
		three := charge("three", throttle.TokenBucket(1, sec, 3))
		b.status(three, throttle.Status{})
		b.starts(3, 0, three)
		b.start(sec, three)
		b.status(three, throttle.Status{Used: 3, Booked: 1, Waiting: 1, Wait: 2 * sec})
		b.at(1500 * ms)
		b.status(three, throttle.Status{Used: 4, Wait: 500 * ms})
		b.at(3 * sec)
		b.status(three, throttle.Status{Used: 1}) // it takes three seconds to fill the bucket
		b.at(4 * sec)
		b.status(three, throttle.Status{})
	}},

	// A start has come though it may still be used a little later, and though others that share
	// its entry are to come.
	{"Store_StatusOfALongWindow", func(b *bench) {
		hour := charge("hour", throttle.PerHour(2000))
		for i := range 105 {
			b.at(time.Duration(i) * 100 * ms)
			_, g := b.book(throttle.Booking{Charges: []throttle.Charge{hour}, MaxWait: -1, Horizon: horizon, Spread: ms})
			b.isStart(g, b.now())
			b.status(hour, throttle.Status{Used: i + 1})
		}
		b.at(2 * time.Hour)
		b.status(hour, throttle.Status{})
	}},

	// Each of 8 callers comes again when its call is over.
	{"Store_StatusOfCallers", func(b *bench) {
		hour := charge("hour", throttle.PerHour(2000))
		for i := range 40 {
			for _, v := range b.lineUp(8, hour) {
				b.isBookedAt(v, b.now())
			}
			b.status(hour, throttle.Status{Used: 8 * (i + 1)})
			b.at(b.now() + 250*ms)
		}
	}},

	{"Store_StatusOfStartsToCome", func(b *bench) {
		hour := charge("hour", throttle.PerHour(2000))
		began, booked := 0, map[time.Duration]int{}
		come := func(at time.Duration, cost int) {
			b.book(throttle.Booking{Charges: []throttle.Charge{costing(hour, cost)}, MaxWait: -1, NotBefore: at - b.now(), Spread: ms})
			booked[at] = cost
		}
		come(0, 3)
		come(sec, 4)
		come(500*ms, 2)
		come(2*time.Minute, 5)
		come(time.Minute, 6)
		come(2*time.Minute+sec, 7)
		for _, at := range []time.Duration{0, 500 * ms, sec, time.Minute, 2 * time.Minute, 2*time.Minute + sec} {
			b.at(at)
			began += booked[at]
			b.splits(hour, 27, began, at+2*time.Hour/128, booked)
		}
		b.at(3 * time.Minute)
		b.status(hour, throttle.Status{Used: 27})
	}},

	{"Store_StatusOfABlock", func(b *bench) {
		one := charge("one", throttle.LeakyBucket(1, sec))
		for _, spread := range []time.Duration{0, ms} {
			begin, each := b.now(), sec+spread
			for range 4 {
				b.book(throttle.Booking{Charges: []throttle.Charge{one}, MaxWait: -1, Spread: spread})
			}
			for i := range 4 {
				for _, d := range []time.Duration{0, tick, 500 * ms} {
					b.at(begin + time.Duration(i)*each + d)
					b.status(one, throttle.Status{Used: 1, Booked: 3 - i, Waiting: 3 - i, Wait: begin + 4*each - b.now()})
				}
			}
			b.at(begin + 4*each)
			b.status(one, throttle.Status{})
		}
	}},

	{"P11_StatusPaused", func(b *bench) {
		one := charge("one", throttle.PerSecond(1))
		b.start(0, one)
		b.pause(one, 10*sec)
		b.status(one, throttle.Status{Used: 1, Wait: 10 * sec, Paused: 10 * sec})
		b.at(4 * sec)
		b.status(one, throttle.Status{Wait: 6 * sec, Paused: 6 * sec})
		b.at(10 * sec)
		b.status(one, throttle.Status{})
	}},

	{"Store_StatusChangesNothing", func(b *bench) {
		one := charge("one", throttle.PerSecond(1))
		for range 5 {
			b.status(one, throttle.Status{})
		}
		b.start(0, one)
		for range 5 {
			b.status(one, throttle.Status{Used: 1, Wait: sec + tick})
		}
		b.start(sec+tick, one)
	}},
}

// splits checks that the costs of a row are in Used once they have begun, and that Used says
// no more than what the row has before an end.
func (b *bench) splits(c throttle.Charge, all, began int, end time.Duration, booked map[time.Duration]int) {
	b.Helper()
	most := 0
	for at, cost := range booked {
		if at < end {
			most += cost
		}
	}
	st, err := b.store.Status(b.Context(), c)
	if err != nil || st.Used < began || st.Used > most || st.Used+st.Booked != all || st.Waiting != st.Booked {
		b.errorf("status at %v: %+v, %v; want %d to %d used, the rest of %d booked", b.now(), st, err, began, most, all)
	}
}

// shadowChecks are about charges that count but never hold.
var shadowChecks = []check{
	{"Store_ShadowNeverHolds", func(b *bench) {
		dark := shadow(charge("dark", throttle.PerSecond(1)))
		b.over(0, 0, dark)
		b.over(0, sec+tick, dark)
		b.over(0, sec+tick, dark)
		b.at(400 * ms)
		b.over(400*ms, 600*ms+tick, dark)
		b.at(1400*ms + tick)
		b.over(1400*ms+tick, 0, dark)
	}},

	{"Store_ShadowCountsAtTheStart", func(b *bench) {
		real, dark := charge("real", throttle.PerSecond(1)), charge("dark", throttle.SlidingWindow(2, 5*sec))
		b.over(0, 0, real, shadow(dark))
		b.over(sec+tick, 0, real, shadow(dark))
		b.over(2*sec+2*tick, 3*sec-tick, real, shadow(dark))
		b.status(dark, throttle.Status{Used: 1, Booked: 2, Waiting: 2, Wait: 6*sec + 2*tick})
		b.start(6*sec+2*tick, dark) // for a charge that is not shadow the others count
	}},

	{"Store_ShadowDoesNotRefuse", func(b *bench) {
		real, dark := charge("real", throttle.PerSecond(1)), charge("dark", throttle.PerSecond(1))
		b.pause(dark, 10*sec)
		_, g := b.book(throttle.Booking{Charges: []throttle.Charge{shadow(dark), real}})
		b.isStart(g, 0)
		b.isHeld(g, -1, false)
		g = b.refused(sec+tick, shadow(dark), real)
		b.isHeld(g, 1, false)
		b.status(dark, throttle.Status{Used: 1, Wait: 10 * sec, Paused: 10 * sec})
	}},

	{"P7_ShadowLeavesTheOthers", func(b *bench) {
		dark := shadow(charge("dark", throttle.LeakyBucket(10, sec)))
		b.over(0, 0, dark)
		k, g := b.book(throttle.Booking{Charges: []throttle.Charge{costing(dark, 3)}})
		b.store.Cancel(&k, g)
		b.overAtLeast(100*ms, dark)
	}},

	{"P7_ShadowIsGivenBack", func(b *bench) {
		dark := charge("dark", throttle.PerSecond(1))
		k, g := b.book(throttle.Booking{Charges: []throttle.Charge{shadow(dark)}})
		b.store.Cancel(&k, g)
		b.status(dark, throttle.Status{})
		b.over(0, 0, shadow(dark))
	}},
}

// overOf is how much later the start would have been if the i-th charge counted.
func overOf(g throttle.Grant, i int) time.Duration {
	if g.Over == nil {
		return 0
	}
	return g.Over[i]
}

// overAtLeast books at once and checks that the Over of the charge is no less.
func (b *bench) overAtLeast(least time.Duration, c throttle.Charge) {
	b.Helper()
	_, g := b.book(throttle.Booking{Charges: []throttle.Charge{c}})
	if got := overOf(g, 0); got < least {
		b.errorf("Over is %v, want at least %v", got, least)
	}
}

// over books at once and compares the start and the Over of the last charge.
func (b *bench) over(start, over time.Duration, charges ...throttle.Charge) {
	b.Helper()
	_, g := b.book(throttle.Booking{Charges: charges, MaxWait: -1})
	b.isStart(g, start)
	if got := overOf(g, len(charges)-1); got != over {
		b.errorf("booked at %v: Over is %v, want %v", b.now(), got, over)
	}
}
