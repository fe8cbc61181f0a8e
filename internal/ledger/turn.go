package ledger

import (
	"slices"
	"time"

	"github.com/fleetthrottle/throttle/store"
)

// When waiters will have their turn, as far as anybody can tell: if nothing
// changes. A rank is the sum of the costs up to a caller in its line, its own
// cost included. When callers come again that left with their places is at the
// end of this file.

// farWindows is how many windows of a calendar are looked at one by one.
const farWindows = 64

// slidingTurn returns the turn in sliding windows: room comes back as entries
// leave the window, and each window after that is like the window before.
func (s *Search) slidingTurn(from, rank int64) int64 {
	most, span := s.rule.usable(), s.rule.span

	// Whole windows pass before the window of the turn. In that one, missing is the cost that must leave the window first.
	cycles := (rank - 1) / most
	used, first := s.row.later(from - span)
	missing := used + rank - cycles*most - most

	i, e := first, s.row.entries
	for missing > 0 && i < len(e) {
		missing -= e[i].n
		i++
	}
	if i > first {
		from = e[i-1].last + span
	}
	return from + cycles*span
}

// pacedTurn returns the turn by the distances alone that waiting starts keep:
// from the last start that others waited for, with smaller distances where the
// window has room; and from when the window of the caller's start has room for
// its first start.
func (s *Search) pacedTurn(from, rank int64) int64 {
	u := &s.rule
	if u.pace == 0 {
		return from
	}

	used, _ := s.row.later(from - u.span)
	behind := max(from, slices.Max(s.row.tails[:])) + (rank-u.cost)*u.pace*min(used, u.most)/u.most

	first := max((rank-1)/u.usable()*u.usable()+1, u.cost)
	t := max(behind, s.slidingTurn(from, first)+(rank-first)*u.pace)

	// Where starts are at the begin of a part of the window, this start is at the next: see even.
	if part := partOf(u.span); s.single && u.n > windowParts && 2*u.pace*u.most >= u.span && u.cost*u.pace <= part {
		t = (t + part - 1) / part * part
	}
	return t
}

// leftIn returns how much of a limit of left the starts in a window leave.
func (r *Row) leftIn(left, start, end int64) int64 {
	for _, e := range r.entries {
		if e.last >= start && e.first < end {
			left -= e.n
		}
	}
	return left
}

// alignedTurn returns the turn in fixed windows: it fills window after window.
func (s *Search) alignedTurn(from, rank int64) int64 {
	most, t := s.rule.usable(), from
	for range farWindows {
		start, end, _ := s.rule.window(t)
		left := s.row.leftIn(most, start, end)
		if rank <= left {
			return t
		}
		rank -= max(0, left)
		t = end
	}

	// Later windows are taken to be empty, and as long as this one.
	_, _, keep := s.rule.window(t)
	return t + (rank-1)/most*keep
}

// bucketTurn returns the turn in a token bucket: from its level on, when the
// tokens of all ranks have flowed in.
func (s *Search) bucketTurn(from, rank int64) int64 {
	v := Search{row: s.row, rule: s.rule, from: s.from, level: level{s.row.lost, s.row.level}}
	v.rule.room -= rank - s.rule.cost
	return v.filled(from)
}

// turnAt returns when a caller of that rank will start, if nothing changes. The
// search has not begun.
func (s *Search) turnAt(rank int64) int64 {
	from, u := max(s.from, s.row.paused), &s.rule
	switch {
	case u.unit > 0:
		if k := len(s.row.entries); k > 0 {
			from = max(from, s.row.entries[k-1].blockEnd(u.unit+u.pad, u.n))
		}
		return from + (rank-u.cost)*(u.unit+u.pad)
	case u.tokens > 0:
		return s.bucketTurn(from, rank)
	case u.aligned:
		return s.alignedTurn(from, rank)
	case u.peak == 0:
		return from
	default:
		return max(s.slidingTurn(from, rank), s.pacedTurn(from, rank))
	}
}

// together returns when one request would start that costs as much as the caller
// and all callers before it. The slow start has room for only a part of that at
// once, which turnAt does not consider.
func (s *Search) together(rank int64) int64 {
	v := Search{row: s.row, rule: s.rule, from: s.from, level: level{s.row.lost, s.row.level}}
	more := min(rank, s.rule.usable()) - s.rule.cost
	v.rule.cost += more
	v.rule.room -= more
	return v.earliest(s.from)
}

// Appointments are until when callers that left with their places have
// appointments, in microseconds of the store's clock: callers that left for the
// first time, and callers that came back and left again.
type Appointments [2]int64

// of returns the end of the appointments of one kind of callers.
func (a *Appointments) of(again bool) *int64 {
	if again {
		return &a[1]
	}
	return &a[0]
}

// Make returns in how long a caller should come again that leaves now, and that
// was told a wait: behind the appointment before it by the time that the limit
// takes for the charge.
func (a *Appointments) Make(now int64, c *store.Charge, wait time.Duration, again bool) time.Duration {
	tail := a.of(again)
	at := max(now+Micros(wait), *tail)
	*tail = at + Micros(Distance(c))
	return time.Duration(at-now) * time.Microsecond
}

// Distance returns how long a limit takes for a charge, where starts flow
// evenly. It is 0 if nobody knows.
func Distance(c *store.Charge) time.Duration {
	if n := c.Limit.N(); n > 0 && c.Limit.Per() > 0 {
		return time.Duration(float64(c.Limit.Per()) * float64(c.Cost) / float64(n))
	}
	return 0
}
