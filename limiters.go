package throttle

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/fleetthrottle/throttle/store"
)

// Limiters are the engine of [Transport] for work that is not an HTTP request and needs
// several budgets: queries limited per tenant, in total, and in flight. They are safe for
// concurrent use and have nothing to close.
type Limiters struct {
	engine
	policies livePolicies
	redeemed redeemedPlaces
}

// NewLimiters returns limiters for the policies. A policy without a Match is used by name
// only: no request matches it. In a policy with a Match, Match, Key, Cost, Share and Weight
// count for [Limiters.AcquireRequest]. A [Demand] names its key, cost and share itself.
// NewLimiters reports every mistake at once. Functions that read answers are mistakes,
// because nobody would call them: report an answer by [Permit.Tell]. [WithoutAnswers]
// removes them from a table that a Transport has, too.
//
// Programs share a budget if the store, the policy's name and the key are the same,
// whatever the rest of their policies.
func NewLimiters(c Config) (*Limiters, error) {
	l := new(Limiters)
	var unused error
	if c.Base != nil {
		unused = &ConfigError{"", "Base", errors.New("is for a Transport: limiters send nothing")}
	}
	if err := errors.Join(l.configure(c), unused, l.policies.begin(c.Policies, namesAndRequests)); err != nil {
		return nil, err
	}
	return l, nil
}

// SetPolicies replaces the policies, as [Transport.SetPolicies] does. Waiters whose
// policy is gone are refused with a *[ConfigError].
func (l *Limiters) SetPolicies(policies []Policy) error {
	if l.store == nil {
		return errNotMade()
	}
	return l.policies.set(policies, namesAndRequests)
}

// Policies returns a copy of the policies as they are now, as they were given
// to [NewLimiters] or [Limiters.SetPolicies].
func (l *Limiters) Policies() []Policy { return slices.Clone(l.policies.Load().given) }

// Limiter returns a limiter for the budgets of one of the policies, as they are now, with
// the same MaxWait and Observe: to close and open the budgets by hand, to look at them, or
// for work that needs only this policy.
func (l *Limiters) Limiter(policy string) (*Limiter, error) {
	p, err := l.policies.Load().policyNamed(policy, "the limiters have")
	if err != nil {
		return nil, err
	}
	return newLimiter(&l.engine, p), nil
}

// Acquire waits until all budgets have room for the demands of the work, books all of them
// in one step, and returns a permit. Until then it takes nothing, so work that waits for
// one budget does not keep the rest from use. Demands of one budget add up. Without demands
// Acquire fails with a *[ConfigError]: free work has demands that are [Free].
//
// Acquire waits and fails as [Limiter.Acquire] does. Call [Permit.Release] when the work is
// done, if one of the limits is [Concurrency]: the end of ctx does so, too.
func (l *Limiters) Acquire(ctx context.Context, demands ...Demand) (*Permit, error) {
	// Acquire is so small that it is inlined. So a permit that does not leave the function of
	// its caller is not allocated, and neither is the memory for its rows.
	return l.acquireDemands(ctx, &Permit{more: make([]permitRow, moreRows)}, demands)
}

// AcquireRequest is Acquire for work that a request describes: the demands are the policies
// that match the request, with their Key and Cost. The request is not sent, and its context
// is the caller's.
func (l *Limiters) AcquireRequest(req *http.Request) (*Permit, error) {
	return l.acquireRequest(&Permit{more: make([]permitRow, moreRows)}, req)
}

// acquireRequest fills in p, the permit of a request under the policies that match it, and returns it. If no policy matches,
// noticeUnmatched decides: acquireRequest returns its error or, if there is none, a permit that holds nothing. After an error
// the permit is nil.
func (l *Limiters) acquireRequest(p *Permit, req *http.Request) (*Permit, error) {
	a := l.newAcquisition(req.Context())
	p, err := l.acquire(req.Context(), p, a, func() error {
		var matchBuf [fewPolicies]int32
		s := l.policies.Load()
		matched := s.index.Match(matchBuf[:0], req)
		if len(matched) == 0 {
			if err := l.noticeUnmatched(s, req); err != nil {
				return err
			}
		}

		return a.useQuote(req.Context(), a.newQuote(s).priceRequest(s, matched, req))
	})

	a.recycle()
	return p, err
}

// newAcquisition returns the acquisition of a caller that waits as long as MaxWait allows, or
// WithMaxWait of the context.
func (l *Limiters) newAcquisition(ctx context.Context) *quotedAcquisition {
	a, o := l.newQuotedAcquisition(), optionsOf(ctx)
	a.Priority = o.priority
	a.MaxWait, a.ByDefault = o.maxWaitOr(ctx, l.defaultMaxWait)
	return a
}

