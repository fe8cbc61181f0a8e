package ledger

import "slices"

// farWindows is how many windows of a calendar are looked at one by one.
const farWindows = 64

// turn returns when a caller with so much of the limit before it, its own cost included,
// will start: if nothing changes. The search has not begun.
func (s *Search) turn(rank int64) int64 {
	from, u := max(s.from, s.row.paused), &s.rule
	switch {
	case u.unit > 0:
		if k := len(s.row.entries); k > 0 {
			from = max(from, s.row.entries[k-1].end(u.unit+u.pad, u.n))
		}
		return from + (rank-u.cost)*(u.unit+u.pad)
	case u.tokens > 0:
		v := Search{row: s.row, rule: s.rule, from: s.from, level: level{s.row.lost, s.row.level}}
		v.rule.room -= rank - u.cost
		return v.filled(from)
	case u.aligned:
		return s.alignedTurn(from, rank)
	case u.peak == 0:
		return from
	default:
		return max(s.slidingTurn(from, rank), s.pacedTurn(from, rank))
	}
}

// pacedTurn is the turn by the distances alone that starts keep which have to wait: from the last start that others waited
// for, smaller ones where the window has room; and from when the window that the caller starts in has room for its first.
func (s *Search) pacedTurn(from, rank int64) int64 {
	u := &s.rule
	if u.pace == 0 {
		return from
	}

	used := int64(0)
	for _, e := range s.row.entries {
		if e.last > from-u.span {
			used += e.n
		}
	}
	behind := max(from, slices.Max(s.row.tails[:])) + (rank-u.cost)*u.pace*min(used, u.most)/u.most

	first := max((rank-1)/u.usable()*u.usable()+1, u.cost)
	t := max(behind, s.slidingTurn(from, first)+(rank-first)*u.pace)

	// Where starts are at the begin of a part of the window, this one is at the next: see even.
	if part := partOf(u.span); s.single && u.n > windowParts && 2*u.pace*u.most >= u.span && u.cost*u.pace <= part {
		t = (t + part - 1) / part * part
	}
	return t
}

// together returns when a request would start that costs as much as the caller and all that goes before
// it. Turn does not know that a slow start has room for a part of that only.
func (s *Search) together(rank int64) int64 {
	v := Search{row: s.row, rule: s.rule, from: s.from, level: level{s.row.lost, s.row.level}}
	more := min(rank, s.rule.usable()) - s.rule.cost
	v.rule.cost += more
	v.rule.room -= more
	return v.earliest(s.from)
}

// usable is how much of the limit the charge may use.
func (u *rule) usable() int64 { return u.room + u.cost }

// slidingTurn: room comes back as entries leave the window, and each window after that is
// like the one before.
func (s *Search) slidingTurn(from, rank int64) int64 {
	most, span := s.rule.usable(), s.rule.span
	cycles := (rank - 1) / most
	missing := rank - cycles*most - most
	t := from
	for _, e := range s.row.entries {
		if e.last+span > from {
			missing += e.n
		}
	}
	for _, e := range s.row.entries {
		if missing <= 0 {
			break
		}
		if e.last+span > from {
			t = e.last + span
			missing -= e.n
		}
	}
	return t + cycles*span
}

// alignedTurn fills window after window.
func (s *Search) alignedTurn(from, rank int64) int64 {
	most, t := s.rule.usable(), from
	for range farWindows {
		start, end, _ := s.rule.window(t)
		left := most
		for _, e := range s.row.entries {
			if e.last >= start && e.first < end {
				left -= e.n
			}
		}
		if rank <= left {
			return t
		}
		rank -= max(0, left)
		t = end
	}
	_, _, keep := s.rule.window(t)
	return t + (rank-1)/most*keep
}
