package throttle

import (
	"github.com/fleetthrottle/throttle/store"
)

// mostSettled returns the highest cost that a response can settle a charge at. Under a
// LeakyBucket each unit of cost keeps the next start away for per/n, and no response
// closes anything for longer than [MaxPenalty].
func mostSettled(c *store.Charge) int {
	if c.Limit.Kind() != store.KindLeakyBucket {
		return store.MaxCost
	}
	most := float64(MaxPenalty) / float64(c.Limit.Per()) * float64(c.Limit.N())
	return max(c.Cost, int(min(most, store.MaxCost)))
}

// costsOf returns the costs of charges.
func costsOf(charges []store.Charge) []int {
	costs := make([]int, len(charges))
	for i := range charges {
		costs[i] = charges[i].Cost
	}
	return costs
}

// checkCosts returns the error of a charge whose cost is above its limit: no wait can make it
// fit. It lowers such a cost of a shadow charge instead.
func checkCosts(charges []store.Charge) error {
	for i := range charges {
		c := &charges[i]
		switch most := c.Limit.Capacity() - c.Reserve; {
		case c.Cost <= most:
		case c.Shadow:
			c.Cost = most // a shadow refuses nobody, so it counts as much as fits
		default:
			return &LimitError{Policy: c.Budget.Policy, Limit: c.Limit, RetryAfter: Never, cost: c.Cost}
		}
	}
	return nil
}