// acquireDemands acquires the charges of the demands, fills in p, and returns it.
func (l *Limiters) acquireDemands(ctx context.Context, p *Permit, demands []Demand) (*Permit, error) {
	a := l.newAcquisition(ctx)
	p, err := l.acquire(ctx, p, a, func() error { return l.priceDemands(ctx, a, demands) })
	a.recycle()
	return p, err
}

// priceDemands sets the charges of the demands under the present policies.
func (l *Limiters) priceDemands(ctx context.Context, a *quotedAcquisition, demands []Demand) error {
	s := l.policies.Load()
	return a.useQuote(ctx, a.newQuote(s).priceDemands(s, demands, a.Priority))
}

// acquire fills in p, the permit of a caller for the charges that price sets, and returns it. price is called once
// at first, and again each time the policies are replaced during the wait. After an error acquire returns nil.
func (l *Limiters) acquire(ctx context.Context, p *Permit, a *quotedAcquisition, price func() error) (*Permit, error) {
	err := price()
	if err == nil && !a.hasNoPolicy() {
		err = a.acquireStart(ctx, price)
	}
	return l.permit(ctx, p, a, err)
}

// permit fills in p, the permit of a caller that has its start or needs none, and returns it. If err, the error of the
// caller's wait, is not nil, permit tells the observer and returns err. The permit keeps no pointer to the acquisition.
func (l *Limiters) permit(ctx context.Context, p *Permit, a *quotedAcquisition, err error) (*Permit, error) {
	// The wait is over, so the caller is not counted among the held callers any more.
	a.StopWatch()
	if err != nil {
		a.reportEnd(ctx, err)
		return nil, err
	}

	p.engine = &l.engine
	p.setRows(a)
	if a.hasNoPolicy() || a.Uncounted() {
		p.state.Store(permitFree)
	}

	if !a.hasNoPolicy() {
		// The tie gets a copy, because a is used again when the permit has been returned.
		if a.Concurrent() && !a.Uncounted() {
			p.tieSlots(ctx, &acquisition{a.Again(), a.engine})
		}
		p.setAndTell(ctx, &a.acquisition)
	}

	return p, nil
}

// Statuses asks the store for the status of the budgets of the current policies: the budget
// of each policy without a Key, and at most 16 budgets of each policy with a Key, which
// callers of this transport used within the last hour. Of more than 16 budgets those that
// hold callers come first. Statuses begins to note the used budgets at its first call, and
// stops an hour after the last.
//
// The error is a *[StoreError] if the store did not answer all questions in time, if a
// second store stands in for it, or if callers wait for its answer. Without any budget
// Statuses asks the store as well. Statuses that were answered are returned with the error.
func (t *Transport) Statuses(ctx context.Context) (map[Budget]Status, error) {
	return t.statuses(ctx, t.policies.Load())
}

// Statuses is [Transport.Statuses] for limiters.
func (l *Limiters) Statuses(ctx context.Context) (map[Budget]Status, error) {
	return l.statuses(ctx, l.policies.Load())
}

// maxQuestions is how many questions the store is asked at a time.
const maxQuestions = 16

// statuses asks the store about the budgets that are known, and once about each group of the
// fleet without a known budget, to learn whether the group's server answers. It returns the
// answers that came, and a *[StoreError] as Statuses says, or errNotMade if it has no store.
func (e *engine) statuses(ctx context.Context, s *policySet) (map[Budget]Status, error) {
	if e.store == nil {
		return nil, errNotMade()
	}

	ctx, cancel := boundCall(ctx)
	defer cancel()

	// The first charges are of known budgets, and the rest only ask whether a server answers.
	charges := e.recentCharges(s)
	budgets := len(charges)
	for group := range unasked(s, charges) {
		charges = append(charges, livenessCharge(group))
	}

	// Callers that wait for the store's answer are a failure even if all questions are answered.
	failed := e.unansweredError()
	all := make(map[Budget]Status, budgets)
	var mu sync.Mutex // of all and failed

	// Each worker takes the next charge, so that a slow answer delays only its own worker.
	var next atomic.Int64
	var workers sync.WaitGroup
	for range min(maxQuestions, len(charges)) {
		workers.Go(func() {
			for i := int(next.Add(1)) - 1; i < len(charges); i = int(next.Add(1)) - 1 {
				// Once ctx has ended no more questions are asked.
				st, err := Status{}, ctx.Err()
				if err == nil {
					st, err = e.statusOrAway(ctx, charges[i])
				}

				mu.Lock()
				if err != nil {
					failed = err
				} else if i < budgets {
					all[charges[i].Budget] = st
				}
				mu.Unlock()
			}
		})
	}

	workers.Wait()
	if failed != nil {
		return all, &StoreError{failed}
	}

	return all, nil
}

