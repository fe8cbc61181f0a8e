package storetest

import (
	"time"

	"github.com/fleetthrottle/throttle"
)

// inFlightChecks are about what has started and not ended.
var inFlightChecks = []check{
	{"P1_InFlightUntilReleased", func(b *bench) {
		two := charge("two", throttle.Concurrency(2))
		first := b.holds(two)
		b.holds(two)
		b.isFull(0, two)
		b.at(2 * time.Minute) // nothing ends by itself while its process lives
		b.isFull(0, two)
		b.releases(first)
		third := b.holds(two)
		b.isFull(0, two)
		b.releases(third)
		b.holds(two)
		b.isFull(0, two)
	}},

	{"P1_InFlightCosts", func(b *bench) {
		ten := charge("ten", throttle.Concurrency(10))
		seven := b.holds(costing(ten, 7))
		b.isFull(0, costing(ten, 4))
		three := b.holds(costing(ten, 3))
		b.isFull(0, ten)
		b.releases(three)
		b.isFull(0, costing(ten, 4))
		b.releases(seven)
		b.holds(costing(ten, 10))
		b.isFull(0, ten)
	}},

	{"P1_InFlightBudgetsAreApart", func(b *bench) {
		a, c := charge("a", throttle.Concurrency(1)), charge("a", throttle.Concurrency(1))
		c.Budget.Key[15] = 1
		held := b.holds(a)
		b.holds(c)
		b.isFull(0, a)
		b.releases(held)
		b.isFull(0, c)
		b.holds(a)
	}},

	{"P1_InFlightChangeToLess", func(b *bench) {
		c := charge("c", throttle.Concurrency(3))
		held := []ticket{b.holds(c), b.holds(c), b.holds(c)}
		c.Limit = throttle.Concurrency(2)
		b.isFull(0, c)
		b.releases(held[0])
		b.isFull(0, c)
		b.releases(held[1])
		b.holds(c)
		b.isFull(0, c)
		c.Limit = throttle.Concurrency(4)
		b.holds(c)
		b.holds(c)
		b.isFull(0, c)
	}},

	{"P5_InFlightReserve", func(b *bench) {
		four := charge("four", throttle.Concurrency(4))
		low := leaving(four, 2)
		first := b.holds(low)
		b.holds(low)
		b.isFull(0, low)
		b.holds(four)
		b.holds(four)
		b.isFull(0, four)
		b.releases(first)
		b.isFull(0, low)
		b.holds(four)
	}},

	{"P7_InFlightCancelEnds", func(b *bench) {
		one, wide := charge("one", throttle.Concurrency(1)), charge("wide", throttle.PerSecond(10))
		held := b.holds(one, wide)
		b.isFull(0, one)
		b.cancels(held)
		b.status(wide, throttle.Status{})
		b.holds(one)
		b.isFull(0, one)
	}},

	{"Store_InFlightReleaseKeepsTheStart", func(b *bench) {
		two, wide := charge("two", throttle.Concurrency(2)), charge("wide", throttle.PerSecond(10))
		held := b.holds(two, wide)
		b.releases(held)
		b.status(two, throttle.Status{})
		b.status(wide, throttle.Status{Used: 1})
		b.holds(two)
		b.holds(two)
		b.isFull(0, two)
	}},

	{"Store_InFlightReleaseOfNothing", func(b *bench) {
		one, window := charge("one", throttle.Concurrency(1)), charge("window", throttle.PerSecond(1))
		b.holds(window)
		later := b.ask(one, window)
		b.isStart(later.grant, sec+tick)
		b.holds(one)
		b.releases(later) // it has not begun, so it holds nothing
		b.isFull(0, one)
		plain := b.holds(charge("plain", throttle.PerSecond(1)))
		b.releases(plain)
		b.isFull(0, one)
	}},

	{"Store_InFlightSettle", func(b *bench) {
		two, wide := charge("two", throttle.Concurrency(2)), charge("wide", throttle.PerSecond(10))
		held := b.holds(costing(two, 2), wide)
		b.settle(held.booking, held.grant, 0, 5)
		b.status(wide, throttle.Status{Used: 5})
		b.isFull(0, two)
		b.releases(held)
		b.holds(two)
		b.holds(two)
		b.isFull(0, two)
	}},

	{"Store_InFlightShadow", func(b *bench) {
		one := charge("one", throttle.Concurrency(1))
		held := []ticket{b.holds(shadow(one)), b.holds(shadow(one)), b.holds(shadow(one))}
		for _, k := range held {
			if over := overOf(k.grant, 0); over != 0 {
				b.errorf("Over is %v, but nobody can know when there would be room", over)
			}
		}
		b.status(one, throttle.Status{Used: 3})
		b.isFull(0, one)
		waiting := b.waits(0, one)
		b.holds(shadow(one)) // a shadow stands in no line
		b.releases(held[0])
		b.releases(held[1])
		b.releases(held[2])
		b.isFull(0, one)
		b.notCalled(waiting)
	}},

	{"Store_InFlightStatus", func(b *bench) {
		five := charge("five", throttle.Concurrency(5))
		b.status(five, throttle.Status{})
		held := b.holds(costing(five, 3))
		waiting := b.waits(0, costing(five, 4))
		b.waits(0, costing(five, 2))
		b.status(five, throttle.Status{Used: 3, Waiting: 6})
		b.cancels(waiting)
		b.releases(held)
	}},

	{"P11_InFlightPause", func(b *bench) {
		one := charge("one", throttle.Concurrency(1))
		b.pause(one, 5*sec)
		b.isHeld(b.refused(5*sec, one), 0, true)
		later := b.ask(one)
		b.isStart(later.grant, 5*sec)
		b.isHeld(later.grant, 0, true)
		b.status(one, throttle.Status{Wait: 5 * sec, Paused: 5 * sec})
		b.at(5 * sec)
		later = b.again(later)
		b.isHolding(later)
		b.isFull(0, one)
		b.pause(one, sec)
		b.releases(later) // what is in flight may end in a pause
		b.at(6 * sec)
		b.holds(one)
	}},
}

