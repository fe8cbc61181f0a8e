package throttle

import (
	"cmp"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"sync/atomic"
	"time"

	"github.com/fleetthrottle/throttle/internal/match"
)

// A table is a set of policies made ready for requests. It never changes;
// SetPolicies puts another in its place.
type policySet struct {
	policies []compiledPolicy
	index    *match.Index
	replaced chan struct{} // closed when another table takes over
}

// A rule is a policy with everything that can be known before a request.
type compiledPolicy struct {
	Policy
	pattern  *match.Pattern
	charge   Charge // all but key, cost and reserve; those too if the policy leaves them out
	reserves reserves

	illegibleReported *atomic.Bool // Observe was told of an answer that could not be looked at
}

// newTable reports every mistake in the policies at once.
func newPolicySet(policies []Policy) (*policySet, error) {
	s := &policySet{policies: make([]compiledPolicy, len(policies)), replaced: make(chan struct{})}
	patterns := make([]*match.Pattern, len(policies))
	seen := make(map[string]bool)
	var errs []error
	for i, p := range policies {
		c, err := compile(p, i)
		if err != nil {
			errs = append(errs, err)
		}
		if p.Name != "" && seen[p.Name] {
			errs = append(errs, &ConfigError{p.Name, "Name", errors.New("two policies have it; it must be unique")})
		}
		seen[p.Name] = true
		s.policies[i], patterns[i] = c, c.pattern
	}
	if len(errs) > 0 {
		return nil, errors.Join(errs...)
	}
	for i, g := range match.Groups(patterns) {
		s.policies[i].charge.Budget.Group = g
	}
	s.index = match.NewIndex(patterns)
	return s, nil
}

// newRule checks one policy; i is its place in the slice.
func compile(p Policy, i int) (compiledPolicy, error) {
	var errs []error
	who := p.Name
	if who == "" {
		who = fmt.Sprintf("#%d", i+1)
		errs = append(errs, &ConfigError{who, "Name", errors.New("is missing; it names the policy in the store, in errors and in events")})
	}
	c := compiledPolicy{Policy: p, illegibleReported: new(atomic.Bool), charge: Charge{
		Budget: Budget{Policy: p.Name, Key: budgetKey(p.Name, "")},
		Limit:  p.Limit, Cost: 1, Jitter: p.jitter(), Shadow: p.Shadow,
		Pace: pace(p.Limit), Node: p.Scope == Node,
	}}
	var err error
	if c.pattern, err = match.Parse(p.Match); err != nil {
		errs = append(errs, &ConfigError{who, "Match", err})
	}
	if err := p.Limit.validate(c.charge.Jitter); err != nil {
		errs = append(errs, &ConfigError{who, "Limit", err})
	}
	if p.Jitter > 0 && (p.Jitter < leastJitterSet || p.Jitter > maxPeriod) {
		errs = append(errs, &ConfigError{who, "Jitter", fmt.Errorf("%v is not from %v to %v; negative means none", p.Jitter, leastJitterSet, maxPeriod)})
	}
	if c.reserves, err = newReserves(p.Headroom, p.Limit); err != nil {
		errs = append(errs, &ConfigError{who, "Headroom", err})
	}
	if p.Limit.kind == Open && p.Quota != nil {
		errs = append(errs, &ConfigError{who, "Quota", errors.New("an unlimited policy has no number that an answer could lower: set a limit with a number")})
	}
	if p.Scope > Node {
		errs = append(errs, &ConfigError{who, "Scope", fmt.Errorf("%d is none: use Fleet or Node", p.Scope)})
	}
	if c.Penalty == nil {
		c.Penalty = defaultPenalty()
	}
	return c, errors.Join(errs...)
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

// A bill is what a request costs each policy that it matches.
type quote struct {
	charges  []Charge
	policies []*compiledPolicy // in the same order
	zeroCost []zeroCost        // policies under which the request costs nothing

	unpriced []unpriced // policies in Shadow, which never refuse
}

// A failure is a policy of which a function failed.
type unpriced struct {
	policy *compiledPolicy
	err    error
}

// A freeRide is a policy that does not hold a request, but learns from its
// answer.
type zeroCost struct {
	policy *compiledPolicy
	charge Charge
}

// match returns what the request costs.
func (s *policySet) quote(req *http.Request) (q quote, err error) {
	var few [fewPolicies]int32
	err = q.priceRequest(s, s.index.Match(few[:0], req), req)
	return q, err
}

// price makes the bill what the request costs each policy at the positions in
// matched, but for those that cannot say. The error is that of the first of
// them.
func (q *quote) priceRequest(s *policySet, matched []int32, req *http.Request) (err error) {
	charges, policies := slices.Grow(q.charges[:0], len(matched)), slices.Grow(q.policies[:0], len(matched))
	q.zeroCost, q.unpriced = q.zeroCost[:0], nil
	for _, i := range matched {
		p, n := &s.policies[i], len(policies)
		charges, policies = append(charges, p.charge), append(policies, p)
		c := &charges[n]
		failed := p.price(c, req)
		if failed == nil && c.Cost > 0 {
			continue
		}
		charges, policies = charges[:n], policies[:n]
		switch {
		case failed == nil:
			c.Cost = 1 // as far as the store is told of it
			q.zeroCost = append(q.zeroCost, zeroCost{p, *c})
		case p.Shadow:
			q.unpriced = append(q.unpriced, unpriced{p, failed})
		default:
			err = cmp.Or(err, failed)
		}
	}
	q.charges, q.policies = charges, policies
	return err
}

// price makes c, the rule's charge, what the request costs under its policy.
func (p *compiledPolicy) price(c *Charge, req *http.Request) (err error) {
	if p.Headroom != nil {
		c.Reserve = p.reserves.of(priority(req.Context()))
	}
	if p.Key == nil && p.Cost == nil {
		return nil
	}
	req = p.pattern.Bind(req)
	if p.Cost != nil {
		if c.Cost, err = p.cost(req); err != nil {
			return err
		}
	}
	if p.Key != nil {
		c.Budget.Key, err = p.key(req)
	}
	return err
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
