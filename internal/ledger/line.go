package ledger

import (
	"slices"
	"time"

	"github.com/fleetthrottle/throttle/store"
)

// Leave takes a waiter out of the line that it stands in, and ends its turns: it comes, or
// gives up. The rows are those of the booking with which it came last.
func (q *Request) Leave(w *Waiter) {
	if w.stand != nil {
		q.note().Moved = append(q.note().Moved, w.stand.key)
		q.stepOut(w)
	}
	q.note().Moved = append(q.note().Moved, w.passed...)
	q.settle(w)
}

// GiveUp is Leave for a waiter that does not come again: its share has back the turns that the waiter did
// not use.
func (q *Request) GiveUp(w *Waiter) {
	q.Leave(w)
	q.uncount(w)
}

// Again is Stand for a waiter that stands in line, but may have lost its place: see Row.Lists. One that needs slots
// must take them by itself, so it gets its place again and nothing else.
func (q *Request) Again(w *Waiter) {
	i := slices.IndexFunc(q.Booking.Charges, func(c store.Charge) bool { return w.stand != nil && c.Budget.Key == w.stand.key })
	q.Dismiss(w)
	if q.needsSlots && i >= 0 {
		q.lineUp(w, i)
		return
	}
	q.Stand(w)
}

// Dismiss takes a waiter out of the line that it stands in: it is to ask again.
func (q *Request) Dismiss(w *Waiter) {
	if w.stand != nil {
		q.stepOut(w)
	}
}

// stepOut takes a waiter out of its line.
func (q *Request) stepOut(w *Waiter) {
	if r := q.row(w.stand.key); r != nil && r.queue != nil {
		r.queue.leave(w.stand.class, w.stand.share, w.stand.place)
		r.queue.asked = r.seen
	}
	w.stand = nil
}

// settle ends the turns of a waiter: it is booked, or gives up.
func (q *Request) settle(w *Waiter) {
	for _, key := range w.passed {
		if r := q.row(key); r != nil && r.queue != nil {
			at, _ := w.arrival(key)
			r.queue.called = slices.DeleteFunc(r.queue.called, func(p place) bool { return p.arrival == at })
		}
	}
	w.passed = nil
}

// Book is BookNow for a caller that comes for the first time, and else Stand. The waiter has
// come (see Waiter.Come), and left what it had (see Leave). It reports whether the waiter is
// the caller's Turn.
func (q *Request) Book(w *Waiter) (turn bool) {
	if q.Booking.Turn == nil && q.BookNow() {
		return false
	}
	for i := range q.Searches {
		r := q.Searches[i].row
		if r == &untouched {
			r = nil
		}
		q.Searches[i] = Search{} // it may have looked ahead
		q.Open(i, r)
	}
	*q.Grant = store.Grant{}
	q.Stand(w)
	return true
}

// Stand books a start for a waiter that is in no line, or puts it in one. It gives back
// what the booking replaces.
func (q *Request) Stand(w *Waiter) { q.stand(w, Key{}) }

// stand is Stand for a waiter that just had its turn in the row of a budget, if any.
func (q *Request) stand(w *Waiter, turn Key) {
	b, g := q.Booking, q.Grant
	if turn != (Key{}) {
		w.pass(turn)
	}

	// Give back the old start before the search, or the caller would keep behind it.
	q.giveBackInstead()
	for i := range q.Searches {
		s := &q.Searches[i]
		q.begin(s, q.Now+Micros(b.NotBefore))
		if _, known := w.arrival(q.key(i)); !w.lost && (!known || w.turn == q.key(i)) {
			s.behind(b)
		}
		if q.early != 0 && q.key(i) == q.earlyKey {
			s.tail = max(s.tail, q.early)
		}
	}

	g.HeldBy = store.NotHeld
	at, wait := q.hold(w, turn)
	switch {
	case at < 0:
		if q.start(q.find(q.Now + Micros(b.NotBefore))); g.OK {
			q.count(w)
		}
	case q.refuse(at, wait):
	case q.Bounded && q.Searches[at].row.queue.isCrowded(maxShares(q.Searches[at].rule.n), w.class, b.Charges[at].Share.ID):
		g.HeldBy, g.Wait, g.Paused, g.Shares = at, wait, q.isPaused(at), maxShares(q.Searches[at].rule.n)
	default:
		q.lineUp(w, at)
		g.HeldBy, g.Wait, g.Paused = at, wait, q.isPaused(at)
	}
	if b.Instead.Place != 0 { // its slots may be another's
		for i := range q.Searches {
			q.setAside(i)
		}
	}
	if w.stand == nil && (g.OK || !q.Waits) {
		q.settle(w)
	}
}

