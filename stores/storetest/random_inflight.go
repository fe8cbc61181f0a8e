package storetest

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/fleetthrottle/throttle/store"
)

// Traffic is a store under random use of slots, and the truth about
// it. Time passes only while nobody is in line: in a line only the order
// matters.
type traffic struct {
	dice
	lines   *lines
	ledger  *ledger
	flights []store.Charge
	windows []store.Charge
	costly  bool // costs in flight differ; otherwise KeepFree does
	running []start
	booked  []start // bookings that wait for a window
	waiting []place
}

// A start is a grant with its time. A settled start is in use, and
// not cancelled.
type start struct {
	ticket
	at      int64
	settled bool
}

// A place is a caller's place in line, in the store and in truth.
type place struct {
	ticket
	wait *wait
}

// randomInFlight runs some operations, chosen by the seed, on the store.
func randomInFlight(b *bench, seed uint64, ops int) {
	b.Helper()
	w := &traffic{dice: newDice(b, seed, 2), lines: newLines(), ledger: newLedger()}
	w.costly = w.chance(50)

	for i := range 3 {
		w.flights = append(w.flights, charge(fmt.Sprint("in flight ", i), store.Concurrency(1+w.rng.IntN(6))))
	}

	w.windows = []store.Charge{
		charge("window", store.PerSecond(1+w.rng.IntN(20))),
		charge("bucket", store.TokenBucket(1+w.rng.IntN(20), sec, 1+w.rng.IntN(20))),
	}

	for w.op = range ops {
		w.step()
		w.look()
	}

	w.leave()
}

// step does one operation.
func (w *traffic) step() {
	w.Helper()
	switch r := w.rng.IntN(100); {
	case r < 45:
		w.try(w.booking(), nil)
	case r < 64:
		w.end()
	case r < 68:
		w.settleOne()
	case r < 74:
		if p, ok := takeOne(w.rng, &w.waiting); ok {
			w.giveUp(p)
		}

	case r < 80:
		w.awaitOne()
	case r < 82:
		w.pass()
	default:
		w.comeBack()
	}
}

// booking returns a random booking of room in flight in one or two budgets, often with a window.
func (w *traffic) booking() store.Booking {
	k := store.Booking{MaxWait: -1}
	if w.chance(25) {
		k.MaxWait = 0
	}

	for _, i := range w.rng.Perm(len(w.flights))[:1+w.rng.IntN(2)] {
		c := w.flights[i]
		if w.costly {
			c.Cost = 1 + w.rng.IntN(c.Limit.N())
		} else {
			c.KeepFree = w.rng.IntN(c.Limit.N())
		}

		c.Shadow = w.chance(5)
		k.Charges = append(k.Charges, c)
	}

	// A window makes some callers wait for their start before they take their slots.
	if len(w.booked) < 30 && w.chance(30) {
		c := w.windows[w.rng.IntN(len(w.windows))]
		k.Charges = slices.Insert(k.Charges, w.rng.IntN(len(k.Charges)+1), c)
	}

	return k
}

// try books and compares the answer. before is the place in line of a caller that comes back, or nil.
func (w *traffic) try(k store.Booking, before *wait) {
	w.Helper()
	now := w.clock()
	at := w.ledger.earliest(k, now)

	// Slots are taken at the start, so only a start that is now can lack them.
	var lacking []int
	if at == now {
		lacking = w.lines.lacking(k, before)
	}

	k, g := w.book(k)
	w.checkAnswer(k, g, at-now, lacking)

	// The truth holds what the store has given.
	s := start{ticket: ticket{k, g}, at: at}
	switch {
	case g.OK && at > now:
		w.ledger.add(k, at)
		w.booked = append(w.booked, s)
	case g.OK:
		w.ledger.add(k, at)
		w.lines.hold(k)
		w.running = append(w.running, s)

	case g.Ready != nil:
		w.waiting = append(w.waiting, place{s.ticket, w.lines.join(k.Charges[g.HeldBy], before)})
	}

	w.lines.call()
}

// checkAnswer compares a grant with the wait for a window, and with the charges for
// which there is no room in flight.
func (w *traffic) checkAnswer(k store.Booking, g store.Grant, wait int64, lacking []int) {
	w.Helper()
	ok := lacking == nil && (wait == 0 || k.MaxWait != 0)
	inLine := lacking != nil && k.MaxWait != 0
	if g.OK != ok || g.Wait != tickTimes(wait) || (g.Ready != nil) != inLine || g.Paused {
		w.failf("%s: %+v, but the wait is %d µs and those without room are %v", describe(k), g, wait, lacking)
	}

	// Nothing may hold a start that is now. A charge without room holds a caller in line, and a window any other.
	switch held := g.HeldBy; {
	case wait == 0 && lacking == nil && held != -1, lacking != nil && !slices.Contains(lacking, held),
		wait > 0 && (held < 0 || inFlight(k.Charges[held])):
		w.failf("%s: Held is %d, but the wait is %d µs and those without room are %v", describe(k), held, wait, lacking)
	}
}

// look compares the called waiters, and now and then the slots in flight.
func (w *traffic) look() {
	w.Helper()

	// A called waiter must know, and no waiter may be called before its turn.
	for _, p := range w.waiting {
		if p.wait.called && !w.called(p.ticket) {
			w.failf("%s has room and is not called", describe(p.booking))
		}
	}

	for _, p := range w.waiting {
		select {
		case <-p.grant.Ready:
			if !p.wait.called {
				w.failf("%s is called, but it is not its turn", describe(p.booking))
			}
		default:
		}
	}

	if w.chance(10) {
		w.compare(w.flights[w.rng.IntN(len(w.flights))])
	}
}

// compare compares a status.
func (w *traffic) compare(c store.Charge) {
	w.Helper()
	st, err := w.store.Status(w.Context(), c)
	at := w.lines.at(c)
	used, waiting, callers := at.status()
	if err != nil || st.Used != used || st.Waiting != waiting || st.Paused != 0 {
		w.failf("status of %s: %+v, %v; want %d used and %d waiting", c.Budget.Policy, st, err, used, waiting)
	}
	if least, most := at.callers(); st.Callers < least || st.Callers > most {
		w.failf("status of %s: %+v; want %d callers, or %d to %d", c.Budget.Policy, st, callers, least, most)
	}
}

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

// settleOne settles a start in flight. Its slots stay as they are.
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

	// Some leave in place of their start.
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
