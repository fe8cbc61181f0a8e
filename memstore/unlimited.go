package memstore

import "github.com/fleetthrottle/throttle"

// untouched stands for the row of an unlimited budget that nobody has closed: there is
// none. It is never written to.
var untouched row

// passBy makes the search one of an unlimited budget that is not shut, if that is sure
// without a look into the row: that is left as it is.
func (s *search) passBy(r *row, now int64) bool {
	if r == nil {
		r = &untouched
	}
	s.row, s.open = r, r.line == nil && r.isOpen(now) && now >= r.seen
	return s.open
}

// wake brings a row that was passed by to the time now.
func (s *search) wake(now int64) {
	if s.open {
		s.row.advance(now, &s.rule)
	}
}

// isOpen reports whether an unlimited budget holds nothing: no penalty closes it, and
// the time of the probe after the last one is over. See docs/unlimited.md.
func (r *row) isOpen(now int64) bool { return r.paused == 0 || r.paused+r.last.probe <= now }

// bookProbe counts a start of an unlimited budget, if it goes first after a penalty.
// All others are in no row.
func (r *row) bookProbe(t int64, u *rule) {
	if t < r.paused+r.last.probe && t+u.length() >= r.paused {
		r.add(t, t+u.length(), 1)
		r.bound(t)
	}
}

// forgetProbe takes out of an unlimited budget's row all that is in it, unless it had
// another limit lately, under which that counts.
func (r *row) forgetProbe() {
	if r.most == 0 {
		r.entries, r.total = nil, 0
	}
}

// keep makes the row of a budget that is about to be closed.
func (s *Store) keep(c throttle.Charge) {
	sh := s.shard(c.Budget)
	sh.mu.Lock()
	defer sh.mu.Unlock()
	sh.row(c.Budget.Key, s.clock.now())
}
