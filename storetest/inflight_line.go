package storetest

import (
	"runtime"
	"sync"
	"sync/atomic"

	"github.com/fleetthrottle/throttle"
)

// lineChecks are about waiters for room in flight.
var lineChecks = []check{
	{"P5_LineInOrder", func(b *bench) {
		one := charge("one", throttle.Concurrency(1))
		held := b.holds(one)
		line := []ticket{b.waits(0, one), b.waits(0, one), b.waits(0, one)}
		for i, next := range line {
			b.releases(held)
			b.called(next)
			b.notCalled(line[i+1:]...)
			b.isFull(0, one) // the room is set aside
			held = b.boards(next)
			b.notCalled(line[i+1:]...)
		}
		b.releases(held)
		b.holds(one)
	}},

	{"P5_LineOfSeveral", func(b *bench) {
		three := charge("three", throttle.Concurrency(3))
		all, first := b.holds(costing(three, 2)), b.holds(three)
		line := []ticket{b.waits(0, three), b.waits(0, three), b.waits(0, three), b.waits(0, three)}
		b.releases(all)
		b.called(line[1]) // in whatever order they come, it is theirs
		b.called(line[0])
		b.notCalled(line[2:]...)
		b.boards(line[1])
		b.isFull(0, three)
		b.boards(line[0])
		b.releases(first)
		b.called(line[2])
		b.notCalled(line[3])
	}},

	{"P5_LineBehindACalledWaiter", func(b *bench) {
		one := charge("one", throttle.Concurrency(1))
		held, first := b.holds(one), b.waits(0, one)
		b.releases(held)
		b.called(first)
		second := b.waits(0, one)
		held = b.boards(first)
		b.notCalled(second)
		b.releases(held)
		b.boards(second)
	}},

	{"P5_LineCostlyIsNeverStarved", func(b *bench) {
		three := charge("three", throttle.Concurrency(3))
		held := []ticket{b.holds(three), b.holds(three), b.holds(three)}
		costly, cheap := b.waits(0, costing(three, 3)), b.waits(0, three)
		b.releases(held[0])
		b.isFull(0, three) // one is free, for the costly
		b.notCalled(costly, cheap)
		b.releases(held[1])
		b.waits(0, three)
		b.notCalled(costly, cheap)
		b.releases(held[2])
		last := b.boards(costly)
		b.notCalled(cheap)
		b.releases(last)
		b.boards(cheap)
	}},

	{"P5_LineReserveLetsOthersPass", func(b *bench) {
		two := charge("two", throttle.Concurrency(2))
		low := leaving(two, 1)
		first, second := b.holds(two), b.holds(two)
		patient, urgent := b.waits(0, low), b.waits(0, two)
		b.releases(first)
		first = b.boards(urgent)
		b.notCalled(patient)
		b.releases(first)
		b.notCalled(patient)
		first = b.holds(two) // a later caller passes as well
		b.releases(first)
		b.releases(second)
		b.boards(patient) // served when there is room
		b.holds(two)
	}},

	{"P5_LineKeepsAWaiterThatComesTooEarly", func(b *bench) {
		one := charge("one", throttle.Concurrency(1))
		held, first, second := b.holds(one), b.waits(0, one), b.waits(0, one)
		first = b.again(first)
		b.isWaiting(first, 0)
		b.releases(held)
		b.called(first)
		b.notCalled(second)
		b.releases(b.boards(first))
		b.boards(second)
	}},

	{"P7_LineCancelledPlace", func(b *bench) {
		one := charge("one", throttle.Concurrency(1))
		held, first, second, third := b.holds(one), b.waits(0, one), b.waits(0, one), b.waits(0, one)
		b.cancels(first)
		b.notCalled(second, third)
		b.releases(held)
		b.called(second)
		b.notCalled(third)
		b.cancels(second) // called and gone: the room is the next one's
		held = b.boards(third)
		b.isFull(0, one)
		b.releases(held)
		b.holds(one)
	}},

	{"P7_LineCancelledHold", func(b *bench) {
		one := charge("one", throttle.Concurrency(1))
		held, first, second := b.holds(one), b.waits(0, one), b.waits(0, one)
		b.cancels(held)
		b.boards(first)
		b.notCalled(second)
	}},

	{"P7_LineWithoutItsCostlyFirst", func(b *bench) {
		three := charge("three", throttle.Concurrency(3))
		b.holds(three)
		costly := b.waits(0, costing(three, 3))
		cheap := []ticket{b.waits(0, three), b.waits(0, three), b.waits(0, three)}
		b.cancels(costly)
		b.called(cheap[0])
		b.called(cheap[1])
		b.notCalled(cheap[2])
		b.boards(cheap[0])
		b.boards(cheap[1])
	}},

	{"P7_LineOfThousandThatLeave", func(b *bench) {
		one := charge("one", throttle.Concurrency(1))
		held := b.holds(one)
		var line []ticket
		for range 1000 {
			line = append(line, b.waits(0, one))
		}
		last := b.waits(0, one)
		for _, k := range line {
			b.cancels(k)
		}
		b.notCalled(last)
		b.status(one, throttle.Status{Used: 1, Waiting: 1})
		b.releases(held)
		b.releases(b.boards(last))
		b.status(one, throttle.Status{})
		b.holds(one)
	}},

	{"P7_LineLeftByARefusal", func(b *bench) {
		one := charge("one", throttle.Concurrency(1))
		held, first, second := b.holds(one), b.waits(0, one), b.waits(0, one)
		first.booking.Instead, first.booking.MaxWait = first.grant.Handle, 0
		_, g := b.book(first.booking)
		b.isRefused(g, b.now())
		b.releases(held)
		b.boards(second)
	}},

	{"P1_LineOfACrowd", func(b *bench) {
		three := charge("three", throttle.Concurrency(3))
		var crowd sync.WaitGroup
		var running, most, served atomic.Int64
		for range 60 {
			crowd.Go(func() {
				k := b.ask(three)
				for k.grant.Ready != nil {
					if !b.called(k) {
						return
					}
					k = b.again(k)
				}
				n := running.Add(1)
				for m := most.Load(); n > m && !most.CompareAndSwap(m, n); m = most.Load() {
				}
				runtime.Gosched()
				running.Add(-1)
				served.Add(1)
				b.releases(k)
			})
		}
		crowd.Wait()
		if most.Load() > 3 || served.Load() != 60 {
			b.errorf("%d of 60 callers were served, up to %d at a time; want all, up to 3", served.Load(), most.Load())
		}
		b.status(three, throttle.Status{})
	}},
}
