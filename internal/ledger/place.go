package ledger

import (
	"slices"

	"github.com/fleetthrottle/throttle/internal/farthest"
	"github.com/fleetthrottle/throttle/store"
)

// book counts the cost at t.
func (r *Row) book(t int64, u *rule) {
	first, last := t, t+u.length()
	i := r.after(t)
	if u.unit > 0 {
		// Blocks without a gap between them become one.
		if i > 0 && r.entries[i-1].last == first-u.unit {
			first -= u.unit
		}
		if k := r.after(last + 1); k < len(r.entries) && r.entries[k].first == last+u.unit {
			last += u.unit
		}
	} else if u.aligned {
		_, _, keep := u.window(t)
		r.span = max(r.span, keep) // months and days differ in length
	}
	shares, end := t, t
	if u.n > windowParts {
		shares, end = u.part(t)
	}
	switch k := len(r.entries); {
	case u.unit > 0:
		r.add(first, last, u.cost)
	case k == 0 || r.entries[k-1].first <= t:
		r.push(first, last, u.cost, shares)
	default:
		first, last = r.share(i, first, last, shares, end)
		r.add(first, last, u.cost)
	}
	r.until = max(r.until, last+r.span)
	r.bound()
}

// share widens [first, last] to touch a neighbour that lies in the same part of the window,
// [start, end), so that both become one entry. The neighbours of a new start
// are i-1 and i. One that begins within an entry shares that one.
func (r *Row) share(i int, first, last, start, end int64) (int64, int64) {
	if i < len(r.entries) && r.entries[i].first <= first {
		return first, last
	}
	if i > 0 && r.entries[i-1].first >= start {
		first = r.entries[i-1].last
	}
	if i < len(r.entries) && r.entries[i].last < end && r.entries[i].first > last {
		last = r.entries[i].first
	}
	return first, last
}

// giveBack takes a start, or a place in line, out of the row. What runs keeps
// what it has in flight.
func (s *Search) giveBack(h store.Handle, by Node) {
	switch {
	case s.free:
	case !s.rule.slots:
		if s.row.remove(h.Start, &s.rule) {
			s.row.untail(h.Start)
		}
	case h.Place != 0:
		s.row.slots.asked = s.row.seen
		s.called = s.row.slots.leave(h.Place, by.ID, s.rule.cost)
	}
}

// release ends what a node holds.
func (s *Search) release(by Node) {
	if s.rule.slots {
		s.row.release(s.rule.cost, by)
	}
}

// settle changes what the start at t cost, if it still counts. The room that it
// did not take is not looked for: what was spent was spent.
func (r *Row) settle(t int64, u *rule, cost int64) {
	if !u.counts(t, r.seen) {
		return
	}
	if cost < u.cost {
		r.untail(r.seen) // what is free now is for the next one
	}
	if !r.remove(t, u) {
		cost -= u.cost
		t += u.cost * u.unit // behind the other units
	}
	if u.unit > 0 {
		cost = min(cost, (Micros(farthest.Wait)+u.unit-1)/u.unit) // a higher cost closes the row for no longer
	}
	if cost > 0 {
		v := *u
		v.cost = cost
		r.book(t, &v)
	}
}

// remove takes the booking at t back out, and reports whether it could. One that may have
// been forgotten stays: an entry that overlapped its own holds only starts of others.
func (r *Row) remove(t int64, u *rule) bool {
	if t <= r.frozen || t+u.length() <= r.lost {
		return false
	}
	i, found := r.one(t)
	if !found {
		return false
	}
	e := r.entries[i]
	rest := max(0, e.n-u.cost)
	if rest > 0 && (u.unit == 0 || e.overfull(u.unit)) {
		r.entries[i].n = rest
		r.total -= u.cost
		return true
	}
	r.entries = slices.Delete(r.entries, i, i+1)
	r.total -= e.n
	if u.unit > 0 {
		r.split(e, rest, t, u)
		r.bound()
	}
	return true
}

// split puts back what is left of a block that was taken out for the booking at
// t: up to two halves, and as many units in each as fit. How many exactly is only
// of interest to a limit of another kind.
func (r *Row) split(e entry, rest, t int64, u *rule) {
	end := t + u.length() + u.unit
	if e.first < t {
		r.add(e.first, max(e.first, t-u.unit), max(1, min(rest, (t-e.first)/u.unit)))
	}
	if e.last >= end {
		r.add(end, e.last, max(1, min(rest, (e.last-end)/u.unit+1)))
	}
}
