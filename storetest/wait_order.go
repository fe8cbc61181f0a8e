package storetest

import (
	"slices"
	"testing/synctest"
	"time"

	"github.com/fleetthrottle/throttle"
)

// waitOrderChecks are about the order of waiters.
var waitOrderChecks = []check{
	// While some of a pace wait there is room, and the newcomer must not take it.
	{"P5_LineNewcomersStayBehind", func(b *bench) {
		c := charge("paced", throttle.PerSecond(20))
		c.Pace = 47500 * tick
		line := b.lineUp(50, c)
		for _, at := range []time.Duration{999 * ms, sec + tick, 1010 * ms, 1500 * ms, 1990 * ms, 2001 * ms, 2100 * ms} {
			b.at(at)
			line = append(line, b.lineUp(1, c)...)
		}
		b.allOver(10*sec, line...)
		b.inOrder(line...)
	}},

	// The same when what began has been settled meanwhile.
	{"P5_LineNewcomersStayBehindAfterSettle", func(b *bench) {
		c := charge("paced", throttle.PerSecond(20))
		c.Pace = 47500 * tick
		line := b.lineUp(32, c)
		b.at(sec + 100*ms)
		synctest.Wait()
		line[20].settles(1)
		line = append(line, b.lineUp(1, c)...)
		b.allOver(10*sec, line...)
		b.inOrder(line...)
	}},

	// Newcomers at a load above the limit.
	{"P5_LineUnderLoad", func(b *bench) {
		for _, c := range []throttle.Charge{
			charge("sliding", throttle.PerSecond(20)), charge("fixed", throttle.FixedWindow(20, sec)),
			charge("leaky", throttle.LeakyBucket(20, sec)), charge("bucket", throttle.TokenBucket(20, sec, 10)),
		} {
			if c.Limit.Kind() == throttle.KindSlidingWindow {
				c.Pace = 47500 * tick
			}
			begin := b.now()
			var line []*visitor
			for range 100 {
				line = append(line, b.lineUp(1, c)...)
				b.notIdle(c, line...)
				b.at(b.now() + 37*ms)
			}
			b.allOver(begin+10*sec, line...)
			b.inOrder(line...)
			b.at(b.now() + 2*sec)
		}
	}},

	{"P5_LineByPriority", func(b *bench) {
		ten := charge("ten", throttle.LeakyBucket(10, sec))
		booked := b.lineUp(8, ten)
		low := b.lineUpAs(throttle.Low, 5, ten)
		normal := b.lineUp(5, ten)
		high := b.lineUpAs(throttle.High, 5, ten)
		b.beginEach(slices.Concat(booked, high, normal, low), 0, 100*ms)
	}},

	{"P5_LineHighComesLater", func(b *bench) {
		ten := charge("ten", throttle.LeakyBucket(10, sec))
		low := b.lineUpAs(throttle.Low, 100, ten)
		b.at(2020 * ms)
		high := b.lineUpAs(throttle.High, 5, ten)
		b.beginEach(high, 2800*ms, 100*ms) // what is near is booked
		b.beginEach(slices.Concat(low[:28], high, low[28:]), 0, 100*ms)
	}},

	{"P5_LineLowHoldsNobody", func(b *bench) {
		four := charge("four", throttle.PerSecond(4))
		b.lineUp(3, four)
		low := b.lineUpAs(throttle.Low, 3, leaving(four, 1))
		b.isBookedAt(b.lineUp(1, four)[0], 0)
		high := b.lineUpAs(throttle.High, 5, four)
		b.begin(slices.Concat(high, low), sec+tick, sec+tick, sec+tick, sec+tick, 2*sec+2*tick,
			2*sec+2*tick, 2*sec+2*tick, 3*sec+3*tick)
	}},

	{"P5_LineLowHoldsNobodyOfABucket", func(b *bench) {
		c := charge("tokens", throttle.TokenBucket(10, sec, 10))
		b.lineUp(5, c)
		low := b.lineUpAs(throttle.Low, 20, leaving(c, 6)) // waits until 7 tokens are there
		high := b.lineUpAs(throttle.High, 5, c)
		for _, v := range high {
			b.isBookedAt(v, 0)
		}
		b.beginEach(low[:6], 200*ms, 100*ms) // what was near was booked before
		b.beginEach(low[6:], 1300*ms, 100*ms)
	}},

	{"P5_LineCostlyHead", func(b *bench) {
		four := charge("four", throttle.PerSecond(4))
		for i := range 4 {
			b.at(time.Duration(i) * 200 * ms)
			b.start(b.now(), four)
		}
		costly := b.lineUp(1, costing(four, 4))
		var cheap []*visitor
		for b.now() < 3*sec {
			cheap = append(cheap, b.lineUp(1, four)...)
			b.at(b.now() + 100*ms)
		}
		b.begin(costly, 1600*ms+tick)
		b.allOver(20*sec, cheap...)
		b.inOrder(slices.Concat(costly, cheap)...)
	}},

	// Waiters that lost their start go before all later ones, in their order.
	{"P5_LineReturns", func(b *bench) {
		ten := charge("ten", throttle.LeakyBucket(10, sec))
		var lost []ticket
		for range 5 {
			k, g := b.book(throttle.Booking{Charges: []throttle.Charge{ten}, MaxWait: -1, Horizon: horizon})
			lost = append(lost, ticket{k, g})
		}
		line := b.lineUp(40, ten) // up to 1100 ms are booked when the others come back
		b.at(420 * ms)
		back := make([]*visitor, len(lost))
		for _, i := range []int{2, 0, 1, 4, 3} {
			k := lost[i].booking
			k.Instead, k.Turn, k.Returns = lost[i].grant.Handle, lost[i].grant.Turn, true
			back[i] = b.comes(k)
		}
		b.beginEach(slices.Concat(line[:7], back, line[7:]), 500*ms, 100*ms)
	}},

	// A caller that had a place in line keeps its arrival when it wants another start.
	{"P5_LineReturnsWithATurn", func(b *bench) {
		ten := charge("ten", throttle.LeakyBucket(10, sec))
		line := b.lineUp(50, ten)
		b.at(2050 * ms)
		synctest.Wait()
		for i := 24; i >= 21; i-- { // whose starts are near
			line[i].returns()
		}
		b.beginEach(line, 0, 100*ms)
	}},
}
