package ledger

import (
	"context"
	"math"
	"time"

	"github.com/fleetthrottle/throttle/store"
)

// A Reader calls read with a request for a charge that is made with a copy of
// the row: see Row.Clone. Stores embed a Reader: each operation that only reads
// one budget is a method here, and not of each store.
type Reader func(c store.Charge, read func(*Request))

// Status implements [store.Store].
func (r Reader) Status(_ context.Context, c store.Charge) (st store.Status, err error) {
	c.Cost = 1
	r(c, func(q *Request) { st = q.Status() })
	return st, nil
}

// come returns how much of an entry that has begun has come. That is all of it,
// unless it is a block of a leaky bucket, whose units come one by one.
func (e *entry) come(now int64, u *rule) int64 {
	if u.unit == 0 || e.last <= now {
		return e.n
	}

	// At least one unit has come for each unit of time since the begin, and at most one is to come for each unit of time until the end.
	return min(e.n, max(1+(now-e.first)/u.unit, e.n-(e.last-now+u.unit-1)/u.unit))
}

// starts sums the costs that count now: of starts that have come, and of starts
// that are booked for later. An entry whose first start has come counts as if
// all had, unless it is a block: see come.
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

// inFlight sums the costs of requests in flight and of waiters in line, and
// counts the callers in line.
func (r *Row) inFlight() (held, waiting, callers int) {
	if r.slots == nil {
		return 0, 0, 0
	}
	for _, w := range r.slots.line {
		waiting += int(w.cost)
	}
	callers = callersOf(len(r.slots.line), int64(waiting), r.slots.beyond)
	return int(r.slots.held), waiting + int(r.slots.beyond), callers
}

// callers counts the waiters in all lanes of a line.
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

// callersOf estimates the number of waiters in a line. The waiters with a place
// number places, and cost costs together. Of the waiters without a place only the
// sum of their costs, beyond, is known: each of them is taken to cost as much as a
// waiter with a place on average, or 1 if none has a place.
func callersOf(places int, costs, beyond int64) int {
	if places == 0 || beyond == 0 {
		return places + int(beyond)
	}
	mean := max(1, float64(costs)/float64(places))
	return places + int(math.Ceil(float64(beyond)/mean))
}

// wait returns when a caller that comes now would start, behind the waiters in
// line.
func (r *Row) wait(s *Search) int64 {
	turn := s.from
	if sum := r.waiting(); sum > 0 && !s.rule.slots {
		turn = s.turnAt(sum + s.rule.cost)
	}

	// Any horizon has the search keep behind the starts for which others waited.
	s.behind(&store.Booking{Horizon: 1})
	return max(turn, s.earliest(s.from))
}

// Status describes the budget of the only charge, which has a cost of 1. The
// request is made with a copy of the row: see Row.Clone.
func (q *Request) Status() store.Status {
	s := &q.Searches[0]
	s.wake(q.Now)
	r := s.row
	s.from = q.Now

	// The used slots are in flight. The used starts have come, and the others are booked.
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
