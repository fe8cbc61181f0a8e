package throttle

import (
	"context"
	"errors"
	"slices"
	"time"
)

// Penalize closes the permit's budgets for d, for the whole fleet, because the work was
// refused: by an error, or an answer, that says so. It means what [Policy.Penalty]
// means in a [Transport]: nothing starts before the end, not even work that has a
// permit, if it calls [Permit.Renew]; then one start goes first, and the rest slowly; a
// refusal that comes right after the end closes the budget for longer; and an Adaptive
// policy learns. None lasts longer than [MaxPenalty], and 0 or less closes nothing.
//
// With names of policies it closes only their budgets: that of a tenant, and not the one
// that all tenants share.
//
// A store that is away is asked again until ctx ends, so give it a deadline, and not a
// context that has ended with the work. It works after Release, too.
func (p *Permit) Penalize(ctx context.Context, d time.Duration, policies ...string) error {
	if p.meter == nil && p.several == nil || d <= 0 {
		return nil
	}
	a, charges, ago := p.penalized()
	began := now()
	for _, name := range policies {
		if !slices.ContainsFunc(charges, func(c *Charge) bool { return c.Budget.Policy == name }) {
			return &ConfigError{name, "Name", errors.New("the permit has no policy of this name")}
		}
	}
	var penalties []penalty
	for _, c := range charges {
		if len(policies) == 0 || slices.Contains(policies, c.Budget.Policy) {
			penalties = append(penalties, penalty{charge: c, length: min(d, MaxPenalty)})
		}
	}
	teaches := a.teaches(ctx, penalties, func(*Charge) bool { return false })
	var errs []error
	for i := range penalties {
		passed := (now() - began).Truncate(time.Millisecond) // the store was away for the one before
		if penalties[i].length -= passed; penalties[i].length <= 0 {
			break
		}
		if err := a.reportPenalty(ctx, &penalties[i], ago+passed, ago, i == teaches); err != nil {
			errs = append(errs, &StoreError{err})
		}
	}
	return errors.Join(errs...)
}

// penalized returns the permit's acquisition, its charges, those too under which the
// work is free, and how long ago the work began.
func (p *Permit) penalized() (a *acquisition, charges []*Charge, ago time.Duration) {
	a = p.acquisition()
	for i := range a.booking.Charges {
		charges = append(charges, &a.booking.Charges[i])
	}
	if p.several != nil {
		for i := range p.several.quote.zeroCost {
			c := p.several.quote.zeroCost[i].charge
			if !slices.ContainsFunc(charges, func(other *Charge) bool { return other.Budget == c.Budget }) {
				charges = append(charges, &c)
			}
		}
	}
	if p.state.Load() == permitFree {
		return a, charges, 0
	}
	began := a.startAt
	if p.usedAt != 0 {
		began = p.usedAt
	}
	return a, charges, max(0, now()-began)
}
