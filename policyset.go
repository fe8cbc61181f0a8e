package throttle

import (
	"cmp"
	"errors"
	"net/http"
	"slices"
	"sync/atomic"

	"github.com/fleetthrottle/throttle/internal/match"
	"github.com/fleetthrottle/throttle/store"
)

// A policySet is a set of policies made ready for requests. A policySet never changes:
// SetPolicies replaces it.
type policySet struct {
	given    []Policy // the policies as the program wrote them
	policies []compiledPolicy
	byName   map[string]*compiledPolicy
	index    *match.Index
	replaced chan struct{} // closed when SetPolicies replaces the set

	isAwaited bool // New or NewLimiters got no policies, so SetPolicies must bring them
}

// livePolicies is the policySet that counts now.
type livePolicies struct{ atomic.Pointer[policySet] }

// Load returns the policySet that counts now: an empty one in a Transport or in Limiters that no constructor has
// made.
func (l *livePolicies) Load() *policySet {
	if s := l.Pointer.Load(); s != nil {
		return s
	}
	return &policySet{index: match.NewIndex(nil)}
}

// begin is set for policies of a Config. Requests are refused until there were policies once.
func (l *livePolicies) begin(policies []Policy, by callers) error {
	s, err := newPolicySet(policies, by)
	if err != nil {
		return err
	}

	s.isAwaited = len(policies) == 0
	l.Store(s)
	return nil
}

// set replaces the policySet, unless the policies have mistakes, and tells the waiters.
func (l *livePolicies) set(policies []Policy, by callers) error {
	next, err := newPolicySet(policies, by)
	if err != nil {
		return err
	}
	if last := l.Swap(next); last != nil {
		close(last.replaced)
	}
	return nil
}

// policyNamed returns the policy of a name. The error of a name that no policy has begins with
// owner, such as "the limiters have".
func (s *policySet) policyNamed(policy, owner string) (*compiledPolicy, error) {
	if p := s.byName[policy]; p != nil {
		return p, nil
	}
	return nil, &ConfigError{policy, "Name", errors.New(owner + " no policy of this name")}
}

// newPolicySet makes policies ready for their callers. Its error joins all mistakes in the policies.
func newPolicySet(policies []Policy, by callers) (*policySet, error) {
	s := &policySet{given: slices.Clone(policies), policies: make([]compiledPolicy, len(policies)), byName: make(map[string]*compiledPolicy), replaced: make(chan struct{})}
	patterns := make([]*match.Pattern, len(policies))

	var errs []error
	for i, p := range policies {
		c, err := compile(p, i, by)
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

// A quote is the price of a request: a charge for each policy that it matches.
type quote struct {
	charges  []store.Charge
	policies []*compiledPolicy // in the same order
	zeroCost []zeroCost        // policies under which the request costs nothing

	unpriced []unpriced // policies in Shadow, which never refuse
}

// An unpriced policy is a policy without a charge for the request, because a function
// failed.
type unpriced struct {
	policy *compiledPolicy
	err    error
}

// A zeroCost is a policy under which a request costs nothing. It holds no request,
// but learns from the response.
type zeroCost struct {
	policy *compiledPolicy
	charge store.Charge
}

// fewPolicies is how many policies a request may match before matching allocates
// memory: the size of the buffers for their indexes.
const fewPolicies = 8

// quote returns the quote of the request.
func (s *policySet) quote(req *http.Request) (q quote, err error) {
	var matchBuf [fewPolicies]int32
	err = q.priceRequest(s, s.index.Match(matchBuf[:0], req), req)
	return q, err
}

// priceRequest sets the quote to the charges of the request under each policy of s whose
// index is in matched. A policy that cannot be priced has no charge in the quote. The error
// is of the first such policy that is no shadow.
func (q *quote) priceRequest(s *policySet, matched []int32, req *http.Request) (err error) {
	charges, policies := slices.Grow(q.charges[:0], len(matched)), slices.Grow(q.policies[:0], len(matched))
	q.zeroCost, q.unpriced = q.zeroCost[:0], nil

	var bound match.Bound
	for _, i := range matched {
		p, n := &s.policies[i], len(policies)
		charges, policies = append(charges, p.charge), append(policies, p)
		if p.fixed {
			continue
		}

		c := &charges[n]
		failed := p.price(c, req, &bound)
		if failed == nil && c.Cost > 0 {
			continue
		}

		charges, policies = charges[:n], policies[:n]
		err = cmp.Or(err, q.leaveOut(p, c, failed))
	}

	q.charges, q.policies = charges, policies
	return err
}

// leaveOut notes a policy without a charge in the quote: the request costs nothing under the
// policy or, if failed is not nil, the policy could not be priced. It returns failed if that
// refuses the request.
func (q *quote) leaveOut(p *compiledPolicy, c *store.Charge, failed error) error {
	switch {
	case failed == nil:
		c.Cost = 1 // for calls of the store about the budget, such as Pause: a cost is at least 1
		q.zeroCost = append(q.zeroCost, zeroCost{p, *c})
	case p.Shadow:
		q.unpriced = append(q.unpriced, unpriced{p, failed})
	default:
		return failed
	}
	return nil
}
