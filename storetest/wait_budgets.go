package storetest

import (
	"slices"
	"testing/synctest"
	"time"

	"github.com/fleetthrottle/throttle"
)

// waitBudgetChecks are about lines for several budgets.
var waitBudgetChecks = []check{
	// Waiters for a narrow budget do not hold back others of the wide one.
	{"P5_LineNarrow", func(b *bench) {
		narrow, wide := charge("narrow", throttle.LeakyBucket(1, sec)), charge("wide", throttle.LeakyBucket(10, sec))
		slow := b.lineUp(5, narrow, wide)
		for _, v := range slow[1:] {
			b.isInLine(v, 0, v.first.Wait)
		}
		for range 20 {
			v := b.lineUp(1, wide)
			if v[0].first.Wait > 200*ms {
				b.errorf("at %v one waits %v for a budget that others have no use for", b.now(), v[0].first.Wait)
			}
			b.at(b.now() + 150*ms)
		}
		b.allOver(10*sec, slow...)
		b.inOrder(slow...)
		if end := slow[4].begun(); end < 4*sec || end > 4200*ms+b.slack.Start {
			b.errorf("the last of the narrow budget begins at %v, want about 4s", end)
		}
	}},

	// Of the wide budget all is used while there are others, and then the narrow one.
	{"P3_LineNarrowAndWide", func(b *bench) {
		narrow, wide := charge("narrow", throttle.LeakyBucket(1, sec)), charge("wide", throttle.LeakyBucket(10, sec))
		slow, fast := b.lineUp(6, narrow, wide), b.lineUp(60, wide)
		b.allOver(20*sec, slices.Concat(slow, fast)...)
		b.inOrder(slow...)
		b.inOrder(fast...)
		if last := fast[59].begun(); last > 6500*ms+b.slack.Start {
			b.errorf("60 of 66 wait for 10/s alone: the last begins at %v, want at most 6.5s", last)
		}
		if last := slow[5].begun(); last > 11500*ms+b.slack.Start {
			b.errorf("6 of 66 wait for 1/s, too: the last begins at %v, want at most 11.5s", last)
		}
	}},

	// Two lines one after the other: the arrival in the second counts there.
	{"P5_LineNarrowThenWide", func(b *bench) {
		narrow, wide := charge("narrow", throttle.LeakyBucket(2, sec)), charge("wide", throttle.LeakyBucket(10, sec))
		before := b.lineUp(30, wide)
		slow := b.lineUp(4, narrow, wide)
		b.at(1500 * ms)
		after := b.lineUp(30, wide)
		b.allOver(30*sec, slices.Concat(before, slow, after)...)
		b.inOrder(before...)
		b.inOrder(slow...)
		b.inOrder(after...)
		if last := slow[3].begun(); last > 6*sec+b.slack.Start {
			b.errorf("4 wait for 2/s behind 30 that wait for 10/s: the last begins at %v, want at most 6s", last)
		}
	}},

	// Nobody has a start that is far away only because it passed the narrow budget early.
	{"P5_LineNothingFarIsBooked", func(b *bench) {
		narrow, wide := charge("narrow", throttle.LeakyBucket(1, sec)), charge("wide", throttle.LeakyBucket(10, sec))
		slow := b.lineUp(5, narrow, wide)
		b.lineUp(50, wide)
		slow = append(slow, b.lineUp(5, wide, narrow)...)
		for b.now() < 20*sec {
			b.at(b.now() + 50*ms)
			synctest.Wait()
			far := 0
			for _, v := range slow {
				v.mu.Lock()
				if v.grant.OK && v.due-b.now() > horizon+100*ms {
					far++
				}
				v.mu.Unlock()
			}
			if far > 1 { // one may, so that it is not starved
				b.fatalf("at %v %d have a start that is far away", b.now(), far)
			}
		}
		b.inOrder(slow[:5]...)
		b.inOrder(slow[5:]...)
	}},

	// A request that needs two budgets whose rooms rarely meet is not starved.
	{"P5_LineOutOfStep", func(b *bench) {
		one, two := charge("one", throttle.LeakyBucket(3, sec)), charge("two", throttle.LeakyBucket(4, sec))
		for range 40 {
			b.lineUp(1, one)
			b.at(b.now() + 11*ms)
			b.lineUp(1, two)
		}
		both := b.lineUp(3, one, two)
		for b.now() < 6*sec {
			b.lineUp(1, one)
			b.lineUp(1, two)
			b.at(b.now() + 100*ms)
		}
		b.allOver(60*sec, both...)
		b.inOrder(both...)
		if last := both[2].begun(); last > 27*sec+b.slack.Start {
			b.errorf("the last that needs both begins at %v, want at most 27s", last)
		}
	}},

	// Both budgets are used while callers of each and of both come.
	{"P3_LineTwoBudgets", func(b *bench) {
		one, two := charge("one", throttle.PerSecond(10)), charge("two", throttle.PerSecond(10))
		var all []*visitor
		for range 40 {
			all = append(all, b.lineUp(1, one)...)
			all = append(all, b.lineUp(1, two)...)
			all = append(all, b.lineUp(1, one, two)...)
			all = append(all, b.lineUp(1, two, one)...)
		}
		b.allOver(16*sec+b.slack.Start, all...) // 120 starts of each
	}},
}

// gapless wants that the starts of visitors follow each other as a leaky bucket's do.
func (b *bench) gapless(c throttle.Charge, first time.Duration, visitors ...*visitor) {
	b.Helper()
	var starts []time.Duration
	for _, v := range visitors {
		starts = append(starts, v.begun())
	}
	slices.Sort(starts)
	for i, got := range starts {
		if want := first + time.Duration(i)*c.Span(); got < want || got > want+b.slack.Start {
			b.errorf("start %d of %d is at %v, want %v: somebody waited, and nobody began", i, len(starts), got, want)
			return
		}
	}
}
