package throttle

import "errors"

// A Demand is what a piece of work takes from one budget: see [Limiters.Acquire].
type Demand struct {
	Policy string // the name of one of the policies
	Key    string // which of its budgets; "" is one of them
	Cost   int    // defaults to 1

	// Free says that the work costs nothing under the policy. It can still close the
	// budget: see [Permit.Penalize].
	Free bool
}

// priceDemands sets the quote to what the demands cost, for work of that priority.
func (q *quote) priceDemands(s *policySet, demands []Demand, of Priority) error {
	q.charges, q.policies, q.zeroCost = q.charges[:0], q.policies[:0], q.zeroCost[:0]
	for i := range demands {
		d := &demands[i]
		p, err := s.named(d.Policy, "the limiters have")
		if err != nil {
			return err
		}
		c := p.charge
		if d.Key != "" {
			c.Budget.Key = budgetKey(p.Name, d.Key)
		}
		switch c.Reserve = p.reserves.of(of); {
		case d.Cost < 0:
			return negativeCost(p.Name)
		case d.Free && d.Cost > 0:
			return &ConfigError{p.Name, "cost", errors.New("is set for free work: leave one out")}
		case d.Free:
			q.zeroCost = append(q.zeroCost, zeroCost{p, c})
			continue
		case d.Cost > 0:
			c.Cost = d.Cost
		}
		q.add(p, c)
	}
	return nil
}

// add adds a charge to the quote. Charges of one budget add up.
func (q *quote) add(p *compiledPolicy, c Charge) {
	for i := range q.charges {
		if old := &q.charges[i]; old.Budget == c.Budget {
			old.Cost = min(old.Cost, maxCost+1) + min(c.Cost, maxCost+1) // too much stays too much
			return
		}
	}
	q.charges, q.policies = append(q.charges, c), append(q.policies, p)
}

// negativeCost returns the error of work with a cost below 0.
func negativeCost(policy string) error {
	return &ConfigError{policy, "cost", errors.New("is negative: use 0 or more")}
}
