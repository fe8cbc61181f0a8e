package throttle

import (
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"time"
)

// A table is a set of policies made ready for requests. It never changes;
// SetPolicies puts another in its place.
type table struct {
	rules    []rule
	index    *index
	replaced chan struct{} // closed when another table takes over
}

// A rule is a policy with everything that can be known before a request.
type rule struct {
	Policy
	pattern  *pattern
	charge   Charge // all but key, cost and reserve; those too if the policy leaves them out
	reserves reserves
}

// newTable reports every mistake in the policies at once.
func newTable(policies []Policy) (*table, error) {
	t := &table{rules: make([]rule, len(policies)), replaced: make(chan struct{})}
	patterns := make([]*pattern, len(policies))
	seen := make(map[string]bool)
	var errs []error
	for i, p := range policies {
		r, err := newRule(p, i)
		if err != nil {
			errs = append(errs, err)
		}
		if p.Name != "" && seen[p.Name] {
			errs = append(errs, &ConfigError{p.Name, "Name", errors.New("two policies have it; it must be unique")})
		}
		seen[p.Name] = true
		t.rules[i], patterns[i] = r, r.pattern
	}
	if len(errs) > 0 {
		return nil, errors.Join(errs...)
	}
	for i, g := range groups(patterns) {
		t.rules[i].charge.Budget.Group = g
	}
	t.index = newIndex(patterns)
	return t, nil
}

// newRule checks one policy; i is its place in the slice.
func newRule(p Policy, i int) (rule, error) {
	var errs []error
	who := p.Name
	if who == "" {
		who = fmt.Sprintf("#%d", i+1)
		errs = append(errs, &ConfigError{who, "Name", errors.New("is missing; it names the policy in the store, in errors and in events")})
	}
	r := rule{Policy: p, charge: Charge{
		Budget: Budget{Policy: p.Name, Key: budgetKey(p.Name, "")},
		Limit:  p.Limit, Cost: 1, Jitter: p.jitter(), Shadow: p.Shadow,
		Pace: pace(p.Limit), Node: p.Scope == Node,
	}}
	var err error
	if r.pattern, err = parsePattern(p.Match); err != nil {
		errs = append(errs, &ConfigError{who, "Match", err})
	}
	if err := p.Limit.validate(r.charge.Jitter); err != nil {
		errs = append(errs, &ConfigError{who, "Limit", err})
	}
	if p.Jitter > 0 && (p.Jitter < leastJitterSet || p.Jitter > maxPeriod) {
		errs = append(errs, &ConfigError{who, "Jitter", fmt.Errorf("%v is not from %v to %v; negative means none", p.Jitter, leastJitterSet, maxPeriod)})
	}
	if r.reserves, err = newReserves(p.Headroom, p.Limit); err != nil {
		errs = append(errs, &ConfigError{who, "Headroom", err})
	}
	if p.Scope > Node {
		errs = append(errs, &ConfigError{who, "Scope", fmt.Errorf("%d is none: use Fleet or Node", p.Scope)})
	}
	if r.Penalty == nil {
		r.Penalty = RetryAfter
	}
	return r, errors.Join(errs...)
}

// leastJitterSet is the least Jitter that a machine can keep.
const leastJitterSet = time.Millisecond

// jitter resolves the field's zero value and its negative ones.
func (p *Policy) jitter() time.Duration {
	switch {
	case p.Jitter < 0:
		return 0
	case p.Jitter == 0:
		return DefaultJitter
	}
	return p.Jitter
}

// fewPolicies is how many policies a request matches without the table having
// to ask for more memory.
const fewPolicies = 8

// match returns what the request costs each policy that it matches, and the rules
// in the same order.
func (t *table) match(req *http.Request) ([]Charge, []*rule, error) {
	var few [fewPolicies]int32
	return t.price(nil, nil, t.index.match(few[:0], req), req)
}

// price appends what the request costs each policy at the positions in matched,
// and the rules in the same order. Policies under which it is free are left out.
func (t *table) price(charges []Charge, rules []*rule, matched []int32, req *http.Request) ([]Charge, []*rule, error) {
	charges, rules = slices.Grow(charges, len(matched)), slices.Grow(rules, len(matched))
	for _, i := range matched {
		r, n := &t.rules[i], len(rules)
		charges, rules = append(charges, r.charge), append(rules, r)
		if err := r.price(&charges[n], req); err != nil {
			return charges[:n], rules[:n], err
		}
		if charges[n].Cost == 0 {
			charges, rules = charges[:n], rules[:n]
		}
	}
	return charges, rules, nil
}

// price makes c, the rule's charge, what the request costs under its policy.
func (r *rule) price(c *Charge, req *http.Request) error {
	if r.Headroom != nil {
		c.Reserve = r.reserves.of(priority(req.Context()))
	}
	if r.Key == nil && r.Cost == nil {
		return nil
	}
	req = r.pattern.bind(req)
	if r.Cost != nil {
		if c.Cost = r.Cost(req); c.Cost < 0 {
			return &ConfigError{r.Name, "Cost", fmt.Errorf("returned %d; 0 is the least", c.Cost)}
		}
	}
	if r.Key != nil {
		c.Budget.Key = budgetKey(r.Name, r.Key(req))
	}
	return nil
}

// budgetKey hashes a policy's name and a key, so that no two pairs share a
// budget and the key itself stays here.
func budgetKey(policy, key string) (k [16]byte) {
	var room [192]byte
	b := binary.AppendUvarint(room[:0], uint64(len(policy)))
	b = append(append(b, policy...), key...)
	sum := sha256.Sum256(b)
	copy(k[:], sum[:])
	return k
}