// recentCharges returns a charge of cost 1 for each known budget: the budgets of policies
// without a Key, and the budgets that callers used last. From its first call on, and until an
// hour after its last call, the engine notes which budgets callers use.
func (e *engine) recentCharges(s *policySet) (charges []store.Charge) {
	known := e.callers.RecentBudgets(func(policy string) bool { return s.byName[policy] != nil })
	for i := range s.policies {
		p := &s.policies[i]
		c := p.charge
		if !p.hasKeys() {
			charges = append(charges, c)
		}

		for _, key := range known[p.Name] {
			// The budget of a policy without keys is in charges already. A policy that had keys before may have more budgets.
			if !p.hasKeys() && key == p.charge.Budget.Key {
				continue
			}
			c.Budget.Key = key
			charges = append(charges, c)
		}
	}

	return charges
}

// unasked returns the groups of the Fleet scope of which charges has no budget: the servers of
// these groups must be asked separately. If no policy is of the Fleet scope it returns the group
// "", so that the store is asked whether it answers.
func unasked(s *policySet, charges []store.Charge) map[string]bool {
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

// A Demand is the cost of a piece of work under one policy: see [Limiters.Acquire].
type Demand struct {
	Policy string // the name of one of the policies
	Key    string // the key of its budget: required for a policy with a Key or Keyed, otherwise a mistake
	Cost   int    // 1 or more, or Free, where 0 means 1

	// Share is the name of the share to which the work belongs, and Weight the share's weight, from
	// 1 to 1000: see [Policy.Share], which is not called. The empty name is no share, and a weight of
	// 0 means 1. Of several demands of one budget the first counts.
	Share  string
	Weight int
}

// noDemands is the error of work that demands nothing: an empty list must not pass a limit. otherwise is the
// end of the advice.
func noDemands(otherwise string) error {
	return &ConfigError{"", "demands", errors.New("are missing: name what the work takes" + otherwise)}
}

// priceDemands sets the quote to the charges of demands, for work with a priority. Demands of cost
// Free go into zeroCost. It returns the error of the first demand that is a mistake, and noDemands
// without any demand. After an error the quote must not be used.
func (q *quote) priceDemands(s *policySet, demands []Demand, priority Priority) error {
	q.charges, q.policies, q.zeroCost = q.charges[:0], q.policies[:0], q.zeroCost[:0]
	if len(demands) == 0 {
		return noDemands("")
	}

	for i := range demands {
		d := &demands[i]
		p, err := s.policyNamed(d.Policy, "the limiters have")
		if err != nil {
			return err
		}
		if err := p.checkKey(d.Key); err != nil {
			return err
		}

		// The charge of the policy, with the key, the share and the cost of the demand.
		c := p.charge
		if d.Key != "" {
			c.Budget.Key = p.hash(d.Key)
		}

		c.Share = store.Share{ID: store.ShareOf(p.Name, d.Share), Weight: d.Weight}
		if err := p.checkDemandedShare(d); err != nil {
			return err
		}

		c.KeepFree = p.headrooms.forPriority(priority)
		switch {
		case d.Cost == Free:
			q.zeroCost = append(q.zeroCost, zeroCost{p, c})
			continue
		case d.Cost < 0:
			return negativeCost(p.Name)
		case d.Cost > 0: // otherwise the cost is 1, as in the charge of the policy
			c.Cost = d.Cost
		}

		q.add(p, c)
	}

	return nil
}

// checkDemandedShare returns the error of a demand that has a weight out of range, a weight without a
// share, or a share under a limit under which shares do not take turns.
func (p *compiledPolicy) checkDemandedShare(d *Demand) error {
	switch {
	case d.Share == "" && d.Weight != 0:
		return &ConfigError{p.Name, "weight", errors.New("is set without a share: name the share, or leave the weight out")}
	case d.Share != "" && !takesTurns(p.Limit):
		return &ConfigError{p.Name, "share", errNoTurns}
	}
	return checkWeight(p.Name, "weight", d.Weight)
}

// add adds a charge of a policy to the quote, or its cost to the charge of the same budget.
func (q *quote) add(p *compiledPolicy, c store.Charge) {
	for i := range q.charges {
		if old := &q.charges[i]; old.Budget == c.Budget {
			// Bounded, so that a sum above the limit cannot overflow.
			old.Cost = min(old.Cost, store.MaxCost+1) + min(c.Cost, store.MaxCost+1)
			return
		}
	}
	q.charges, q.policies = append(q.charges, c), append(q.policies, p)
}
