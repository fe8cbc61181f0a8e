package storetest

import (
	"math/rand/v2"
	"slices"
	"time"

	"github.com/fleetthrottle/throttle/store"
)

// end releases or cancels slots in flight.
func (w *traffic) end() {
	s, ok := takeOne(w.rng, &w.running)
	if !ok {
		return
	}
	w.lines.release(s.booking)
	if s.settled || w.chance(50) {
		w.releases(s.ticket)
	} else {
		w.ledger.remove(s.booking, s.at, w.clock())
		w.cancels(s.ticket)
	}
	w.lines.call()
}

// settleOne settles a start in flight; the room that it has there stays as it is.
func (w *traffic) settleOne() {
	w.Helper()
	s, ok := takeOne(w.rng, &w.running)
	if !ok {
		return
	}

	if !s.settled {
		costs := make([]int, len(s.booking.Charges))
		for i, c := range s.booking.Charges {
			costs[i] = w.rng.IntN(c.Cost + 2)
		}

		w.settle(s.booking, s.grant, costs...)
		w.ledger.settle(s.booking, s.at, w.clock(), costs)
		s.settled = true
	}

	w.running = append(w.running, s)
}

// awaitOne goes on with a booking that waits for a window: it books again when its
// time has come, or earlier if somebody is in line. Some leave instead.
func (w *traffic) awaitOne() {
	w.Helper()
	s, ok := takeOne(w.rng, &w.booked)
	if !ok {
		return
	}
	if w.chance(20) {
		w.releases(s.ticket) // there is nothing to release
	}

	if w.chance(40) {
		w.ledger.remove(s.booking, s.at, w.clock())
		w.cancels(s.ticket)
		return
	}

	if len(w.waiting) == 0 {
		time.Sleep(tickTimes(s.at - w.clock()))
	}

	w.ledger.remove(s.booking, s.at, w.clock())
	s.booking.Instead = s.grant.Handle
	w.try(s.booking, nil)
}

// comeBack books again for a waiter in line, more often than not for a summoned one.
func (w *traffic) comeBack() {
	w.Helper()
	p, ok := takeOne(w.rng, &w.waiting)
	if !ok {
		return
	}

	if !p.wait.called && w.chance(70) {
		w.waiting = append(w.waiting, p)
		return
	}

	w.lines.leave(p.wait)
	p.booking.Instead = p.grant.Handle
	if w.chance(10) {
		p.booking.MaxWait = 0
	}

	w.try(p.booking, p.wait)
}

// giveUp cancels a place in line.
func (w *traffic) giveUp(p place) {
	w.lines.leave(p.wait)
	w.cancels(p.ticket)
	w.lines.call()
}

// pass lets time pass, after all have left the line.
func (w *traffic) pass() {
	for _, p := range w.waiting {
		w.giveUp(p)
	}
	w.waiting = nil
	time.Sleep(time.Duration(w.rng.Int64N(int64(2 * sec))).Truncate(tick))
}

// leave ends everything, and wants nothing to be left.
func (w *traffic) leave() {
	w.Helper()
	w.pass()
	for _, s := range w.running {
		w.releases(s.ticket)
	}
	for _, c := range w.flights {
		w.status(c, store.Status{})
	}
}

// takeOne takes one out of a list.
func takeOne[T any](rng *rand.Rand, list *[]T) (one T, ok bool) {
	if len(*list) == 0 {
		return one, false
	}
	i := rng.IntN(len(*list))
	one = (*list)[i]
	*list = slices.Delete(*list, i, i+1)
	return one, true
}
