package storetest

import (
	"time"

	"github.com/fleetthrottle/throttle"
)

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
