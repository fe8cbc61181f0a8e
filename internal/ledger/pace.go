package ledger

// even returns the pace of a start that must wait until t. A limit whose pace reaches over
// its window, or that always had waiters, is in steady use: then a full window
// leaves as evenly as the limit lets it. What a start may be used later is part of its
// distance. The emptier the window behind all that is booked,
// the closer are the starts, down to the charge's own pace: so room that was left is used
// up, in a short window within a second, and what waits for no more than a third of a long
// one leaves at once. In a short window with a large limit that is not in a slow start, the starts of
// callers of a single budget are at the begin of the window's parts: then those that share
// an entry give it no width, and all of the window is used.
func (s *Search) even(t int64) int64 {
	r, u := s.row, &s.rule
	long := 2*u.pace*u.most < u.span
	if s.horizon <= 0 || long && !r.isBusy(u.span) {
		return u.pace
	}
	sum, e := r.total, r.entries
	if k := len(e); k > 0 {
		t = max(t, e[k-1].last)
	}
	for i := 0; i < len(e) && e[i].last+u.span <= t; i++ {
		sum -= e[i].n
	}
	sum = min(sum, u.most)
	full, fall, part := u.span*24/25/u.most, int64(5), int64(0)
	if long {
		fall = 3
	} else if s.single && u.n > windowParts && u.spread == 0 && r.paused == 0 {
		full, fall, part = u.span/u.most, 2, partOf(u.span)
	}
	pace := max(u.pace, full*(fall*sum-(fall-2)*u.most)/(2*u.most)-u.spread)
	if pace*u.cost <= part {
		s.part = part
	}
	return pace
}

// clear returns the first moment not before t that is clear of all starts still
// to come, and if the line is steady of those that have come.
func (s *Search) clear(t int64) int64 {
	apart := s.rule.cost * s.pace
	t = s.align(t)
	for e := s.row.entries; s.k < len(e); s.k++ {
		if e[s.k].last <= s.row.seen && !s.steady || s.shares(&e[s.k], t) {
			continue
		}
		end := s.over(&e[s.k], apart)
		if end <= t {
			continue
		}
		if t+max(s.rule.spread+s.pace, apart) <= e[s.k].first {
			break
		}
		t = s.align(end)
	}
	return t
}

// over is when a start that keeps so far apart may be after those of an entry. In parts it is at
// the begin of the next one.
func (s *Search) over(e *entry, apart int64) int64 {
	switch {
	case s.part == 0:
		return e.last + apart
	case e.first == e.last && e.first%s.part == 0:
		return e.first + s.part
	default:
		return e.last + 1
	}
}

// align returns the first moment not before t at which a part of the window begins, if starts
// are there.
func (s *Search) align(t int64) int64 {
	if s.part == 0 {
		return t
	}
	return (t + s.part - 1) / s.part * s.part
}

// shares reports whether an entry at t, the begin of a part, has room for the start. There may be as
// many as there are multiples of their distance in the part.
func (s *Search) shares(e *entry, t int64) bool {
	if s.part == 0 || e.first != t || e.last != t {
		return false
	}
	apart := s.rule.cost * s.pace
	return e.n+s.rule.cost <= ((t+s.part)/apart-t/apart)*s.rule.cost
}