// refuse refuses a caller that may not wait until its turn in the line of a charge, and reports whether it did. The
// budgets together may have room later than each of them.
func (q *Request) refuse(at int, wait time.Duration) bool {
	b, g := q.Booking, q.Grant
	if b.MaxWait < 0 {
		return false
	}

	if start := waitOf(q.find(q.Now+Micros(b.NotBefore)) - q.Now); start > wait {
		at, wait = g.HeldBy, start
	}
	if b.MaxWait > 0 && wait <= b.MaxWait {
		return false
	}
	g.HeldBy, g.Wait, g.Paused = at, wait, q.isPaused(at)
	return true
}

// isPaused reports whether a penalty closes the budget of a charge when the caller may start at the earliest.
func (q *Request) isPaused(at int) bool { return q.Searches[at].row.paused > q.Searches[at].from }

// lineUp puts a waiter in the line of a charge.
func (q *Request) lineUp(w *Waiter, i int) {
	s, key := &q.Searches[i], q.key(i)
	at, known := w.arrival(key)
	if !known {
		at = q.Arrivals.next(max(q.Now, s.row.queue.newest()+1))
	}
	s.row.lease(q.Node)
	p, share := s.row.lineUp(w.class, q.Booking.Charges[i].Share, place{at, s.rule.cost, q.Node.ID, w.front(key)})
	w.stand = &stand{key, w.class, share, p}
	w.came(key, w.stand.place.arrival)
	q.Waits = true
}

// hold returns the charge whose line the waiter must stand in, below 0 for none, and how
// long it will wait there, as far as one can tell.
//
// A waiter that had its turn in a row, and finds that another is not near any more where
// it had its turn before, might never find both near. So it has the first start that is
// possible in both: one such start at a time in each row.
func (q *Request) hold(w *Waiter, turn Key) (at int, wait time.Duration) {
	at = -1
	near := q.Booking.Horizon + q.Booking.NotBefore
	for i := range q.Searches {
		s, key := q.Searches[i], q.key(i) // a copy: what it finds for here is not for later
		if q.Booking.Charges[i].Shadow || s.rule.slots {
			continue
		}
		sum := int64(0)
		if l := s.row.lively(lapse(q.Booking.Horizon)); l != nil && key != turn {
			came, known := w.arrival(key)
			if !known {
				came = newcomer
			}
			sum = l.before(w.class, q.Booking.Charges[i].Share.ID, came, w.front(key))
		}
		t := s.earliest(s.from)
		if sum > 0 {
			// The waiters before it do not start now, so this one waits for some time: with a wait
			// of 0 a caller that may wait no longer would get a place in line, and ask again at once.
			t = max(t, q.Searches[i].turn(sum+s.rule.cost), q.Now+1)
			if s.row.paused > 0 {
				t = max(t, q.Searches[i].together(sum+s.rule.cost))
			}
		}
		d := time.Duration(t-q.Now) * time.Microsecond
		far := d > near && key != turn
		if far && slices.Contains(w.passed, key) {
			far = s.row.pin > q.Now+Micros(near)
		}
		if (sum > 0 || far) && (at < 0 || d > wait) {
			at, wait = i, d
		}
	}
	return at, wait
}

// Head returns the place of the waiter that is served next in the line of a budget; false if there
// is none, or if one that was called has not come: it serves the line when it comes. A line
// without waiters is forgotten.
func (r *Row) Head(key Key) (at Place, ok bool) {
	if r.queue == nil {
		return Place{}, false
	}
	if r.queue.empty() {
		r.queue = nil
		return Place{}, false
	}
	p, ok := r.queue.head()
	return Place{key, p.arrival, p.node}, ok && len(r.queue.called) == 0
}

// Due returns in how long the first start in a budget is within the horizon of the waiter
// at the head of its line; 0 if it is.
func (q *Request) Due(w *Waiter, key Key) time.Duration {
	for i := range q.Searches {
		if q.key(i) != key {
			continue
		}
		s := q.Searches[i]
		q.begin(&s, q.Now)
		if !w.lost {
			s.behind(q.Booking)
		}
		return max(0, time.Duration(s.earliest(q.Now)-q.Now)*time.Microsecond-q.Booking.Horizon)
	}
	return 0
}

// Serve takes the waiter at the head of a line out of it and books for it, or lets it stand
// in another. One that needs slots must take them by itself: it is called, and the line
// stands still until it has come.
func (q *Request) Serve(w *Waiter, key Key) (called bool) {
	at := *w.stand
	q.stepOut(w)
	q.countIn(w, key)
	if !q.needsSlots {
		q.stand(w, key)
		return false
	}
	w.pass(key)
	r := q.row(key)
	r.queue.called = append(r.queue.called, at.place)
	return true
}