// Which waiters are called, and in which order, is exact. When the caller hears of
// it is not: a store may learn of room by a message.

// A ticket is a booking and what the store said to it: it holds, or waits in
// line.
type ticket struct {
	booking throttle.Booking
	grant   throttle.Grant
}

// ask books, however long the wait.
func (b *bench) ask(charges ...throttle.Charge) ticket {
	b.Helper()
	k, g := b.book(throttle.Booking{Charges: charges, MaxWait: -1})
	return ticket{k, g}
}

// holds wants a start at once.
func (b *bench) holds(charges ...throttle.Charge) ticket {
	b.Helper()
	k := b.ask(charges...)
	b.isHolding(k)
	return k
}

// isHolding checks a start that was just given.
func (b *bench) isHolding(k ticket) {
	b.Helper()
	b.isStart(k.grant, b.now())
	b.isHeld(k.grant, -1, false)
	if k.grant.Ready != nil {
		b.errorf("booked at %v: a start that also waits in line", b.now())
	}
}

// waits wants a place in line, because of the charge at held.
func (b *bench) waits(held int, charges ...throttle.Charge) ticket {
	b.Helper()
	k := b.ask(charges...)
	b.isWaiting(k, held)
	return k
}

// isWaiting checks a place in line that was just given.
func (b *bench) isWaiting(k ticket, held int) {
	b.Helper()
	switch g := k.grant; {
	case g.OK:
		b.errorf("booked at %v: a start after %v, want a place in line", b.now(), g.Wait)
	case g.Ready == nil:
		b.errorf("booked at %v: a refusal, want a place in line", b.now())
	case g.Handle.Place == 0:
		b.errorf("booked at %v: the place in line has no handle", b.now())
	case g.Wait != 0:
		b.errorf("booked at %v: a place in line that says to wait %v, which nobody can know", b.now(), g.Wait)
	}
	b.isHeld(k.grant, held, false)
	b.notCalled(k)
}

// isFull books without waiting and wants a refusal, because of the charge at held.
func (b *bench) isFull(held int, charges ...throttle.Charge) {
	b.Helper()
	_, g := b.book(throttle.Booking{Charges: charges})
	b.isRefused(g, b.now())
	b.isHeld(g, held, false)
	if g.Ready != nil {
		b.errorf("refused at %v: it has a place in line, but does not wait", b.now())
	}
}

// called waits until the place in line is called, and reports whether it was.
func (b *bench) called(k ticket) bool {
	b.Helper()
	maxWait := time.NewTimer(time.Minute)
	defer maxWait.Stop()
	select {
	case <-k.grant.Ready:
		return true
	case <-maxWait.C:
		b.errorf("there is room at %v, and the first in line is not called", b.now())
		return false
	}
}

// notCalled wants that it is not.
func (b *bench) notCalled(places ...ticket) {
	b.Helper()
	for _, k := range places {
		select {
		case <-k.grant.Ready:
			b.errorf("called at %v, but it is not its turn", b.now())
		default:
		}
	}
}

// again books again from a place in line, or from a start that was waited for.
func (b *bench) again(k ticket) ticket {
	b.Helper()
	k.booking.Instead, k.booking.MaxWait = k.grant.Handle, -1
	k.booking, k.grant = b.book(k.booking)
	return k
}

// boards books again when it is called, and wants a start.
func (b *bench) boards(k ticket) ticket {
	b.Helper()
	b.called(k)
	k = b.again(k)
	b.isHolding(k)
	return k
}

// releases ends what it holds.
func (b *bench) releases(k ticket) { b.store.Release(&k.booking, k.grant) }

// cancels gives back what it holds, or its place in line.
func (b *bench) cancels(k ticket) { b.store.Cancel(&k.booking, k.grant) }
