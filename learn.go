package throttle

import (
	"errors"
	"net/http"
	"time"
)

// A lesson is what the policies read out of an answer.
type lesson struct {
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
	outage bool // the upstream is down: it may be up again at any time, and bans nobody
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
func (j *journey) learn(resp *http.Response) {
	l, no := j.read(resp)
	j.markDenial(resp, l.penalties, no)
	if l.penalties == nil && l.quotas == nil && l.costs == nil {
		return
	}
	told := make(chan struct{})
	go func() {
		defer close(told)
		j.tellOf(l)
	}()
	patience := time.NewTimer(j.kept())
	defer patience.Stop()
	select {
	case <-told:
		j.markRefusal(resp, l.penalties, true)
		return
	case <-patience.C: // the fleet must know all the same
	case <-j.req.Context().Done():
	}
	j.markRefusal(resp, l.penalties, false)
}

// read lets the policies look at an answer. No is negative if one of them says that
// it is certainly no refusal.
func (j *journey) read(resp *http.Response) (l lesson, no time.Duration) {
	req := resp.Request
	late := j.delay(resp)
	l.penalties, no = j.penalties(resp, late)
	l.quotas = j.quotas(resp, late)
	l.costs = j.costs(resp)
	resp.Request = req
	return l, no
}

// policies are all that the request matches, those too that it costs nothing.
func (j *journey) policies(yield func(*rule, *Charge) bool) {
	for i, r := range j.bill.rules {
		if !yield(r, &j.booking.Charges[i]) {
			return
		}
	}
	for i := range j.bill.free {
		if f := &j.bill.free[i]; !yield(f.rule, &f.charge) {
			return
		}
	}
}

// penalties returns what closes budgets, and a negative number if a policy says
// that the answer is certainly no refusal. They count from when the answer was sent,
// that long ago.
func (j *journey) penalties(resp *http.Response, late time.Duration) (all []penalty, no time.Duration) {
	for r, c := range j.policies {
		d, err := r.penalty(resp)
		j.legible(r, c, resp)
		if err != nil {
			j.survived(r, err)
			d = RetryAfter(resp) // rather than none
		}
		if d > 0 {
			all = append(all, penalty{charge: c, length: min(d, MaxPenalty) - late, acted: j.acted(r, resp), outage: resp.StatusCode == http.StatusServiceUnavailable})
		} else if !c.Shadow {
			no = min(no, d)
		}
	}
	return all, no
}

// acted reports whether a policy says of a refusal that a part was done all the same.
func (j *journey) acted(r *rule, resp *http.Response) bool {
	if r.Acted == nil {
		return false
	}
	acted, err := r.acted(resp)
	if err != nil {
		j.survived(r, err)
	}
	return acted
}

// quotas returns what was said to be left of budgets, that long ago.
func (j *journey) quotas(resp *http.Response, late time.Duration) (all []quota) {
	for r, c := range j.policies {
		if r.Quota == nil {
			continue
		}
		q, ok, err := r.quota(resp)
		j.legible(r, c, resp)
		if err != nil {
			j.survived(r, err)
		}
		if !ok {
			continue
		}
		// The answer knows of what has arrived before its own request, and perhaps of
		// what came later: nobody can tell.
		q.Left, q.Age = max(0, q.Left), max(0, j.took()-max(c.Jitter, DefaultJitter))
		q.Reset = max(0, min(q.Reset, MaxPenalty)-late)
		if q.Reset > 0 || c.Limit.kind == Bucket { // which knows by itself when there will be more
			all = append(all, quota{c, q})
		}
	}
	return all
}

// costs returns what the request has cost under each of its policies, or nil if
// that is what was booked.
func (j *journey) costs(resp *http.Response) (all []int) {
	for i, r := range j.bill.rules {
		c := &j.booking.Charges[i]
		if r.Settle == nil || !c.Limit.counts() {
			continue
		}
		cost, err := r.settle(resp)
		j.legible(r, c, resp)
		if err != nil {
			j.survived(r, err)
			continue
		}
		if cost = min(cost, mostSettled(c)); cost < 0 || cost == c.Cost {
			continue
		}
		if all == nil {
			all = costsOf(j.booking.Charges)
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
func (j *journey) survived(r *rule, err error) {
	if j.observe != nil {
		j.observe(j.req.Context(), Event{Kind: FunctionFailed, Policy: r.Name, Limit: r.Limit, Err: err})
	}
}

// outcome is the kind of event that an error makes.
func outcome(err error) EventKind {
	var gone *gaveUpError
	if errors.As(err, &gone) {
		return GaveUp
	}
	return Refused
}
