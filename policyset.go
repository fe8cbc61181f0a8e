package throttle

import (
	"errors"

	"github.com/fleetthrottle/throttle/internal/match"
)

// A policySet is a set of policies made ready for requests. It never changes;
// SetPolicies puts another in its place.
type policySet struct {
	policies []compiledPolicy
	index    *match.Index
	replaced chan struct{} // closed when another set takes its place
}

// newPolicySet reports every mistake in the policies at once.
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
			errs = append(errs, &ConfigError{p.Name, "Name", errors.New("two policies have this name: give each its own")})
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
