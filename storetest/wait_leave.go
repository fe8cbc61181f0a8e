package storetest

import (
	"slices"
	"testing/synctest"
	"time"

	"github.com/fleetthrottle/throttle"
)

// waitLeaveChecks are about waiters that leave the line: it moves up.
var waitLeaveChecks = []check{
	{"P7_LineThousandLeave", func(b *bench) {
		c := charge("twenty", throttle.PerSecond(20))
		c.Pace = 47500 * tick
		for _, backwards := range []bool{false, true} {
			begin := b.now()
			b.lineUp(20, c)
			leavers := b.lineUp(1000, c)
			last := b.lineUp(1, c)
			if backwards {
				slices.Reverse(leavers)
			}
			b.at(begin + 300*ms)
			for _, v := range leavers {
				v.leaves()
			}
			b.allOver(begin+3*sec, last...)
			// A start that was near when it was booked stays.
			if got := last[0].begun(); got < begin+sec+tick || got > begin+1050*ms+tick+b.slack.Start {
				b.errorf("1000 leave: the next one begins after %v, want 1s", got-begin)
			}
			b.hasWaiting(c, 0)
			b.at(b.now() + 10*sec)
		}
	}},

	{"P7_LineLeaversInTheMiddle", func(b *bench) {
		ten := charge("ten", throttle.LeakyBucket(10, sec))
		line := b.lineUp(40, ten)
		b.at(500 * ms)
		for i := 20; i < 30; i++ {
			line[i].leaves()
		}
		b.beginEach(slices.Concat(line[:20], line[30:]), 0, 100*ms)
	}},

	// A start that is near is given back, and the next one has it.
	{"P7_LineLeaversWithAStart", func(b *bench) {
		ten := charge("ten", throttle.LeakyBucket(10, sec))
		line := b.lineUp(40, ten)
		for _, i := range []int{3, 4, 12, 20, 21, 22} {
			b.at(max(0, time.Duration(i)*100*ms-550*ms))
			synctest.Wait()
			line[i].leaves()
			line[i] = nil
			b.notIdle(ten, slices.DeleteFunc(slices.Clone(line), isNil)...)
		}
		line = slices.DeleteFunc(line, isNil)
		b.allOver(20*sec, line...)
		b.gapless(ten, 0, line...)
	}},

	// The same if the caller was called, and has not come for the start.
	{"P7_LineLeaversThatWereCalled", func(b *bench) {
		ten := charge("ten", throttle.LeakyBucket(10, sec))
		before := b.lineUp(10, ten)
		k := throttle.Booking{Charges: []throttle.Charge{ten}, MaxWait: -1, Horizon: horizon}
		_, g := b.book(k)
		after := b.lineUp(10, ten)
		if !b.called(ticket{k, g}) {
			return
		}
		b.store.Cancel(&k, g)
		synctest.Wait()
		b.beginEach(slices.Concat(before, after), 0, 100*ms)
	}},

	// A called waiter books again and has its start at once, however late it comes; a
	// start that it missed counts.
	{"P5_LineCalledAndLate", func(b *bench) {
		ten := charge("ten", throttle.LeakyBucket(10, sec))
		b.lineUp(10, ten)
		k := throttle.Booking{Charges: []throttle.Charge{ten}, MaxWait: -1, Horizon: horizon}
		_, g := b.book(k)
		after := b.lineUp(10, ten)
		if !b.called(ticket{k, g}) {
			return
		}
		b.at(900 * ms)
		k.Turn, k.Instead = g.Turn, g.Handle
		_, g = b.book(k)
		b.isStart(g, sec)
		b.beginEach(after, 1100*ms, 100*ms)
	}},

	// Any half of all leave: those that stay use everything.
	{"P3_LineHalfLeaves", func(b *bench) {
		ten := charge("ten", throttle.LeakyBucket(10, sec))
		var stay []*visitor
		all := b.lineUp(200, ten)
		for i, v := range all {
			if i%3 != 1 {
				stay = append(stay, v)
				continue
			}
			b.at(b.now() + 45*ms)
			if !v.began() {
				v.leaves()
				b.notIdle(ten, all...)
			} else {
				stay = append(stay, v)
			}
		}
		b.allOver(60*sec, stay...)
		b.gapless(ten, 0, stay...)
	}},

	// A refusal and a Cancel of nothing leave nothing behind.
	{"P7_LineLeavesNothing", func(b *bench) {
		ten := charge("ten", throttle.LeakyBucket(10, sec))
		line := b.lineUp(30, ten)
		for _, v := range line[8:] {
			v.leaves()
			b.store.Cancel(&v.booking, v.grant) // once more
		}
		b.hasWaiting(ten, 7)
		b.at(700 * ms)
		b.isBookedAt(b.lineUp(1, ten)[0], 800*ms)
	}},
}

func isNil(v *visitor) bool { return v == nil }
