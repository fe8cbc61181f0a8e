package storetest

import (
	"time"

	"github.com/fleetthrottle/throttle"
)

// Mutants of what is said, given back, closed, and told.
var otherMutants = []mutant{
	{"no handle", "P1", "", saying(func(g *throttle.Grant) { g.Handle = throttle.Handle{} })},
	{"wait too long", "P1", "", saying(func(g *throttle.Grant) { g.Wait += tick })},
	{"never held", "Store_Held", "", saying(func(g *throttle.Grant) { g.Held = -1 })},
	{"always the first held", "Store_Held", "", saying(func(g *throttle.Grant) { g.Held = min(g.Held, 0) })},
	{"never paused", "P11_Held", "", saying(func(g *throttle.Grant) { g.Paused = false })},
	{"always paused", "Store_Held", "", saying(func(g *throttle.Grant) { g.Paused = g.Held >= 0 })},

	{"shadow holds", "Store_Shadow", "", charging(func(c *throttle.Charge) { c.Shadow = false })},
	{"shadow says nothing", "Store_Shadow", "", saying(func(g *throttle.Grant) { g.Over = nil })},
	{"shadow does not count", "Store_Shadow", "", charging(func(c *throttle.Charge) {
		if c.Shadow {
			c.Budget.Key = [16]byte{1}
			c.Limit = throttle.PerSecond(c.Limit.N() + 1000)
		}
	})},

	{"cancel ignored", "P7_Cancel", "", broken{cancel: func(*oracle, *throttle.Booking, throttle.Grant) {}}},
	{"cancel of the first budget only", "P6_Cancel", "", broken{cancel: func(o *oracle, b *throttle.Booking, g throttle.Grant) {
		first := *b
		first.Charges = b.Charges[:1]
		o.ledger.remove(first, o.booked[g.Handle.Start].at, o.clock())
	}}},
	{"cancel of what is to come only", "P7_CancelAPast", "", broken{cancel: func(o *oracle, b *throttle.Booking, g throttle.Grant) {
		if o.booked[g.Handle.Start].at > o.clock() {
			o.Cancel(b, g)
		}
	}}},
	{"cancel of what is past only", "P7_CancelAPlace", "", broken{cancel: func(o *oracle, b *throttle.Booking, g throttle.Grant) {
		if o.booked[g.Handle.Start].at <= o.clock() {
			o.Cancel(b, g)
		}
	}}},
	{"cancel of 1 only", "P7_CancelGivesBackTheCost", "", broken{cancel: func(o *oracle, b *throttle.Booking, g throttle.Grant) {
		at := o.booked[g.Handle.Start].at
		o.Cancel(b, g)
		for _, c := range b.Charges {
			if c.Cost > 1 {
				o.ledger.add(throttle.Booking{Charges: []throttle.Charge{costing(c, c.Cost-1)}, Spread: b.Spread}, at)
			}
		}
	}}},
	{"Instead ignored", "P7_Instead", "", asking(func(b *throttle.Booking) { b.Instead = throttle.Handle{} })},
	{"Instead given back after the search", "P7_InsteadGivesBackFirst", "", broken{book: func(o *oracle, b *throttle.Booking) throttle.Grant {
		other := *b
		other.Instead = throttle.Handle{}
		g := honest(o, &other)
		o.giveBack(b.Instead)
		return g
	}}},
	{"Instead kept by a refusal", "P7_InsteadIsGivenBack", "", broken{book: func(o *oracle, b *throttle.Booking) throttle.Grant {
		old := o.booked[b.Instead.Start]
		g := honest(o, b)
		if !g.OK {
			o.ledger.add(old.booking, old.at)
			o.booked[b.Instead.Start] = old
		}
		return g
	}}},

	{"pause ignored", "P11_Pause", "", broken{pause: func(*oracle, throttle.Charge, time.Duration, time.Duration) {}}},
	{"last pause counts", "P11_Latest", "", broken{pause: func(o *oracle, c throttle.Charge, d, ago time.Duration) {
		o.ledger.closed[c.Budget.Key] = o.clock() + micros(d)
	}}},
	{"first pause counts", "P11_Latest", "", broken{pause: func(o *oracle, c throttle.Charge, d, ago time.Duration) {
		if o.ledger.closed[c.Budget.Key] <= o.clock() {
			o.ledger.shut(c, o.clock(), d, ago)
		}
	}}},
	{"pauses add up", "P11_Latest", "", broken{pause: func(o *oracle, c throttle.Charge, d, ago time.Duration) {
		o.ledger.shut(c, max(o.clock(), o.ledger.closed[c.Budget.Key]), d, ago)
	}}},
	{"pause a moment too short", "P11_Pause", "", broken{pause: func(o *oracle, c throttle.Charge, d, ago time.Duration) {
		o.ledger.shut(c, o.clock()-1, d, ago)
	}}},
	{"pause of everybody", "P11_Other", "", broken{pause: func(o *oracle, c throttle.Charge, d, ago time.Duration) {
		for _, name := range []string{"a", "b", "budget 0", "budget 1", "budget 2", "budget 3"} {
			o.ledger.shut(charge(name, c.Limit), o.clock(), d, ago)
		}
	}}},
	{"pause moves booked starts", "P11_Booked", "", broken{pause: func(o *oracle, c throttle.Charge, d, ago time.Duration) {
		end := o.clock() + micros(d)
		o.ledger.shut(c, o.clock(), d, ago)
		for i, s := range o.ledger.stays[c.Budget.Key] {
			if s.at > o.clock() && s.at < end {
				o.ledger.stays[c.Budget.Key][i].at = end
				o.ledger.stays[c.Budget.Key][i].until += end - s.at
			}
		}
	}}},

	{"status counts for ever", "Store_Status", "", broken{status: func(o *oracle, c throttle.Charge, st *throttle.Status) {
		st.Used = -st.Waiting
		for _, s := range o.ledger.stays[c.Budget.Key] {
			st.Used += s.cost
		}
	}}},
	{"status sees nobody waiting", "Store_Status", "", broken{status: func(_ *oracle, _ throttle.Charge, st *throttle.Status) {
		st.Waiting = 0
	}}},
	{"status hides the pause", "P11_Status", "", broken{status: func(_ *oracle, _ throttle.Charge, st *throttle.Status) {
		st.Paused = 0
	}}},
	{"status forgets the wait", "Store_Status", "", broken{status: func(_ *oracle, _ throttle.Charge, st *throttle.Status) {
		st.Wait = 0
	}}},
	{"status spends", "Store_StatusChanges", "", broken{status: func(o *oracle, c throttle.Charge, _ *throttle.Status) {
		honest(o, &throttle.Booking{Charges: []throttle.Charge{costing(c, 1)}})
	}}},
}
