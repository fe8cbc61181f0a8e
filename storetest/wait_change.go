package storetest

import (
	"slices"
	"testing/synctest"
	"time"

	"github.com/fleetthrottle/throttle"
)

// waitChangeChecks are about what changes while some stand in line.
var waitChangeChecks = []check{
	{"P11_LineAndPause", func(b *bench) {
		for _, c := range []throttle.Charge{
			charge("sliding", throttle.PerSecond(20)), charge("fixed", throttle.FixedWindow(20, sec)),
			charge("leaky", throttle.LeakyBucket(20, sec)), charge("bucket", throttle.TokenBucket(20, sec, 10)),
		} {
			begin := b.now()
			line := b.lineUp(80, c)
			b.at(begin + 1300*ms)
			b.pause(c, 3*sec)
			synctest.Wait()
			b.allOver(begin+20*sec, line...)
			b.inOrder(line...)
			b.nobodyIdle(c, begin+1300*ms, 3*sec, line...)
			b.at(begin + 30*sec)
		}
	}},

	{"P11_LineAndResume", func(b *bench) {
		c := charge("leaky", throttle.LeakyBucket(10, sec))
		line := b.lineUp(40, c)
		b.at(1050 * ms)
		b.pause(c, time.Minute)
		b.at(5 * sec)
		synctest.Wait()
		if slices.ContainsFunc(line[11:], (*visitor).began) {
			b.errorf("somebody began while the budget was closed")
		}
		b.resume(c)
		synctest.Wait()
		b.beginEach(line[11:], 5*sec, 100*ms)
	}},

	{"P11_LineOfAClosedBudget", func(b *bench) {
		c := charge("closed", throttle.LeakyBucket(10, sec))
		b.pause(c, 10*sec)
		line := b.lineUp(20, c)
		b.isInLine(line[0], 0, 10*sec)
		if !line[0].first.Paused {
			b.errorf("the place in line does not say that the budget is closed")
		}
		b.isTurnedAway(b.comes(throttle.Booking{Charges: []throttle.Charge{c}, MaxWait: 2 * sec}), 12*sec)
		b.beginEach(line, 10*sec, 100*ms)
	}},

	// A refund moves the line up at once.
	{"P7_LineAndRefund", func(b *bench) {
		c := charge("tokens", throttle.SlidingWindow(100, 10*sec))
		line := b.lineUp(8, costing(c, 50))
		b.at(300 * ms)
		line[0].settles(5)
		b.notIdle(c, line...)
		b.at(600 * ms)
		line[1].settles(5)
		b.notIdle(c, line...)
		b.at(sec)
		line[2].settles(5)
		b.at(1100 * ms)
		line[3].settles(5)
		b.begin(line[:5], 0, 0, 600*ms, sec, 1100*ms)
		b.allOver(50*sec, line...)
		b.inOrder(line...)
	}},

	// A debt moves it back.
	{"P1_LineAndDebt", func(b *bench) {
		c := charge("tokens", throttle.SlidingWindow(100, 10*sec))
		line := b.lineUp(12, costing(c, 25))
		b.at(sec)
		line[0].settles(75)
		b.begin(line[:8], 0, 0, 0, 0, 10*sec+tick, 10*sec+tick, 10*sec+tick, 10*sec+tick)
		b.begin(line[8:], slices.Repeat([]time.Duration{20*sec + 2*tick}, 4)...)
	}},

	// A limit is raised: all in line book again, in any order.
	{"P5_LineAndRaisedLimit", func(b *bench) {
		b.relimit(10, 20)
	}},
	{"P5_LineAndLoweredLimit", func(b *bench) {
		b.relimit(20, 10)
	}},

	// The line's budget is another one from now on.
	{"P5_LineChangesBudgets", func(b *bench) {
		old, other := charge("old", throttle.LeakyBucket(10, sec)), charge("new", throttle.LeakyBucket(10, sec))
		line := b.lineUp(40, old)
		there := b.lineUp(20, other)
		b.at(1030 * ms)
		for _, v := range line[30:] {
			v.changes(other)
		}
		b.allOver(20*sec, slices.Concat(line, there)...)
		b.inOrder(line[:30]...)
		b.inOrder(there...)
		b.gapless(old, 0, line[:30]...)
		b.gapless(other, 0, slices.Concat(there, line[30:])...)
	}},
}

// relimit changes a limit while 60 wait.
func (b *bench) relimit(before, after int) {
	b.Helper()
	for _, limit := range []func(n int) throttle.Limit{
		throttle.PerSecond, func(n int) throttle.Limit { return throttle.TokenBucket(n, sec, 5) },
	} {
		c, begin := charge(sentence(throttle.Charge{Limit: limit(5)}), limit(before)), b.now()
		line := b.lineUp(60, c)
		b.at(begin + 1020*ms)
		synctest.Wait()
		c.Limit = limit(after)
		for i := range line { // the next ones not first
			if v := line[(i*7+5)%len(line)]; !v.began() {
				v.changes(c)
			}
		}
		b.allOver(begin+20*sec, line...)
		next := slices.IndexFunc(line, func(v *visitor) bool { return v.begun() > begin+1020*ms })
		last := begin
		for _, v := range line[next:] {
			last = max(last, v.begun())
		}
		// A window may be full when its limit is lowered, and those that were near may change places.
		if most := begin + 2100*ms + sec*time.Duration(len(line)-next)/time.Duration(after); last > most+b.slack.Start {
			b.errorf("the last of %d begins at %v, want at most %v", len(line)-next, last, most)
		}
		for i, v := range line[next:] {
			for _, w := range line[next:][:i] {
				if d := w.begun() - v.begun(); d > horizon+b.slack.Order {
					b.errorf("one begins at %v, %v before an earlier one", v.begun(), d)
					return
				}
			}
		}
		b.at(begin + 30*sec)
	}
}

// began reports whether the visitor has begun.
func (v *visitor) began() bool { return v.begun() != never }

// nobodyIdle wants that visitors, after a pause that came at some time, begin as if each
// was booked then, in order; the horizon may make a difference of so much.
func (b *bench) nobodyIdle(c throttle.Charge, at, pause time.Duration, visitors ...*visitor) {
	b.Helper()
	l, now := newLedger(), b.zero.Add(at).UnixMicro()
	k := throttle.Booking{Charges: []throttle.Charge{c}}
	l.shut(c, now, pause, 0)
	i := 0
	for ; i < len(visitors) && visitors[i].begun() <= at; i++ {
		l.add(k, b.zero.Add(visitors[i].begun()).UnixMicro())
	}
	for ; i < len(visitors); i++ {
		t := l.earliest(k, now)
		l.add(k, t)
		want := time.UnixMicro(t).Sub(b.zero)
		if got := visitors[i].begun(); got < want || got > want+b.slack.Start {
			b.errorf("visitor %d of %d begins at %v, want %v", i, len(visitors), got, want)
			return
		}
	}
}
