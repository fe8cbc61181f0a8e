package throttle

import (
	"errors"
	"net/http"
	"time"
)

// A lesson is what the policies read out of an answer.
type feedback struct {
	penalties []penalty
	quotas    []quota
	costs     []int // of all charges; nil: they cost what was booked
}

// A penalty is for how long one budget must stay closed from now on; 0 or less if
// the answer was on its way for so long that this is over.
type penalty struct {
	charge *Charge
	length time.Duration
	stored bool
	acted  bool // the request has done a part of what was asked
}

// A quota is what is left of one budget.
type quota struct {
	charge *Charge
	Quota
}

// learn lets every policy of the request look at its answer. It closes the
// budgets for which the answer means a penalty, lowers those that have less left
// than was believed, and settles costs that were only estimated, before the
// caller gets the answer.
func (r *roundTrip) applyResponse(resp *http.Response) {
	l, no := r.readFeedback(resp)
	r.markDenial(resp, l.penalties, no)
	if l.penalties == nil && l.quotas == nil && l.costs == nil {
		return
	}
	told := make(chan struct{})
	go func() {
		defer close(told)
		r.reportFeedback(l)
	}()
	patience := time.NewTimer(r.maxResponseDelay())
	defer patience.Stop()
	select {
	case <-told:
		r.markRefusal(resp, l.penalties, true)
		return
	case <-patience.C: // the fleet must know all the same
	case <-r.req.Context().Done():
	}
	r.markRefusal(resp, l.penalties, false)
}

// read lets the policies look at an answer. No is negative if one of them says that
// it is certainly no refusal.
func (r *roundTrip) readFeedback(resp *http.Response) (l feedback, no time.Duration) {
	req := resp.Request
	late := r.responseDelay(resp)
	l.penalties, no = r.readPenalties(resp, late)
	l.quotas = r.readQuotas(resp, late)
	l.costs = r.readCosts(resp)
	resp.Request = req
	return l, no
}

// policies are all that the request matches, those too that it costs nothing.
func (r *roundTrip) eachPolicy(yield func(*compiledPolicy, *Charge) bool) {
	for i, p := range r.quote.policies {
		if !yield(p, &r.booking.Charges[i]) {
			return
		}
	}
	for i := range r.quote.zeroCost {
		if f := &r.quote.zeroCost[i]; !yield(f.policy, &f.charge) {
			return
		}
	}
}

// penalties returns what closes budgets, and a negative number if a policy says
// that the answer is certainly no refusal. They count from when the answer was sent,
// that long ago.
func (r *roundTrip) readPenalties(resp *http.Response, late time.Duration) (all []penalty, no time.Duration) {
	for p, c := range r.eachPolicy {
		d, err := p.penalty(resp)
		r.reportIllegible(p, c, resp)
		if err != nil {
			r.functionFailed(p, err)
			d = RetryAfter(resp) // rather than none
		}
		if d > 0 {
			all = append(all, penalty{charge: c, length: min(d, MaxPenalty) - late, acted: r.hasActed(p, resp)})
		} else if !c.Shadow {
			no = min(no, d)
		}
	}
	return all, no
}

// acted reports whether a policy says of a refusal that a part was done all the same.
func (r *roundTrip) hasActed(p *compiledPolicy, resp *http.Response) bool {
	if p.Acted == nil {
		return false
	}
	acted, err := p.acted(resp)
	if err != nil {
		r.functionFailed(p, err)
	}
	return acted
}

// quotas returns what was said to be left of budgets, that long ago.
func (r *roundTrip) readQuotas(resp *http.Response, late time.Duration) (all []quota) {
	for p, c := range r.eachPolicy {
		if p.Quota == nil {
			continue
		}
		q, ok, err := p.quota(resp)
		r.reportIllegible(p, c, resp)
		if err != nil {
			r.functionFailed(p, err)
		}
		if !ok {
			continue
		}
		// The answer knows of what has arrived before its own request, and perhaps of
		// what came later: nobody can tell.
		q.Left, q.Age = max(0, q.Left), max(0, r.elapsed()-max(c.Jitter, DefaultJitter))
		q.Reset = max(0, min(q.Reset, MaxPenalty)-late)
		if q.Reset > 0 || c.Limit.kind == Bucket { // which knows by itself when there will be more
			all = append(all, quota{c, q})
		}
	}
	return all
}

// costs returns what the request has cost under each of its policies, or nil if
// that is what was booked.
func (r *roundTrip) readCosts(resp *http.Response) (all []int) {
	for i, p := range r.quote.policies {
		c := &r.booking.Charges[i]
		if p.Settle == nil || !c.Limit.counts() {
			continue
		}
		cost, err := p.settle(resp)
		r.reportIllegible(p, c, resp)
		if err != nil {
			r.functionFailed(p, err)
			continue
		}
		if cost = min(cost, mostSettled(c)); cost < 0 || cost == c.Cost {
			continue
		}
		if all == nil {
			all = costsOf(r.booking.Charges)
		}
		all[i] = cost
	}
	return all
}

// mostSettled is the most that an answer can make a start cost. What lets starts
// through one by one is closed for as long as the cost says, and no answer closes
// anything for longer than [MaxPenalty].
func mostSettled(c *Charge) int {
	if c.Limit.kind != Paced {
		return MaxCost
	}
	most := float64(MaxPenalty) / float64(c.Limit.per) * float64(c.Limit.n)
	return max(c.Cost, int(min(most, MaxCost)))
}

func costsOf(charges []Charge) []int {
	costs := make([]int, len(charges))
	for i := range charges {
		costs[i] = charges[i].Cost
	}
	return costs
}

// survived reports a function of a policy that failed where the request, or its
// answer, goes on all the same.
func (r *roundTrip) functionFailed(p *compiledPolicy, err error) {
	if r.observe != nil {
		r.observe(r.req.Context(), Event{Kind: FunctionFailed, Policy: p.Name, Limit: p.Limit, Err: err})
	}
}

// outcome is the kind of event that an error makes.
func outcomeOf(err error) EventKind {
	var gone *gaveUpError
	if errors.As(err, &gone) {
		return GaveUp
	}
	return Refused
}
