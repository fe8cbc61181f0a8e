package ledger

import (
	"time"

	"github.com/fleetthrottle/throttle"
)

// Status describes the budget of the only charge, which has a cost of 1, by a copy of its
// row: see Row.Clone.
func (q *Request) Status() throttle.Status {
	s := &q.Searches[0]
	s.wake(q.Now)
	r := s.row
	s.from = q.Now
	st := throttle.Status{Limit: q.Booking.Charges[0].Limit}
	if s.rule.slots {
		st.Used, st.Waiting = r.inFlight()
	} else {
		st.Used, st.Booked = r.starts(q.Now, &s.rule)
		st.Waiting = st.Booked + int(r.waiting())
		st.Shares = r.queue.shares()
	}
	st.Wait = time.Duration(r.wait(s)-q.Now) * time.Microsecond
	st.Paused = time.Duration(max(0, r.paused-q.Now)) * time.Microsecond
	st.Repeated = r.repeated(q.Now)
	if r.ceiling.isOf(&s.rule) {
		st.Ceiling = cutOff(r.ceiling.at(q.Now))
	}
	return st
}

// starts sums the costs that count now: of starts that have come, and of those that are
// booked for later. An entry whose first start has come counts as if all of them had.
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
	if u.unit > 0 {
		used = min(used, 1)
	}
	return used, booked
}

// come is how much of an entry that has begun has come: all, but of a block, whose units
// come one after another.
func (e *entry) come(now int64, u *rule) int64 {
	if u.unit == 0 || e.last <= now {
		return e.n
	}
	return min(e.n, max(1+(now-e.first)/u.unit, e.n-(e.last-now+u.unit-1)/u.unit))
}

// inFlight sums the costs of what runs and of what waits in line.
func (r *Row) inFlight() (held, waiting int) {
	if r.slots == nil {
		return 0, 0
	}
	for _, w := range r.slots.line {
		waiting += int(w.cost)
	}
	return int(r.slots.held), waiting + int(r.slots.beyond)
}

// wait returns when one that comes now would start, behind those in line.
func (r *Row) wait(q *Search) int64 {
	turn := q.from
	if sum := r.waiting(); sum > 0 && !q.rule.slots {
		turn = q.turn(sum + q.rule.cost)
	}
	q.behind(&throttle.Booking{Horizon: 1})
	return max(turn, q.earliest(q.from))
}
