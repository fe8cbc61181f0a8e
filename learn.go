package throttle

import (
	"context"
	"errors"
	"net/http"
	"time"
)

// tellTime bounds how long an answer is kept from its caller while the store is
// told what it means.
const tellTime = time.Second

// A lesson is what the policies read out of an answer.
type lesson struct {
	penalties []penalty
	costs     []int // of all charges; nil: they cost what was booked
}

// A penalty is for how long one budget must stay closed.
type penalty struct {
	charge *Charge
	length time.Duration
	stored bool
}

// learn lets every policy of the request look at its answer. It closes the
// budgets for which the answer means a penalty, and settles costs that were only
// estimated, before the caller gets the answer.
func (j *journey) learn(resp *http.Response) {
	l := lesson{j.penalties(resp), j.costs(resp)}
	if l.penalties == nil && l.costs == nil {
		return
	}
	told := make(chan struct{})
	go func() {
		defer close(told)
		j.tellOf(l)
	}()
	select {
	case <-told:
		j.mark(resp, l.penalties)
	case <-j.req.Context().Done(): // the fleet must know all the same
	}
}

func (j *journey) penalties(resp *http.Response) (all []penalty) {
	for i, r := range j.rules {
		if d := min(r.Penalty(resp), MaxPenalty); d > 0 {
			all = append(all, penalty{charge: &j.booking.Charges[i], length: d})
		}
	}
	return all
}

// costs returns what the request has cost under each of its policies, or nil if
// that is what was booked.
func (j *journey) costs(resp *http.Response) (all []int) {
	for i, r := range j.rules {
		c := &j.booking.Charges[i]
		if r.Settle == nil || c.Limit.kind == InFlight {
			continue
		}
		cost := min(r.Settle(resp), MaxCost)
		if cost < 0 || cost == c.Cost {
			continue
		}
		if all == nil {
			all = costsOf(j.booking.Charges)
		}
		all[i] = cost
	}
	return all
}

func costsOf(charges []Charge) []int {
	costs := make([]int, len(charges))
	for i := range charges {
		costs[i] = charges[i].Cost
	}
	return costs
}

// tellOf tells the store, and the observer, of a lesson.
func (j *journey) tellOf(l lesson) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(j.req.Context()), tellTime)
	defer cancel()
	for i := range l.penalties {
		p := &l.penalties[i]
		err := j.store.Pause(ctx, *p.charge, p.length)
		p.stored = err == nil
		if err != nil {
			j.failedTo(ctx, p.charge, p.length, err)
		} else if j.observe != nil {
			j.observe(ctx, eventOf(Penalized, p.charge, p.length, nil))
		}
	}
	if l.costs == nil {
		return
	}
	if err := j.store.Settle(ctx, &j.booking, j.grant, l.costs); err != nil {
		for i, cost := range l.costs {
			if c := &j.booking.Charges[i]; c.Cost != cost {
				j.failedTo(ctx, c, 0, err)
			}
		}
	}
}

// failedTo reports that the store could not be told something about a budget.
func (j *journey) failedTo(ctx context.Context, c *Charge, d time.Duration, err error) {
	if j.observe != nil {
		j.observe(ctx, eventOf(StoreFailed, c, d, &StoreError{err}))
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
