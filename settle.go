package throttle

import (
	"context"
	"errors"
)

// Settle changes the cost to what the work turned out to have cost, as often as
// that becomes known better: the difference is charged, at the work's own start
// and even above the limit, or given back. Work that was acquired at no cost
// stays free, and what is in flight keeps its cost. After Release it does
// nothing. A permit of several budgets whose limits count starts needs
// [Permit.SettleBudget].
func (p *Permit) Settle(ctx context.Context, cost int) error {
	return p.settle(ctx, cost, func(*Charge) bool { return true })
}

// SettleBudget does for one budget of a permit of several what Settle does: that of a
// policy and a key.
func (p *Permit) SettleBudget(ctx context.Context, policy, key string, cost int) error {
	return p.settle(ctx, cost, func(c *Charge) bool {
		return c.Budget.Policy == policy && (c.Budget.Key == budgetKey(policy, key))
	})
}

// settle settles the only charge that is meant.
func (p *Permit) settle(ctx context.Context, cost int, meant func(*Charge) bool) error {
	if p.meter == nil && p.several == nil || !p.busy() {
		return nil
	}
	defer p.idle()
	a, which := p.acquisition(), -1
	for i := range a.booking.Charges {
		c := &a.booking.Charges[i]
		switch {
		case !c.Limit.counts() || !meant(c):
		case which >= 0:
			return &ConfigError{c.Budget.Policy, "cost", errors.New("the permit is one of several budgets: say with SettleBudget which of them is meant")}
		default:
			which = i
		}
	}
	if which < 0 {
		return nil
	}
	c := &a.booking.Charges[which]
	if cost < 0 {
		return negativeCost(c.Budget.Policy)
	}
	before := c.Cost
	if cost = min(cost, mostSettled(c)); cost == before {
		return nil
	}
	costs := costsOf(a.booking.Charges)
	costs[which] = cost
	err := a.store.Settle(ctx, &a.booking, a.grant, costs)
	if err != nil {
		// It is unknown which of the two is booked. The lesser one counts: giving
		// back too much would give back another's.
		cost, err = min(before, cost), &StoreError{err}
	}
	c.Cost = cost
	p.keep(a)
	return err
}
