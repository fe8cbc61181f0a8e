package storetest

import (
	"time"

	"github.com/fleetthrottle/throttle"
)

// largeChecks are about limits and queues that a store of bounded memory may
// round: it may be later than the definition, but never above the limit, and
// only by one part in a hundred.
var largeChecks = []check{
	{"P1_LargeBurst", func(b *bench) {
		thousand := charge("thousand", throttle.PerSecond(1000))
		b.queue(5000, 0, thousand)
	}},

	{"P1_LargeLimitEvenlyFilled", func(b *bench) {
		thousand := charge("thousand", throttle.PerSecond(1000))
		b.queue(5000, 700*tick, thousand)
	}},

	{"P1_LongQueue", func(b *bench) {
		forty := charge("forty", throttle.PerSecond(40))
		b.queue(5000, ms, forty)
	}},

	{"P1_LongQueueAtOnce", func(b *bench) {
		forty := late(charge("forty", throttle.PerSecond(40)), 35*ms)
		b.queue(5000, 0, forty)
	}},

	{"P1_LargeBucket", func(b *bench) {
		thousand := late(charge("thousand", throttle.TokenBucket(1000, sec, 1000)), 35*ms)
		b.queue(5000, 0, thousand)
	}},

	{"P1_LongQueueForABucket", func(b *bench) {
		twenty := charge("twenty", throttle.TokenBucket(20, time.Minute, 20))
		b.queue(1000, ms, twenty)
	}},

	{"P3_SteadyDemand", func(b *bench) {
		c := late(charge("steady", throttle.PerSecond(400)), 35*ms)
		b.steady(20, 1700*tick, c)
	}},

	{"P3_SteadyDemandInBursts", func(b *bench) {
		c := charge("steady", throttle.SlidingWindow(150, 2*sec))
		b.steady(60, 100*tick, c)
	}},

	{"P3_SteadyDemandSmallLimit", func(b *bench) {
		c := charge("steady", throttle.PerSecond(20))
		b.steady(100, 37*ms, c)
	}},

	{"P7_CancelledWaitersInALongQueue", func(b *bench) {
		ten := charge("ten", throttle.PerSecond(10))
		b.starts(10, 0, ten)
		b.leave(1000, ms, ten)
		b.withinOneSpan(ten)
	}},

	{"P7_CancelledWaitersOfALargeLimit", func(b *bench) {
		c := charge("large", throttle.PerSecond(500))
		b.leave(2000, 100*tick, c)
		b.withinOneSpan(c)
	}},

	{"P1_LargeFixedWindow", func(b *bench) {
		c := charge("large", throttle.FixedWindow(10000, 20*sec))
		for i := range 3 {
			want := time.Duration(i) * 20 * sec
			b.starts(9, want, costing(c, 1000))
			b.starts(1000, want, c)
		}
		b.start(60*sec, c)
	}},
}

// queue lets waiters arrive in even steps, faster than the limit, and none
// leave. The rule must hold and the last start come at most one part in a
// hundred later than it could.
func (b *bench) queue(waiters int, step time.Duration, c throttle.Charge) {
	b.Helper()
	history := newLedger()
	var last time.Duration
	for i := range waiters {
		b.at(time.Duration(i) * step)
		k, g := b.book(throttle.Booking{Charges: []throttle.Charge{c}, MaxWait: -1})
		if !g.OK {
			b.fatalf("waiter %d with any MaxWait was refused", i)
		}
		start := b.now() + g.Wait
		history.add(k, b.zero.Add(start).UnixMicro())
		last = max(last, start)
	}
	if text := history.excess(c); text != "" {
		b.errorf("%s", text)
	}
	exact := lastOf(waiters, step, c)
	if last > exact+exact/100 {
		b.errorf("%d waiters at %s: the last starts at %v, want at most 1%% after %v", waiters, sentence(c), last, exact)
	}
}

// lastOf is when the last of so many waiters can start at the earliest.
func lastOf(waiters int, step time.Duration, c throttle.Charge) time.Duration {
	if c.Limit.Kind() == throttle.KindTokenBucket {
		return tickTimes(flowOf(c).after(int64(waiters)))
	}
	n := c.Limit.N()
	return time.Duration((waiters-1)/n)*tickTimes(span(c)) + time.Duration((waiters-1)%n)*step
}

// steady is one caller after another: each waits for its start and the next
// comes a moment later, often enough to fill every span.
func (b *bench) steady(spans int, pause time.Duration, c throttle.Charge) {
	b.Helper()
	history, used := newLedger(), 0
	end := time.Duration(spans) * tickTimes(span(c))
	for {
		k, g := b.book(throttle.Booking{Charges: []throttle.Charge{c}, MaxWait: -1})
		if !g.OK {
			b.fatalf("a caller with any MaxWait was refused")
		}
		if b.at(b.now() + g.Wait); b.now() >= end {
			break
		}
		history.add(k, time.Now().UnixMicro())
		used++
		time.Sleep(pause)
	}
	if text := history.excess(c); text != "" {
		b.errorf("%s", text)
	}
	if all := spans * c.Limit.N(); used*100 < all*99 {
		b.errorf("%d of %d starts used in %d spans of %s, want 99%%", used, all, spans, sentence(c))
	}
}

// tickTimes is a time given in microseconds.
func tickTimes(n int64) time.Duration { return time.Duration(n) * tick }

// leave lets waiters arrive in even steps, and then all of them go.
func (b *bench) leave(waiters int, step time.Duration, charges ...throttle.Charge) {
	b.Helper()
	bookings, grants := make([]throttle.Booking, waiters), make([]throttle.Grant, waiters)
	for i := range waiters {
		bookings[i], grants[i] = b.book(throttle.Booking{Charges: charges, MaxWait: -1})
		time.Sleep(step)
	}
	for i := range waiters {
		b.store.Cancel(&bookings[i], grants[i])
	}
}

// withinOneSpan checks that the next caller is no worse off than one interval.
func (b *bench) withinOneSpan(c throttle.Charge) {
	b.Helper()
	_, g := b.book(throttle.Booking{Charges: []throttle.Charge{c}, MaxWait: -1})
	if most := tickTimes(span(c)); !g.OK || g.Wait > most {
		b.errorf("after all waiters left: %+v, want a start within %v", g, most)
	}
}
