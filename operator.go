package throttle

import "errors"

// Limiter returns a limiter for the budgets of one of the transport's policies:
// to close and open them by hand, to look at them, or for other work that counts
// against the same limit. The key of a budget is what the policy's Key returns for
// a request that it is of, and "" for a policy without one.
//
// It is of the policies as they are now: after [Transport.SetPolicies] ask again.
func (t *Transport) Limiter(policy string) (*Limiter, error) {
	rules := t.policies.Load().policies
	for i := range rules {
		if r := &rules[i]; r.Name == policy {
			return limiterOf(t.store, r), nil
		}
	}
	return nil, &ConfigError{policy, "Name", errors.New("the transport has no such policy")}
}
