package storetest

import (
	"slices"
	"time"

	"github.com/fleetthrottle/throttle"
)

// lineStartChecks are about the lines of waiters for a start that is beyond the
// horizon.
func lineStartChecks() []check {
	return slices.Concat(waitChecks, waitKindChecks(), waitOrderChecks, waitBudgetChecks, waitChangeChecks, waitLeaveChecks, unlimitedLineChecks)
}

// waitChecks are about which callers get a place in line.
var waitChecks = []check{
	{"Store_HorizonBooksWhatIsNear", func(b *bench) {
		ten := charge("ten", throttle.LeakyBucket(10, sec))
		for i := range 8 {
			b.isBookedAt(b.lineUp(1, ten)[0], time.Duration(i)*100*ms)
		}
		for i := range 8 {
			b.isInLine(b.lineUp(1, ten)[0], 0, time.Duration(8+i)*100*ms)
		}
	}},

	{"Store_HorizonOfExactlyTheWait", func(b *bench) {
		ten := charge("ten", throttle.LeakyBucket(1, sec))
		b.start(0, ten)
		k := throttle.Booking{Charges: []throttle.Charge{ten}, MaxWait: -1, Horizon: sec - tick}
		_, g := b.book(k)
		if g.OK || g.Ready == nil {
			b.errorf("a start beyond the horizon is booked, or refused: %+v", g)
		}
		b.store.Cancel(&k, g)
		k.Horizon = sec
		_, g = b.book(k)
		b.isStart(g, sec)
	}},

	// A start that is not wanted earlier is booked, however late.
	{"Store_HorizonCountsFromNotBefore", func(b *bench) {
		one := charge("one", throttle.PerSecond(1))
		v := b.comes(throttle.Booking{Charges: []throttle.Charge{one}, MaxWait: -1, NotBefore: 10 * sec})
		b.isBookedAt(v, 10*sec)
		v = b.comes(throttle.Booking{Charges: []throttle.Charge{one}, MaxWait: -1, NotBefore: 10*sec + 500*ms})
		b.isBookedAt(v, 11*sec+tick)
	}},

	{"Store_HorizonAndMaxWait", func(b *bench) {
		ten := charge("ten", throttle.LeakyBucket(10, sec))
		first := b.lineUp(30, ten)
		wait := 3 * sec
		for _, most := range []time.Duration{0, tick, sec, 2 * sec} {
			v := b.comes(throttle.Booking{Charges: []throttle.Charge{ten}, MaxWait: most})
			b.isTurnedAway(v, wait)
			b.isHeld(v.first, 0, false)
		}
		v := b.comes(throttle.Booking{Charges: []throttle.Charge{ten}, MaxWait: 4 * sec})
		b.isInLine(v, 0, wait)
		b.beginEach(append(first, v), 0, 100*ms)
	}},

	// A caller that does not wait is not refused because others stand in line elsewhere.
	{"Store_HorizonAndNoMaxWait", func(b *bench) {
		full, free := charge("full", throttle.LeakyBucket(1, sec)), charge("free", throttle.LeakyBucket(1, sec))
		b.lineUp(10, full)
		b.isBookedAt(b.comes(throttle.Booking{Charges: []throttle.Charge{free}}), 0)
		b.isTurnedAway(b.comes(throttle.Booking{Charges: []throttle.Charge{free, full}}), 10*sec)
	}},

	// Without a horizon every start is booked at once.
	{"Store_NoHorizonNoLine", func(b *bench) {
		ten := charge("ten", throttle.LeakyBucket(10, sec))
		line := b.lineUp(20, ten)
		_, g := b.book(throttle.Booking{Charges: []throttle.Charge{ten}, MaxWait: -1})
		b.isStart(g, 800*ms)
		b.allOver(10*sec, line...)
		b.inOrder(line...)
	}},

	{"Store_StatusCountsTheLine", func(b *bench) {
		ten, tokens := charge("ten", throttle.SlidingWindow(10, sec)), charge("tokens", throttle.TokenBucket(10, sec, 10))
		for i, c := range []throttle.Charge{ten, tokens} {
			line := b.lineUp(40, c)
			costly := b.lineUp(1, costing(c, 7))
			b.hasWaiting(c, 37)
			b.hasBooked(c, []int{0, 7}[i]) // within the horizon
			for _, v := range slices.Concat(line[20:25], costly) {
				v.leaves()
			}
			b.hasWaiting(c, 25)
			b.hasBooked(c, []int{0, 7}[i])
			b.allOver(b.now()+10*sec, line...)
			b.hasWaiting(c, 0)
		}
	}},

	{"Store_StatusWaitsBehindTheLine", func(b *bench) {
		ten := charge("ten", throttle.LeakyBucket(10, sec))
		b.lineUp(50, ten)
		st, err := b.store.Status(b.Context(), ten)
		if err != nil || !about(st.Wait, 5*sec) {
			b.errorf("50 come at 10/s; a newcomer would wait for %v, %v; want about 5s", st.Wait, err)
		}
	}},
}

// hasWaiting compares how much waits for a budget.
func (b *bench) hasWaiting(c throttle.Charge, want int) {
	b.Helper()
	if st, err := b.store.Status(b.Context(), c); err != nil || st.Waiting != want {
		b.errorf("status at %v: %d wait, %v; want %d", b.now(), st.Waiting, err, want)
	}
}

// hasBooked compares how much of a budget is booked for later.
func (b *bench) hasBooked(c throttle.Charge, want int) {
	b.Helper()
	if st, err := b.store.Status(b.Context(), c); err != nil || st.Booked != want {
		b.errorf("status at %v: %d booked, %v; want %d", b.now(), st.Booked, err, want)
	}
}

// waitKindChecks: through the line all begin as if each had been booked when it came.
func waitKindChecks() []check {
	paced := charge("paced", throttle.PerSecond(20))
	paced.Pace = 47500 * tick
	var all []check
	for _, c := range []throttle.Charge{
		charge("Sliding", throttle.PerSecond(20)), paced, late(charge("SlidingLate", throttle.PerSecond(20)), 100*ms),
		charge("Fixed", throttle.FixedWindow(20, sec)), late(charge("FixedLate", throttle.FixedWindow(20, sec)), 100*ms),
		charge("Leaky", throttle.LeakyBucket(10, sec)), late(charge("LeakyLate", throttle.LeakyBucket(10, sec)), 100*ms),
		charge("Bucket", throttle.TokenBucket(20, sec, 5)), late(charge("BucketLate", throttle.TokenBucket(20, sec, 20)), 100*ms),
		charge("Calendar", throttle.CalendarWindow(20, throttle.Day, nil)),
		charge("Slow", throttle.SlidingWindow(20, 20*sec)),
	} {
		all = append(all, check{"P5_LineOf" + c.Budget.Policy, func(b *bench) {
			visits := repeated(c, 65)
			var line []*visitor
			want := b.fair(visits...)
			for _, c := range visits {
				line = append(line, b.lineUp(1, c)...)
			}
			b.begin(line, want...)
		}}, check{"P5_LineOfCosts" + c.Budget.Policy, func(b *bench) {
			c := c
			c.Pace = 0
			var visits []throttle.Charge
			for i := range 40 {
				visits = append(visits, costing(c, 1+i*i%5))
			}
			var line []*visitor
			want := b.fair(visits...)
			for _, c := range visits {
				line = append(line, b.lineUp(1, c)...)
			}
			b.begin(line, want...)
		}})
	}
	return all
}
