package storetest

import (
	"time"

	"github.com/fleetthrottle/throttle"
)

// The definition of an unlimited budget is that of all others, with two differences:
// every start fits, and nothing is kept but probes, until the budget is resumed.

// isOpen reports whether the charge's limit is Unlimited.
func isOpen(c throttle.Charge) bool { return c.Limit.Kind() == throttle.KindUnlimited }

// isProbe reports whether a start of an unlimited budget goes first after a penalty
// that is known. That it was over long ago makes no difference, because time does not
// go back.
func (l *ledger) isProbe(c throttle.Charge, spread time.Duration, t int64) bool {
	p := l.penalty(c.Budget.Key)
	g := gap{p.end, p.end + p.probe}
	return p.end != 0 && g.holds(stayOf(c, spread, t))
}

// resume opens a budget. What had another limit goes on counting under that.
func (l *ledger) resume(c throttle.Charge) {
	delete(l.closed, c.Budget.Key)
	delete(l.bans, c.Budget.Key)
	delete(l.learnt, c.Budget.Key)
	if isOpen(c) && !l.counted[c.Budget.Key] {
		delete(l.stays, c.Budget.Key)
	}
}
