package storetest

import (
	"slices"

	"github.com/fleetthrottle/throttle"
)

// longAgo is why a random run need not notice.
const longAgo = "what happened so long ago rarely matters there"

// Mutants of costs that are known late.
var settleMutants = []mutant{
	{"settle ignored", "Store_Settle", "", settling(func(*oracle, entry, []int) {})},
	{"settle gives nothing back", "P7_Settle", "", recosting(func(c throttle.Charge, cost int) int { return max(cost, c.Cost) })},
	{"settle charges nothing", "Store_Settle", "", recosting(func(c throttle.Charge, cost int) int { return min(cost, c.Cost) })},
	{"settle adds", "Store_Settle", "", recosting(func(c throttle.Charge, cost int) int { return c.Cost + cost })},
	{"settle up to the limit", "Store_SettleAbove", "", recosting(func(c throttle.Charge, cost int) int {
		return min(cost, c.Limit.Capacity())
	})},
	{"settle leaves one", "P7_SettleNothing", "", recosting(func(_ throttle.Charge, cost int) int { return max(cost, 1) })},
	{"settle of the first budget only", "Store_SettleSeveral", "", settling(func(o *oracle, e entry, costs []int) {
		first := e.booking
		first.Charges = first.Charges[:1]
		o.ledger.settle(first, e.at, o.clock(), costs)
	})},
	{"settle forgets the others of that moment", "Store_SettleOfOne", "", settling(func(o *oracle, e entry, costs []int) {
		o.ledger.settle(e.booking, e.at, o.clock(), costs)
		for i, c := range e.booking.Charges {
			if costs[i] == 0 {
				key := c.Budget.Key
				o.ledger.stays[key] = slices.DeleteFunc(o.ledger.stays[key], func(s stay) bool { return s.at == e.at })
			}
		}
	})},
	{"settle books when it is told", "Store_SettleMore", "", settling(func(o *oracle, e entry, costs []int) {
		for i, c := range e.booking.Charges {
			if more := costs[i] - c.Cost; more > 0 && e.at < o.clock() {
				costs[i] = c.Cost
				k := throttle.Booking{Charges: []throttle.Charge{costing(c, more)}, Spread: e.booking.Spread}
				o.ledger.add(k, o.clock())
			}
		}
		o.ledger.settle(e.booking, e.at, o.clock(), costs)
	})},
	{"settle for ever", "Store_SettleAfterThePace", longAgo, settling(func(o *oracle, e entry, costs []int) {
		o.ledger.settle(e.booking, e.at, e.at, costs)
	})},
	{"settle gives back what a bucket has forgotten", "Store_SettleAfterTheBucket", longAgo, settling(func(o *oracle, e entry, costs []int) {
		o.ledger.settle(e.booking, e.at, e.at, costs)
	})},
	{"settle passes a shadow by", "Store_SettleOfAShadow", "", recosting(func(c throttle.Charge, cost int) int {
		if c.Shadow {
			return c.Cost
		}
		return cost
	})},
	{"settle overdraws a bucket", "Store_SettleTheMost", "buckets are not overdrawn there", broken{
		settle: func(o *oracle, e entry, costs []int) {
			o.ledger.settle(e.booking, e.at, o.clock(), costs)
			for i, c := range e.booking.Charges {
				if c.Limit.Kind() == throttle.KindTokenBucket && costs[i] > c.Limit.Capacity() {
					k := throttle.Booking{Charges: []throttle.Charge{costing(c, c.Limit.Capacity())}}
					o.ledger.add(k, e.at+1)
				}
			}
		}}},
}

func settling(settle func(*oracle, entry, []int)) broken { return broken{settle: settle} }

// recosting settles other costs than it was told.
func recosting(change func(throttle.Charge, int) int) broken {
	return settling(func(o *oracle, e entry, costs []int) {
		for i, c := range e.booking.Charges {
			costs[i] = change(c, costs[i])
		}
		o.ledger.settle(e.booking, e.at, o.clock(), costs)
	})
}
