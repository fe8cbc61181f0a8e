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

	illegible *atomic.Bool // Observe was told of an answer that could not be looked at
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
	r := rule{Policy: p, illegible: new(atomic.Bool), charge: Charge{
		Budget: Budget{Policy: p.Name, Key: budgetKey(p.Name, "")},
		Limit:  p.Limit, Cost: 1, Jitter: p.jitter(), Shadow: p.Shadow,
		Pace: pace(p.Limit), Node: p.Scope == Node, Adaptive: p.Adaptive,
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
	if p.Limit.kind == Open && p.Quota != nil {
		errs = append(errs, &ConfigError{who, "Quota", errors.New("an unlimited policy has no number that an answer could lower: set a limit with a number")})
	}
	if p.Adaptive && !p.Limit.counts() {
		errs = append(errs, &ConfigError{who, "Adaptive", errors.New("only a limit of starts can be lowered: not Concurrency, not Unlimited")})
	}
	if p.Scope > Node {
		errs = append(errs, &ConfigError{who, "Scope", fmt.Errorf("%d is none: use Fleet or Node", p.Scope)})
	}
	if r.Penalty == nil {
		r.Penalty = defaultPenalty()
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

// A bill is what a request costs each policy that it matches.
type bill struct {
	charges []Charge
	rules   []*rule    // in the same order
	free    []freeRide // policies under which the request costs nothing

	unpriced []failure // policies in Shadow, which never refuse
}

// A failure is a policy of which a function failed.
type failure struct {
	rule *rule
	err  error
}

// A freeRide is a policy that does not hold a request, but learns from its
// answer.
type freeRide struct {
	rule   *rule
	charge Charge
}

// match returns what the request costs.
func (t *table) match(req *http.Request) (b bill, err error) {
	var few [fewPolicies]int32
	err = b.price(t, t.index.match(few[:0], req), req)
	return b, err
}

// price makes the bill what the request costs each policy at the positions in
// matched, but for those that cannot say. The error is that of the first of
// them.
func (b *bill) price(t *table, matched []int32, req *http.Request) (err error) {
	charges, rules := slices.Grow(b.charges[:0], len(matched)), slices.Grow(b.rules[:0], len(matched))
	b.free, b.unpriced = b.free[:0], nil
	for _, i := range matched {
		r, n := &t.rules[i], len(rules)
		charges, rules = append(charges, r.charge), append(rules, r)
		c := &charges[n]
		failed := r.price(c, req)
		if failed == nil && c.Cost > 0 {
			continue
		}
		charges, rules = charges[:n], rules[:n]
		switch {
		case failed == nil:
			c.Cost = 1 // as far as the store is told of it
			b.free = append(b.free, freeRide{r, *c})
		case r.Shadow:
			b.unpriced = append(b.unpriced, failure{r, failed})
		default:
			err = cmp.Or(err, failed)
		}
	}
	b.charges, b.rules = charges, rules
	return err
}

// price makes c, the rule's charge, what the request costs under its policy.
func (r *rule) price(c *Charge, req *http.Request) (err error) {
	if r.Headroom != nil {
		c.Reserve = r.reserves.of(priority(req.Context()))
	}
	if r.Key == nil && r.Cost == nil {
		return nil
	}
	req = r.pattern.bind(req)
	if r.Cost != nil {
		if c.Cost, err = r.cost(req); err != nil {
			return err
		}
	}
	if r.Key != nil {
		c.Budget.Key, err = r.key(req)
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
