package throttle

import (
	"context"
	"sync"
	"sync/atomic"
	"time"
)

// A BudgetStatus is what one budget is like at one moment.
type BudgetStatus struct {
	Budget Budget
	Status
}

// Statuses asks the store what the budgets of the policies are like, as the policies are now: the
// budget of each policy without a Key, and of the others those that callers of this transport used
// last, within an hour, at most 16 of a policy. Those that hold callers go first. It begins to note
// which budgets are used when it is called for the first time, and ends an hour after the last call.
//
// The error is a *[StoreError] if the store did not answer all of that in time, if another store
// stands in for it, or if callers wait for its answer. It is asked also if there is no budget to ask
// about. What was answered all the same is returned with the error.
func (t *Transport) Statuses(ctx context.Context) ([]BudgetStatus, error) {
	return t.statuses(ctx, t.policies.Load())
}

// Statuses is [Transport.Statuses] for limiters.
func (l *Limiters) Statuses(ctx context.Context) ([]BudgetStatus, error) {
	return l.statuses(ctx, l.policies.Load())
}

// mostAsked is how many questions the store is asked at a time.
const mostAsked = 16

// statuses asks the store.
func (e *engine) statuses(ctx context.Context, s *policySet) (all []BudgetStatus, err error) {
	charges := e.recentCharges(s, now())
	known := len(charges)
	for group := range unasked(s, charges) {
		charges = append(charges, nobodys(group))
	}
	var mu sync.Mutex
	var next atomic.Int64
	failed := e.unheard()
	var asked sync.WaitGroup
	for range min(mostAsked, len(charges)) {
		asked.Go(func() {
			for i := int(next.Add(1)) - 1; i < len(charges); i = int(next.Add(1)) - 1 {
				st, err := Status{}, ctx.Err()
				if err == nil {
					st, err = e.status(ctx, charges[i])
				}
				mu.Lock()
				if err != nil {
					failed = err
				} else if i < known {
					all = append(all, BudgetStatus{charges[i].Budget, st})
				}
				mu.Unlock()
			}
		})
	}
	if asked.Wait(); failed != nil {
		return all, &StoreError{failed}
	}
	return all, nil
}

// recentCharges returns a charge of cost 1 for each budget that is known.
func (e *engine) recentCharges(s *policySet, at time.Duration) (charges []Charge) {
	r := e.recent.Load()
	if r == nil {
		e.recent.CompareAndSwap(nil, &recents{askedAt: at, byPolicy: make(map[string][]recentBudget)})
		r = e.recent.Load()
	}
	known := r.ask(func(policy string) bool { return s.byName[policy] != nil }, at)
	for i := range s.policies {
		p := &s.policies[i]
		c := p.charge
		if p.Key == nil {
			charges = append(charges, c)
		}
		for _, b := range known[p.Name] {
			if p.Key == nil && b.key == p.charge.Budget.Key {
				continue
			}
			c.Budget.Key = b.key
			charges = append(charges, c)
		}
	}
	return charges
}

// unasked returns the groups of the fleet's policies that no charge is of; "" if the fleet has none.
func unasked(s *policySet, charges []Charge) map[string]bool {
	groups := make(map[string]bool)
	for i := range s.policies {
		if c := &s.policies[i].charge; !c.Node {
			groups[c.Budget.Group] = true
		}
	}
	if len(groups) == 0 {
		return map[string]bool{"": true}
	}
	for i := range charges {
		if c := &charges[i]; !c.Node {
			delete(groups, c.Budget.Group)
		}
	}
	return groups
}
