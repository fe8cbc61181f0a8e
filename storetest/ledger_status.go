package storetest

import (
	"slices"
	"time"

	"github.com/fleetthrottle/throttle"
)

// status describes one budget at the time now.
func (l *ledger) status(c throttle.Charge, now int64) throttle.Status {
	st := throttle.Status{Limit: c.Limit}
	for _, s := range l.stays[c.Budget.Key] {
		switch {
		case s.at > now:
			st.Waiting += s.cost
		case over(c, s) > now && !isOpen(c):
			st.Used += s.cost
		}
	}
	one := []throttle.Charge{costing(c, 1)}
	one[0].Shadow = false
	st.Wait = time.Duration(l.earliest(throttle.Booking{Charges: one}, now)-now) * tick
	st.Paused = time.Duration(max(0, l.closed[c.Budget.Key]-now)) * tick
	st.Repeated = l.penalty(c.Budget.Key).repeated(now)
	st.Ceiling = l.learnt[c.Budget.Key].shown(c, now)
	return st
}

// depth is how many different starts still matter to the charge, and end is
// when the last of them does no more.
func (l *ledger) depth(c throttle.Charge, now int64) (starts int, end int64) {
	seen := make(map[int64]bool)
	for _, s := range l.stays[c.Budget.Key] {
		if o := over(c, s); o > now {
			seen[s.at] = true
			end = max(end, o)
		}
	}
	return len(seen), end
}

// forget drops what ended before t.
func (l *ledger) forget(t int64) {
	for key, stays := range l.stays {
		l.stays[key] = slices.DeleteFunc(stays, func(s stay) bool { return s.until < t })
	}
}
