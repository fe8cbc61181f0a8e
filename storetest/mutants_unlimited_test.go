package storetest

import (
	"slices"
	"time"

	"github.com/fleetthrottle/throttle"
)

// Mutants of budgets that only a penalty closes.
var unlimitedMutants = []mutant{
	{"unlimited is a large number", "P3_UnlimitedHoldsNothing", "", charging(func(c *throttle.Charge) {
		if isOpen(*c) {
			c.Limit = throttle.PerSecond(250)
			c.Cost = min(c.Cost, 250)
			c.Reserve = 0
		}
	})},
	{"unlimited is a window that nobody fills", "P11_UnlimitedRemembersNothing", "", charging(func(c *throttle.Charge) {
		if isOpen(*c) {
			c.Limit, c.Cost, c.Reserve = throttle.PerSecond(maxCost), 1, 0
		}
	})},
	{"unlimited is never closed", "P11_UnlimitedIsClosed", "", broken{pause: func(o *oracle, c throttle.Charge, d, ago time.Duration) {
		if !isOpen(c) {
			o.ledger.shut(c, o.clock(), d, ago)
		}
	}}},
	{"unlimited is closed once", "P11_UnlimitedIsClosed", "", broken{pause: func(o *oracle, c throttle.Charge, d, ago time.Duration) {
		if _, was := o.ledger.closed[c.Budget.Key]; !was || !isOpen(c) {
			o.ledger.shut(c, o.clock(), d, ago)
		}
	}}},
	{"no probe of what is unlimited", "P11_UnlimitedHasAProbe", "", gappingAllBut(throttle.KindUnlimited)},
	{"a start of an open budget is kept", "P11_UnlimitedRemembersNothing", "", broken{book: func(o *oracle, b *throttle.Booking) throttle.Grant {
		g := honest(o, b)
		at := o.clock() + micros(g.Wait)
		for _, c := range b.Charges {
			if s := stayOf(c, b.Spread, at); g.OK && isOpen(c) && !slices.Contains(o.ledger.stays[c.Budget.Key], s) {
				o.ledger.stays[c.Budget.Key] = append(o.ledger.stays[c.Budget.Key], s)
			}
		}
		return g
	}}},
	{"a status counts what is unlimited", "P3_UnlimitedHoldsNothing", "", broken{status: func(o *oracle, c throttle.Charge, st *throttle.Status) {
		for _, e := range o.booked {
			for _, own := range e.booking.Charges {
				if isOpen(c) && own.Budget.Key == c.Budget.Key {
					st.Used++
				}
			}
		}
	}}},
}
