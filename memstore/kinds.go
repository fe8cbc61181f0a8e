package memstore

import (
	"slices"

	"github.com/fleetthrottle/throttle"
)

// A search looks for the earliest start on one row. It remembers how far it
// came, so that asking again for a later start costs only the rest of the way.
type search struct {
	row  *row
	rule rule
	i, j int   // Sliding: the run of entries i … j-1
	sum  int64 // its sum
	k    int   // the entry that the pace stands at
	wait int64 // Sliding: the earliest start by the limit alone; 0: not asked yet
}

// earliest returns the first start not before t that has room for the cost.
// Successive calls must not go back.
func (s *search) earliest(t int64) int64 {
	t = max(t, s.row.paused)
	switch s.rule.kind {
	case throttle.Sliding:
		return s.slidingPaced(t)
	case throttle.Aligned:
		return s.aligned(t)
	default:
		return s.paced(t)
	}
}

// slidingPaced is sliding for a charge that may have a pace: it counts when the
// limit alone, or a penalty, makes the request wait.
func (s *search) slidingPaced(t int64) int64 {
	now := s.row.seen
	if s.wait == 0 {
		s.wait = s.sliding(max(now, s.row.paused))
	}
	t = s.sliding(max(t, s.wait))
	if s.rule.pace == 0 || s.wait == now {
		return t
	}
	for {
		clear := s.clear(t)
		if clear == t {
			return t
		}
		t = s.sliding(clear)
	}
}

// clear returns the first moment not before t that is clear of all starts still
// to come.
func (s *search) clear(t int64) int64 {
	pace := s.rule.pace
	length := max(s.rule.spread+pace, s.rule.cost*pace)
	for e := s.row.entries; s.k < len(e); s.k++ {
		if e[s.k].last <= s.row.seen {
			continue
		}
		end := e[s.k].end(pace)
		if end <= t {
			continue
		}
		if t+length <= e[s.k].first {
			break
		}
		t = end
	}
	return t
}

// sliding sweeps the forbidden ranges of docs/booking.md: entry i and the
// shortest run from it that leaves no room forbid every start from which an
// interval of length span can touch the whole run.
func (s *search) sliding(t int64) int64 {
	span, room := s.rule.span, s.rule.n-s.rule.cost
	if s.row.total <= room {
		return t
	}
	e := s.row.entries
	for ; s.i < len(e); s.i++ {
		if e[s.i].last+span > t {
			for s.j < len(e) && s.sum <= room {
				s.sum += e[s.j].n
				s.j++
			}
			far := e[max(s.j, 1)-1].first
			if s.sum <= room || t+s.rule.spread+span <= far {
				return t
			}
			if far-e[s.i].last < span {
				t = e[s.i].last + span
			}
		}
		if s.j > s.i {
			s.sum -= e[s.i].n
		} else {
			s.j++
		}
	}
	return t
}

// aligned goes from window to window.
func (s *search) aligned(t int64) int64 {
	tail, room := s.rule.jitter+s.rule.spread, s.rule.n-s.rule.cost
	e := s.row.entries
	for {
		start, end := s.rule.window(t)
		if t+tail >= end {
			t = end
			continue
		}
		for s.i < len(e) && e[s.i].last < start {
			s.i++
		}
		sum := int64(0)
		for j := s.i; j < len(e) && e[j].first < end; j++ {
			sum += e[j].n
		}
		if sum <= room {
			return t
		}
		if e[s.i].n > room && e[s.i].last >= end {
			_, end = s.rule.window(e[s.i].last) // it fills every window that it touches
		}
		t = end
	}
}

// paced looks for the first gap that is long enough.
func (s *search) paced(t int64) int64 {
	unit, length := s.rule.span, s.rule.length()
	for e := s.row.entries; s.i < len(e); s.i++ {
		end := e[s.i].end(unit)
		if end <= t {
			continue
		}
		if t+length+unit <= e[s.i].first {
			break
		}
		t = end
	}
	return t
}

// book counts the cost at t.
func (r *row) book(t int64, u *rule) {
	first, last := t, t+u.length()
	i := r.after(t)
	if u.kind == throttle.Paced {
		// Blocks without a gap between them become one.
		if i > 0 && r.entries[i-1].last == first-u.span {
			first -= u.span
		}
		if k := r.after(last + 1); k < len(r.entries) && r.entries[k].first == last+u.span {
			last += u.span
		}
	} else if u.n > slots {
		start, end := u.slot(t)
		first, last = r.share(i, first, last, start, end)
	}
	r.add(first, last, u.cost)
	r.until = max(r.until, last+r.span)
	r.bound(r.entries[len(r.entries)-1].last - r.span)
}

// share widens [first, last] to touch a neighbour that lies in the same slot
// [start, end), so that both become one entry. The neighbours of a new start
// are i-1 and i.
func (r *row) share(i int, first, last, start, end int64) (int64, int64) {
	if i > 0 && r.entries[i-1].first >= start {
		first = r.entries[i-1].last
	}
	if i < len(r.entries) && r.entries[i].last < end && r.entries[i].first > last {
		last = r.entries[i].first
	}
	return first, last
}

// remove takes the booking at t back out.
func (r *row) remove(t int64, u *rule) {
	i := r.after(t)
	if i == len(r.entries) || r.entries[i].first > t || r.seen < r.frozen {
		return
	}
	e := r.entries[i]
	rest := max(0, e.n-u.cost)
	if rest > 0 && (u.kind != throttle.Paced || e.overfull(u.span)) {
		r.entries[i].n = rest
		r.total -= u.cost
		return
	}
	r.entries = slices.Delete(r.entries, i, i+1)
	r.total -= e.n
	if u.kind != throttle.Paced {
		return
	}
	// The block splits in two. Each half may have up to as many units as
	// fit: how many is only of interest to a limit of another kind.
	end := t + u.length() + u.span
	if e.first < t {
		r.add(e.first, t-u.span, max(1, min(rest, (t-e.first)/u.span)))
	}
	if e.last >= end {
		r.add(end, e.last, max(1, min(rest, (e.last-end)/u.span+1)))
	}
}
