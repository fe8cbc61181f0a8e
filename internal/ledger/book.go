package ledger

import (
	"time"

	"github.com/fleetthrottle/throttle/internal/farthest"
	"github.com/fleetthrottle/throttle/store"
)

// BookNow books for a caller that finds no waiters in line. It returns false if there are
// waiters, the caller comes from a line, or the start is beyond the horizon: then nothing
// was done, and the caller stands in line.
func (q *Request) BookNow() (decided bool) {
	b := q.Booking
	from := q.Now + Micros(b.NotBefore)
	for i := range q.Searches {
		s := &q.Searches[i]
		q.begin(s, from)
		s.behind(b)
	}
	if b.Horizon > 0 && (b.Returns || b.Instead != (store.Handle{}) || q.inLine()) {
		return false
	}
	q.giveBackInstead()
	t := q.find(from)
	if isFar(b, t-q.Now) {
		return false
	}
	q.book(t)
	return true
}

// inLine reports whether a caller waits for a start in one of the budgets.
func (q *Request) inLine() bool {
	for i := range q.Searches {
		if q.Searches[i].row.queue != nil {
			return true
		}
	}
	return false
}

// isFar reports whether a booking has to wait in line for a start that is so far away,
// and may.
func isFar(b *store.Booking, wait int64) bool {
	return wait > 0 && b.Horizon > 0 && wait > Micros(b.Horizon+b.NotBefore) && b.MaxWait != 0 &&
		(b.MaxWait < 0 || wait <= Micros(b.MaxWait))
}

// giveBackInstead gives back what the booking replaces.
func (q *Request) giveBackInstead() {
	if q.Booking.Instead == (store.Handle{}) {
		return
	}
	for i := range q.Searches {
		q.Searches[i].giveBack(q.Booking.Instead, q.Node)
	}
}

// find returns the earliest start not before t that has room in every budget
// that counts, and notes which charge set it. Each answer is a lower bound for the others,
// so the search ends when a whole round moves nothing.
func (q *Request) find(t int64) int64 {
	from, g := t, q.Grant
	g.HeldBy = store.NotHeld
	for still := 0; still < len(q.Searches); {
		for i := range q.Searches {
			if still++; q.Booking.Charges[i].Shadow {
				continue
			}
			if next := q.Searches[i].earliest(t); next > t {
				t, still, g.HeldBy = next, 1, i
				g.Paused = q.Searches[i].row.paused > from
			}
		}
	}
	return t
}

// book books the start at t, and calls the waiters for which the caller makes room.
func (q *Request) book(t int64) {
	if q.start(t); q.Booking.Instead.Place != 0 { // its slots may be another's
		for i := range q.Searches {
			q.setAside(i)
		}
	}
}

// start books the start at t, if it is of use.
func (q *Request) start(t int64) {
	b, g := q.Booking, q.Grant
	if g.Wait = waitOf(t - q.Now); g.Wait == store.Never {
		return
	}
	if b.MaxWait >= 0 && g.Wait > b.MaxWait || t == q.Now && q.needsSlots && !q.acquire() {
		return
	}
	g.OK, g.Handle = true, store.Handle{Start: t, Stamp: 1}
	switch {
	case b.Horizon <= 0 || g.HeldBy < 0:
	case q.early != 0 && q.key(g.HeldBy) == q.earlyKey: // those that came before it have not booked yet, and must not keep behind it
	case t-q.Now <= Micros(b.Horizon+b.NotBefore):
		if held := &q.Searches[g.HeldBy]; !held.rule.slots { // no start is in a row of those
			held.row.keepBehind(class(b.Priority), t)
		}
	default:
		q.pin(t)
	}
	for i := range q.Searches {
		c, s := &b.Charges[i], &q.Searches[i]
		if c.Shadow {
			q.over(i, s.earliest(t)-t)
		} else {
			g.Handle.Stamp += s.row.lifts
		}
		switch {
		case s.free:
		case s.rule.peak == 0:
			s.row.bookProbe(t, &s.rule)
		case !s.rule.slots:
			s.row.book(t, &s.rule)
		case t == q.Now:
			s.row.hold(s.rule.cost, q.Node)
		}
	}
}

// waitOf returns a wait as callers are told it.
func waitOf(micros int64) time.Duration {
	if micros > Micros(farthest.Wait) {
		return store.Never
	}
	return time.Duration(micros) * time.Microsecond
}

// over notes how much later the start would have been if a Shadow charge counted.
func (q *Request) over(i int, late int64) {
	if late == 0 {
		return
	}
	if q.Grant.Over == nil {
		q.Grant.Over = make([]time.Duration, len(q.Searches))
	}
	q.Grant.Over[i] = time.Duration(late) * time.Microsecond
}

// pin notes a start that several budgets have beyond the horizon.
func (q *Request) pin(start int64) {
	for i := range q.Searches {
		if !q.Searches[i].free {
			q.Searches[i].row.pin = start
		}
	}
}

// acquire reports whether all Concurrency charges have room. If not, nothing is taken:
// the booking gets a place in the first line that it must stand in, if it can wait.
func (q *Request) acquire() bool {
	b := q.Booking
	arrival := b.Instead.Place
	for i := range q.Searches {
		s := &q.Searches[i]
		if !s.rule.slots || b.Charges[i].Shadow {
			continue
		}
		l := s.row.slots
		if s.called && l.taken() <= s.rule.room || l.admits(&s.rule, arrival) {
			continue
		}
		q.Grant.HeldBy = i
		if b.MaxWait != 0 {
			if arrival == 0 {
				arrival = q.Arrivals.next(max(q.Now, l.newest()+1))
			}
			s.row.lease(q.Node)
			l.asked = q.Now
			l.lineUp(&s.rule, arrival, q.Node.ID)
			q.Grant.Handle, q.Waits = store.Handle{Place: arrival}, true
		}
		return false
	}
	return true
}

// Cancel gives back a grant that was not used, or a place in line.
func (q *Request) Cancel(g store.Grant) {
	for i := range q.Searches {
		s := &q.Searches[i]
		s.giveBack(g.Handle, q.Node)
		if g.OK && g.Wait == 0 {
			s.release(q.Node)
		}
		q.setAside(i)
	}
	q.moved()
}

// Release ends what a granted booking holds of its Concurrency charges.
func (q *Request) Release() {
	for i := range q.Searches {
		q.Searches[i].release(q.Node)
		q.setAside(i)
	}
	q.moved()
}

// Settle changes what a granted start cost, to costs[i] for the i-th charge.
func (q *Request) Settle(g store.Grant, costs []int) {
	for i := range q.Searches {
		s := &q.Searches[i]
		if !s.rule.slots && s.rule.peak > 0 {
			s.row.settle(g.Handle.Start, &s.rule, int64(costs[i]))
		}
	}
	q.moved()
}

// Usable reports whether a booked start may be used: no budget is closed at its time, and
// none was resumed since it was booked. A row that does not exist is nil.
func Usable(charges []store.Charge, g store.Grant, row func(i int) *Row) bool {
	stamp := int64(1)
	for i := range charges {
		if r := row(i); r != nil && !charges[i].Shadow {
			if r.paused > g.Handle.Start {
				return false
			}
			stamp += r.lifts
		}
	}
	return g.Handle.Stamp == 0 || g.Handle.Stamp == stamp // a caller that does not know the stamp has 0
}
