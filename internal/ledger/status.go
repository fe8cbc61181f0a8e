package ledger

import (
	"context"
	"math"
	"time"

	"github.com/fleetthrottle/throttle/store"
)

// A Reader makes a request for a charge with a copy of the charge's row, and calls
// read with the request: see Row.Clone. Stores embed a Reader: operations that only
// read one budget are methods of Reader, and not of each store.
type Reader func(c store.Charge, read func(*Request))

// Status implements [store.Store]. The charge's cost does not matter, and the error
// is nil.
func (r Reader) Status(_ context.Context, c store.Charge) (st store.Status, err error) {
	c.Cost = 1
	r(c, func(q *Request) { st = q.Status() })
	return st, nil
}

// come returns how many starts of an entry that has begun have come by the time now.
// These are all its starts, unless the entry is a block of a leaky bucket, whose
// units come one by one.
func (e *entry) come(now int64, u *rule) int64 {
	if u.unit == 0 || e.last <= now {
		return e.n
	}

	// One unit has come at the begin, and one for each unit of time since. At most one is to come for each unit of time until the end.
	return min(e.n, max(1+(now-e.first)/u.unit, e.n-(e.last-now+u.unit-1)/u.unit))
}

// starts sums the costs of the starts that have come and still count, and of the
// starts that are booked for later. All starts of an entry that has begun count as
// having come, unless the entry is a block: see come. Under an unlimited budget no
// start counts once it has come.
func (r *Row) starts(now int64, u *rule) (used, booked int) {
	since, _, _ := u.window(now)
	for _, e := range r.entries {
		switch {
		case e.first > now:
			booked += int(e.n)
		case e.last >= since && u.peak > 0:
			come := e.come(now, u)
			used, booked = used+int(come), booked+int(e.n-come)
		}
	}

	// A leaky bucket has room for one start at a time.
	if u.unit > 0 {
		used = min(used, 1)
	}

	return used, booked
}

// inFlight sums the costs of requests in flight and of the waiters for slots, and
// estimates the number of these waiters: see callersOf.
func (r *Row) inFlight() (held, waiting, callers int) {
	if r.slots == nil {
		return 0, 0, 0
	}
	listed := int64(0)
	for _, w := range r.slots.line {
		listed += w.cost
	}
	beyond := r.slots.beyond
	return int(r.slots.held), int(listed + beyond), callersOf(len(r.slots.line), listed, beyond)
}

// callers estimates the number of waiters in all lanes of a line, 0 without a line:
// see callersOf.
func (l *queue) callers() int {
	if l == nil {
		return 0
	}
	places, costs, beyond := 0, int64(0), int64(0)
	for _, c := range l.lanes {
		for i := range c {
			places += len(c[i].places)
			costs += c[i].costs - c[i].beyond
			beyond += c[i].beyond
		}
	}
	return callersOf(places, costs, beyond)
}

// callersOf estimates the number of waiters in a line. places is the number of
// waiters with a place, and costs the sum of their costs. Of the waiters without a
// place only the sum of their costs, beyond, is known: each of them is taken to cost
// as much as a waiter with a place on average, or 1 if none has a place.
func callersOf(places int, costs, beyond int64) int {
	if places == 0 || beyond == 0 {
		return places + int(beyond)
	}
	mean := max(1, float64(costs)/float64(places))
	return places + int(math.Ceil(float64(beyond)/mean))
}

// wait returns when a caller that comes now would start, behind the waiters in
// line. s is a search of the row. A wait for slots is unknown, and does not count.
func (r *Row) wait(s *Search) int64 {
	turn := s.from
	if sum := r.waiting(); sum > 0 && !s.rule.slots {
		turn = s.turnAt(sum + s.rule.cost)
	}

	// Keep behind the starts for which others waited, as every booking with a horizon does.
	s.behind(&store.Booking{Horizon: 1})
	return max(turn, s.earliest(s.from))
}

// Status describes the budget of the only charge, which has a cost of 1. The request
// must have a copy of the row, because Status changes it: see Row.Clone.
func (q *Request) Status() store.Status {
	s := &q.Searches[0]
	s.wake(q.Now)
	r := s.row
	s.from = q.Now // wait counts from here

	// Used are the slots in flight, or the starts that have come.
	st := store.Status{Limit: q.Booking.Charges[0].Limit}
	if s.rule.slots {
		st.Used, st.Waiting, st.Callers = r.inFlight()
	} else {
		st.Used, st.Booked = r.starts(q.Now, &s.rule)
		st.Waiting = st.Booked + int(r.waiting())
		st.Callers = r.queue.callers()
		st.Shares = r.queue.shares()
	}

	st.Wait = waitOf(r.wait(s) - q.Now)
	st.Paused = time.Duration(max(0, r.paused-q.Now)) * time.Microsecond
	st.Repeated = r.repeated(q.Now)
	if r.ceiling.isOf(&s.rule) {
		st.Ceiling = cutOff(r.ceiling.at(q.Now))
	}
	st.Told, st.ToldAgo = r.toldLimit(q.Now, &s.rule)
	return st
}
