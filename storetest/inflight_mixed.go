package storetest

import "github.com/fleetthrottle/throttle"

// mixedChecks are about bookings that are in flight in several budgets, or
// want other room as well.
var mixedChecks = []check{
	{"P6_InFlightInTwoBudgets", func(b *bench) {
		a, c := charge("a", throttle.Concurrency(1)), charge("c", throttle.Concurrency(1))
		first := b.holds(a)
		both := b.waits(0, a, c)
		second := b.holds(c) // nothing of it was taken
		b.releases(first)
		b.called(both)
		both = b.again(both)
		b.isWaiting(both, 1)
		first = b.holds(a) // nor is it kept
		b.releases(second)
		b.called(both)
		b.isFull(0, c)
		both = b.again(both)
		b.isWaiting(both, 0)
		b.releases(first)
		both = b.boards(both)
		b.isFull(0, a)
		b.isFull(0, c)
		b.releases(both)
		b.holds(c, a)
	}},

	{"P6_InFlightRefusalTakesNothing", func(b *bench) {
		full, free := charge("full", throttle.Concurrency(1)), charge("free", throttle.Concurrency(1))
		window := charge("window", throttle.PerSecond(5))
		b.holds(full)
		for range 20 {
			b.isFull(2, free, window, full)
			b.isFull(0, full, window, free)
		}
		b.status(free, throttle.Status{})
		b.status(window, throttle.Status{})
		b.holds(free, window)
	}},

	{"P6_InFlightWithAWindow", func(b *bench) {
		two, window := charge("two", throttle.Concurrency(2)), charge("window", throttle.PerSecond(1))
		b.holds(two, window)
		later := b.ask(two, window)
		b.isStart(later.grant, sec+tick)
		b.isHeld(later.grant, 1, false)
		b.status(two, throttle.Status{Used: 1})
		b.status(window, throttle.Status{Used: 1, Booked: 1, Waiting: 1, Wait: 2*sec + 2*tick})
		b.at(sec + tick)
		later = b.again(later)
		b.isHolding(later)
		b.status(two, throttle.Status{Used: 2})
		b.status(window, throttle.Status{Used: 1, Wait: sec + tick})
		b.cancels(later)
		b.status(two, throttle.Status{Used: 1})
		b.holds(two, window)
	}},

	{"P6_InFlightWithAWindowThatIsFullAgain", func(b *bench) {
		one, window := charge("one", throttle.Concurrency(1)), charge("window", throttle.PerSecond(1))
		held := b.holds(one)
		first, second := b.waits(0, one, window), b.waits(0, one)
		b.holds(window)
		b.releases(held)
		b.called(first)
		first = b.again(first) // the room in flight is of no use to it now
		b.isStart(first.grant, sec+tick)
		b.isHeld(first.grant, 1, false)
		held = b.boards(second)
		b.at(sec + tick)
		first = b.again(first)
		b.isWaiting(first, 0)
		b.status(window, throttle.Status{}) // it does not keep the window from others either
		b.releases(held)
		b.boards(first)
		b.isFull(0, one)
	}},

	{"P5_InFlightHeldByAWindowBlocksNobody", func(b *bench) {
		shared := charge("shared", throttle.Concurrency(2))
		slow, other := charge("slow", throttle.PerSecond(1)), charge("other", throttle.PerSecond(9))
		b.holds(slow)
		for i := range 5 {
			b.isStart(b.ask(slow, shared).grant, b.now()+tickTimes(int64(i+1)*span(slow)))
		}
		b.holds(other, shared)
		b.holds(other, shared)
		b.isFull(1, other, shared)
	}},

	{"P5_InFlightInANarrowLineBlocksNobody", func(b *bench) {
		narrow, wide := charge("narrow", throttle.Concurrency(1)), charge("wide", throttle.Concurrency(3))
		window := charge("window", throttle.PerSecond(5))
		b.holds(narrow, wide, window)
		for range 10 {
			b.waits(0, narrow, wide, window)
		}
		b.status(window, throttle.Status{Used: 1})
		b.holds(wide, window)
		b.holds(wide, window)
		b.isFull(0, wide, window)
	}},

	{"P5_InFlightKeepsItsTurnElsewhere", func(b *bench) {
		a, c := charge("a", throttle.Concurrency(1)), charge("c", throttle.Concurrency(1))
		first, second := b.holds(a), b.holds(c)
		early := b.waits(0, a, c)
		late := b.waits(0, c)
		b.releases(first)
		b.called(early)
		early = b.again(early)
		b.isWaiting(early, 1) // in the other line, where it was not yet
		b.releases(second)
		b.called(early)
		b.notCalled(late)
		b.releases(b.boards(early))
		b.boards(late)
	}},

	{"P5_InFlightCalledGoesWhoeverComes", func(b *bench) {
		a, c := charge("a", throttle.Concurrency(1)), charge("c", throttle.Concurrency(2))
		first, second := b.holds(a), b.holds(c)
		third := b.holds(c)
		early := b.waits(0, a, costing(c, 2))
		late := b.waits(0, c)
		b.releases(second)
		b.called(late)
		b.releases(first)
		b.called(early)
		early = b.again(early)
		b.isWaiting(early, 1) // before the other, which has its room already
		late = b.boards(late)
		b.releases(third)
		b.notCalled(early)
		b.releases(late)
		b.boards(early)
	}},

	{"P7_InFlightGivenBackByARefusal", func(b *bench) {
		one, window := charge("one", throttle.Concurrency(1)), charge("window", throttle.PerSecond(1))
		held := b.holds(one)
		first, second := b.waits(0, one, window), b.waits(0, one)
		b.holds(window)
		b.releases(held)
		b.called(first)
		first.booking.Instead, first.booking.MaxWait = first.grant.Handle, ms
		_, g := b.book(first.booking)
		b.isRefused(g, sec+tick)
		b.isHeld(g, 1, false)
		b.boards(second)
		b.status(window, throttle.Status{Used: 1, Wait: sec + tick})
	}},

	{"Store_InFlightNotBefore", func(b *bench) {
		one := charge("one", throttle.Concurrency(1))
		k, g := b.book(throttle.Booking{Charges: []throttle.Charge{one}, MaxWait: -1, NotBefore: sec})
		b.isStart(g, sec)
		b.isHeld(g, -1, false)
		b.releases(b.holds(one)) // nothing is held until then
		b.at(sec)
		k.NotBefore = 0
		b.isHolding(b.again(ticket{k, g}))
		b.isFull(0, one)
	}},
}
