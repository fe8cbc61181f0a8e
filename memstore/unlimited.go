package memstore

import "github.com/fleetthrottle/throttle"

// untouched stands for the row of an unlimited budget that nobody has closed: there is
// none. It is never written to.
var untouched = row{seen: probeTime}

// isOpen reports whether an unlimited budget holds nothing: no penalty closes it, and
// the time of the probe after the last one is over. See docs/unlimited.md.
func (r *row) isOpen() bool { return r.paused+probeTime <= r.seen }

// bookProbe counts a start of an unlimited budget, if it goes first after a penalty.
// All others are in no row.
func (r *row) bookProbe(t int64, u *rule) {
	if r.paused > 0 && t < r.paused+probeTime && t+u.length() >= r.paused {
		r.add(t, t+u.length(), 1)
		r.bound(t)
	}
}

// forgetProbe takes out of an unlimited budget's row all that is in it.
func (r *row) forgetProbe() {
	if len(r.entries) > 0 {
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
