package ledger

import (
	"math"
	"time"

	"github.com/fleetthrottle/throttle/store"
)

// Status describes the budget of the only charge, which has a cost of 1, by a copy of its
// row: see Row.Clone.
func (q *Request) Status() store.Status {
	s := &q.Searches[0]
	s.wake(q.Now)
	r := s.row
	s.from = q.Now
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

// inFlight sums the costs of what runs and of what waits in line, and counts the callers in line.
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
			places, costs, beyond = places+len(c[i].places), costs+c[i].costs-c[i].beyond, beyond+c[i].beyond
		}
	}
	return callersOf(places, costs, beyond)
}

// callersOf returns how many waiters there are: those with places, which cost so much together, and those without, of which only the
// costs are known. The mean of the former is taken for the cost of each of the latter.
func callersOf(places int, costs, beyond int64) int {
	if places == 0 || beyond == 0 {
		return places + int(beyond)
	}
	mean := max(1, float64(costs)/float64(places))
	return places + int(math.Ceil(float64(beyond)/mean))
}

// wait returns when one that comes now would start, behind those in line.
func (r *Row) wait(q *Search) int64 {
	turn := q.from
	if sum := r.waiting(); sum > 0 && !q.rule.slots {
		turn = q.turn(sum + q.rule.cost)
	}
	q.behind(&store.Booking{Horizon: 1})
	return max(turn, q.earliest(q.from))
}
