package storetest

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/fleetthrottle/throttle/store"
)

// A traffic is a store under random use of slots, and the truth about
// it. Time passes only while nobody is in line: in a line only the order
// matters.
type traffic struct {
	dice
	lines   *lines         // the truth about flights
	ledger  *ledger        // the truth about windows
	flights []store.Charge // of Concurrency limits
	windows []store.Charge // of other limits
	costly  bool           // costs in flight differ; otherwise KeepFree does
	running []grantedStart // requests in flight
	booked  []grantedStart // starts to come, which hold no slots yet
	waiting []place
}

// A grantedStart is a grant with its time. A settled start is in use, and
// not cancelled.
type grantedStart struct {
	ticket
	at      int64
	settled bool
}

// A place is a caller's place in line, in the store and in truth.
type place struct {
	ticket
	wait *waiter
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

// step does one random operation.
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

// try books, compares the answer, and notes in the truth what the store has given. before is the place in line of a caller that
// comes back, or nil.
func (w *traffic) try(k store.Booking, before *waiter) {
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
	s := grantedStart{ticket: ticket{k, g}, at: at}
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

// checkAnswer compares a grant with the wait for a window, in microseconds, and with the indices of
// the charges for which there is no room in flight, lacking. They are nil if there is room, and if the
// start is to come.
func (w *traffic) checkAnswer(k store.Booking, g store.Grant, wait int64, lacking []int) {
	w.Helper()
	ok := lacking == nil && (wait == 0 || k.MaxWait != 0)
	inLine := lacking != nil && k.MaxWait != 0
	if g.OK != ok || g.Wait != tickTimes(wait) || (g.Ready != nil) != inLine || g.Paused {
		w.failf("%s: %+v, but the wait is %d µs and those without room are %v", describe(k), g, wait, lacking)
	}

	// A charge without room holds a caller in line, a window holds a start to come, and nothing holds a start that is now.
	var isRight bool
	switch held := g.HeldBy; {
	case lacking != nil:
		isRight = slices.Contains(lacking, held)
	case wait > 0:
		isRight = held >= 0 && !inFlight(k.Charges[held])
	default:
		isRight = held == store.NotHeld
	}
	if !isRight {
		w.failf("%s: Held is %d, but the wait is %d µs and those without room are %v", describe(k), g.HeldBy, wait, lacking)
	}
}

// look fails if a waiter is not called whose turn it is, or if another one is. Now and then it compares a Status.
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

// compare compares the Status of a Concurrency budget with the truth.
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

// end ends a random request in flight, if there is one: it releases or, unless the request was settled, cancels it.
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

// settleOne settles a random request in flight, if there is one, and if it was not settled before. Its slots stay as they are.
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

// awaitOne goes on with a random start to come, if there is one: its caller books again when the start has
// come, or at once if somebody is in line. Some callers leave instead.
func (w *traffic) awaitOne() {
	w.Helper()
	s, ok := takeOne(w.rng, &w.booked)
	if !ok {
		return
	}
	if w.chance(20) {
		w.releases(s.ticket) // there is nothing to release
	}

	// Some leave.
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

// comeBack books again for a random waiter in line, if there is one. Of waiters that are not called, most stay.
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

// giveUp cancels a place in line, and calls whoever has room then.
func (w *traffic) giveUp(p place) {
	w.lines.leave(p.wait)
	w.cancels(p.ticket)
	w.lines.call()
}

// pass has all callers give up their places in line, and then lets up to two seconds pass.
func (w *traffic) pass() {
	for _, p := range w.waiting {
		w.giveUp(p)
	}
	w.waiting = nil
	time.Sleep(time.Duration(w.rng.Int64N(int64(2 * sec))).Truncate(tick))
}

// leave lets all callers go, and fails if something is left in a Status.
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

// takeOne takes a random element out of a list. ok is false if the list is empty.
func takeOne[T any](rng *rand.Rand, list *[]T) (one T, ok bool) {
	if len(*list) == 0 {
		return one, false
	}
	i := rng.IntN(len(*list))
	one = (*list)[i]
	*list = slices.Delete(*list, i, i+1)
	return one, true
}
