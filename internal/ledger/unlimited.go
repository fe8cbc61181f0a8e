package ledger

// untouched stands for the row of an unlimited budget that was not closed: there is
// none. It is never written to.
var untouched Row

// passBy makes the search one of an unlimited budget that is not shut, if that is sure
// without a look into the row: that is left as it is.
func (s *Search) passBy(r *Row, now int64) bool {
	if r == nil {
		r = &untouched
	}
	s.row, s.free = r, r.queue == nil && r.isOpen(now) && now >= r.seen
	return s.free
}

// wake brings a row that was passed by to the time now.
func (s *Search) wake(now int64) {
	if s.free {
		s.row.advance(now, &s.rule)
	}
}

// isOpen reports whether an unlimited budget holds nothing: no penalty closes it, and
// the time of the probe after the last one is over. See docs/internals/unlimited.md.
func (r *Row) isOpen(now int64) bool { return r.paused == 0 || r.paused+r.last.probe <= now }

// bookProbe counts a start of an unlimited budget, if it goes first after a penalty.
// All others are in no row.
func (r *Row) bookProbe(t int64, u *rule) {
	if t < r.paused+r.last.probe && t+u.length() >= r.paused {
		r.add(t, t+u.length(), 1)
		r.bound()
	}
}

// forgetProbe takes out of an unlimited budget's row all that is in it, unless it had
// another limit lately, under which that counts.
func (r *Row) forgetProbe() {
	if r.most == 0 {
		r.entries, r.total = nil, 0
	}
}
