package throttle

import (
	"context"
	"errors"
	"net/http"
	"time"
)

// tellTime bounds how long an answer is kept from its caller while the store is
// told what it means, and tellMost how long the store is told at all: one that
// is away for longer learns of a penalty that still lasts from the next answer.
const (
	tellTime = time.Second
	tellMost = 30 * time.Second
)

// A lesson is what the policies read out of an answer.
type lesson struct {
	penalties []penalty
	quotas    []quota
	costs     []int // of all charges; nil: they cost what was booked
}

// A penalty is for how long one budget must stay closed.
type penalty struct {
	charge *Charge
	length time.Duration
	stored bool
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
	penalties, no := j.penalties(resp)
	l := lesson{penalties, j.quotas(resp), j.costs(resp)}
	j.markDenial(resp, penalties, no)
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
		j.markRefusal(resp, l.penalties)
	case <-patience.C: // the fleet must know all the same
	case <-j.req.Context().Done():
	}
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
// that the answer is certainly no refusal.
func (j *journey) penalties(resp *http.Response) (all []penalty, no time.Duration) {
	for r, c := range j.policies {
		d, err := r.penalty(resp)
		if err != nil {
			j.survived(r, err)
			d = RetryAfter(resp) // rather than none
		}
		if d > 0 {
			all = append(all, penalty{charge: c, length: min(d, MaxPenalty)})
		} else if !c.Shadow {
			no = min(no, d)
		}
	}
	return all, no
}

// quotas returns what is said to be left of budgets.
func (j *journey) quotas(resp *http.Response) (all []quota) {
	for r, c := range j.policies {
		if r.Quota == nil {
			continue
		}
		q, ok, err := r.quota(resp)
		if err != nil {
			j.survived(r, err)
		}
		// A bucket knows by itself when there will be more.
		if ok && (q.Reset > 0 || c.Limit.kind == Bucket) {
			q.Left, q.Reset = max(0, q.Left), min(max(0, q.Reset), MaxPenalty)
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

// tellOf tells the store, and the observer, of a lesson. A penalty is worth
// telling for as long as it lasts.
func (j *journey) tellOf(l lesson) {
	for i := range l.penalties {
		p := &l.penalties[i]
		ctx, cancel := j.toTell(p.length)
		err := j.store.Pause(ctx, *p.charge, p.length)
		p.stored = err == nil
		if err != nil {
			j.failedTo(ctx, p.charge, p.length, err)
		} else if j.observe != nil {
			j.observe(ctx, eventOf(Penalized, p.charge, p.length, nil))
		}
		cancel()
	}
	ctx, cancel := j.toTell(tellTime)
	defer cancel()
	j.settle(ctx, l.costs)
	for _, q := range l.quotas { // which know of the true costs
		if err := j.store.Reconcile(ctx, *q.charge, q.Quota); err != nil {
			j.failedTo(ctx, q.charge, q.Reset, err)
		}
	}
}

// settle tells the store what the request has cost; nil: what was booked.
func (j *journey) settle(ctx context.Context, costs []int) {
	if costs == nil {
		return
	}
	if err := j.store.Settle(ctx, &j.booking, j.grant, costs); err != nil {
		for i, cost := range costs {
			if c := &j.booking.Charges[i]; c.Cost != cost {
				j.failedTo(ctx, c, 0, err)
			}
		}
	}
}

// toTell is the context of what the store is told: the caller's, but for its
// end.
func (j *journey) toTell(worth time.Duration) (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.WithoutCancel(j.req.Context()), min(max(worth, tellTime), tellMost))
}

// failedTo reports that the store could not be told something about a budget.
func (j *journey) failedTo(ctx context.Context, c *Charge, d time.Duration, err error) {
	if j.observe != nil {
		j.observe(ctx, eventOf(StoreFailed, c, d, &StoreError{err}))
	}
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
