package throttle

import (
	"errors"
	"sync/atomic"

	"github.com/fleetthrottle/throttle/internal/match"
)

// A policySet is a set of policies made ready for requests. It never changes;
// SetPolicies puts another in its place.
type policySet struct {
	policies []compiledPolicy
	byName   map[string]*compiledPolicy
	index    *match.Index
	replaced chan struct{} // closed when another set takes its place
}

// livePolicies is the policySet that counts now.
type livePolicies struct{ atomic.Pointer[policySet] }

// set puts another set in place, unless the policies have mistakes, and tells the
// waiters.
func (l *livePolicies) set(policies []Policy) error {
	next, err := newPolicySet(policies)
	if err != nil {
		return err
	}
	if last := l.Swap(next); last != nil {
		close(last.replaced)
	}
	return nil
}

// named returns a policy; owner is what should have it, for the error.
func (s *policySet) named(policy, owner string) (*compiledPolicy, error) {
	if p := s.byName[policy]; p != nil {
		return p, nil
	}
	return nil, &ConfigError{policy, "Name", errors.New(owner + " no policy of this name")}
}

// newPolicySet reports every mistake in the policies at once.
func newPolicySet(policies []Policy) (*policySet, error) {
	s := &policySet{policies: make([]compiledPolicy, len(policies)), byName: make(map[string]*compiledPolicy), replaced: make(chan struct{})}
	patterns := make([]*match.Pattern, len(policies))
	var errs []error
	for i, p := range policies {
		c, err := compile(p, i)
		if err != nil {
			errs = append(errs, err)
		}
		if p.Name != "" && s.byName[p.Name] != nil {
			errs = append(errs, &ConfigError{p.Name, "Name", errors.New("two policies have this name: give each its own")})
		}
		s.policies[i], patterns[i], s.byName[p.Name] = c, c.pattern, &s.policies[i]
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
