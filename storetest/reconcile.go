package storetest

import (
	"time"

	"github.com/fleetthrottle/throttle"
)

// reconcileChecks are about what an upstream says is left.
var reconcileChecks = []check{
	{"P11_ReconcileLowers", func(b *bench) {
		c := charge("c", throttle.SlidingWindow(100, time.Minute))
		b.start(0, costing(c, 10))
		b.at(20 * sec)
		b.states(c, 3, 40*sec)
		b.status(c, throttle.Status{Used: 97})
		b.start(20*sec, costing(c, 2))
		b.start(20*sec, c)
		b.refused(time.Minute, c)
		b.at(59 * sec)
		b.refused(time.Minute, c)
		b.start(time.Minute, costing(c, 87))
		b.start(time.Minute+tick, costing(c, 10)) // as much as had started before
	}},

	{"P11_ReconcileBeforeAnyStart", func(b *bench) {
		c := charge("c", throttle.SlidingWindow(100, time.Minute))
		b.states(c, 3, 40*sec)
		b.starts(3, 0, c)
		b.start(40*sec, costing(c, 97))
	}},

	{"P11_ReconcileNeverRaises", func(b *bench) {
		ten, bucket := charge("ten", throttle.PerSecond(10)), charge("bucket", throttle.TokenBucket(1, sec, 10))
		b.start(0, costing(ten, 8), costing(bucket, 8))
		for _, left := range []int{2, 3, 9, 10, 11, 1 << 62} {
			b.states(ten, left, sec)
			b.states(bucket, left, sec)
		}
		b.status(ten, throttle.Status{Used: 8})
		b.start(0, costing(ten, 2), costing(bucket, 2))
		b.refused(sec+tick, ten)
		b.refused(sec, bucket)
	}},

	{"P11_ReconcileAgain", func(b *bench) {
		c := charge("c", throttle.SlidingWindow(100, time.Minute))
		b.start(0, costing(c, 10))
		for i := range 100 {
			b.at(time.Duration(i) * 300 * ms)
			b.states(c, 40, (60*sec - b.now() + 999*ms).Truncate(sec)) // as headers have it
		}
		b.status(c, throttle.Status{Used: 60})
		b.start(b.now(), costing(c, 40))
		b.refused(time.Minute, c)
	}},

	{"P11_ReconcileInAnyOrder", func(b *bench) {
		c := charge("c", throttle.SlidingWindow(100, time.Minute))
		b.starts(10, 0, c)
		for _, left := range []int{25, 10, 5, 7, 20, 9} {
			b.states(c, left, 30*sec)
		}
		b.start(0, costing(c, 5))
		b.start(30*sec, costing(c, 85))
	}},

	{"P11_ReconcileKnowsItsOwn", func(b *bench) {
		for _, per := range []time.Duration{sec, time.Minute} {
			begin, c := b.now(), charge(per.String(), throttle.SlidingWindow(64, per))
			b.starts(64, begin, c)
			b.start(begin+per+tick, c)
			b.at(begin + 200*ms)
			for left := 63; left >= 0; left -= 3 {
				b.states(c, left, per-100*ms) // some of them arrived after the one that is answered
			}
			b.states(c, 0, per)
			b.status(c, throttle.Status{Used: 64, Booked: 1, Waiting: 1, Wait: per - 200*ms + tick})
			b.at(begin + per + tick)
			b.start(begin+per+tick, costing(c, 63))
		}
	}},

	{"P11_ReconcileNotWhatIsToCome", func(b *bench) {
		ten := charge("ten", throttle.SlidingWindow(10, 10*sec))
		b.start(0, costing(ten, 3))
		b.later(sec, costing(ten, 4))
		b.states(ten, 5, 8*sec) // and those that are to come are spent from it
		b.status(ten, throttle.Status{Used: 5, Booked: 4, Waiting: 4})
		b.start(0, ten)
		b.refused(8*sec, ten)
	}},

	{"P11_ReconcileUntilTheReset", func(b *bench) {
		c := charge("c", throttle.SlidingWindow(100, time.Minute))
		b.start(0, costing(c, 60))
		b.at(55 * sec)
		b.states(c, 30, 40*sec) // of a window that began after all of them
		b.start(60*sec+tick, costing(c, 30))
		b.refused(95*sec, c)
		b.start(95*sec, costing(c, 70))
	}},

	{"P11_ReconcileDoubtsTheReset", func(b *bench) {
		// A reset may be up to two seconds late, and so may be the begin.
		c := charge("c", throttle.SlidingWindow(100, time.Minute))
		d := charge("d", throttle.SlidingWindow(100, time.Minute))
		b.start(0, costing(c, 10), costing(d, 10))
		b.at(30 * sec)
		b.states(c, 85, 32*sec)
		b.status(c, throttle.Status{Used: 15})
		b.states(d, 85, 32*sec+tick)
		b.status(d, throttle.Status{Used: 25})
	}},

	{"P11_ReconcileNoLongerThanTheWindow", func(b *bench) {
		c := late(charge("c", throttle.PerSecond(10)), 50*ms)
		b.at(100 * ms)
		b.states(c, 1, time.Hour)
		b.start(100*ms, c)
		b.start(1150*ms+tick, costing(c, 9))
	}},

	{"P11_ReconcileNoLongerThanAPenalty", func(b *bench) {
		c := charge("c", throttle.SlidingWindow(10, 30*24*time.Hour))
		b.states(c, 0, 20*24*time.Hour)
		b.start(throttle.MaxPenalty, costing(c, 10))
	}},

	{"P11_ReconcileNothingLeft", func(b *bench) {
		c, d := charge("c", throttle.SlidingWindow(10, time.Minute)), charge("d", throttle.SlidingWindow(10, time.Minute))
		b.states(c, 0, 10*sec)
		b.states(d, -5, 10*sec)
		for _, c := range []throttle.Charge{c, d} {
			b.refused(10*sec, c)
			b.status(c, throttle.Status{Used: 10, Wait: 10 * sec}) // no penalty: nothing is slow afterwards
			b.start(10*sec, costing(c, 10))
		}
	}},

	{"P11_ReconcileWithoutAReset", func(b *bench) {
		c, window := charge("c", throttle.PerSecond(10)), charge("window", throttle.FixedWindow(10, sec))
		for _, reset := range []time.Duration{0, -1, -time.Hour, -1 << 63} {
			b.states(c, 1, reset)
			b.states(window, 1, reset)
		}
		b.start(0, costing(c, 10), costing(window, 10))
	}},

	{"P11_ReconcileOfOneBudget", func(b *bench) {
		a, c := charge("a", throttle.PerSecond(10)), charge("c", throttle.PerSecond(10))
		b.start(0, a, c)
		b.states(a, 2, sec)
		b.start(0, costing(c, 9))
		b.start(0, costing(a, 2))
		b.refused(sec, a)
	}},
}

// states tells the store what the upstream says.
func (b *bench) states(c throttle.Charge, left int, reset time.Duration) {
	b.Helper()
	if err := b.store.Reconcile(b.Context(), c, throttle.Quota{Left: left, Reset: reset}); err != nil {
		b.fatalf("Reconcile(%v, %d, %v) at %v: %v", c.Budget, left, reset, b.now(), err)
	}
}
