package throttle

import (
	"context"
	"slices"
	"time"

	"github.com/fleetthrottle/throttle/store"
)

// A penalty is the consequence of a refusal for one budget.
type penalty struct {
	byDefault bool // the default read it, and not the policy's own function

	charge  *store.Charge
	length  time.Duration // how long the budget must stay closed from now on; not above 0 once the penalty is over
	verdict Verdict       // of the policy on the request
	failed  bool          // the store could not be told, or the penalty was over by then
	outage  bool          // the upstream is down: it may be up again at any time, and bans nobody
}

// reportPenalty has the store close the budget of a penalty. The refused work began ago,
// and its answer took the part took of that time. learns says that the budget may learn
// from the refusal. After an error it is unknown whether the store has closed the budget.
func (a *acquisition) reportPenalty(ctx context.Context, p *penalty, ago, took time.Duration, learns bool) error {
	c := p.charge
	if p.outage {
		return a.pauseBudget(ctx, c, p.length)
	}

	refusal := store.Refusal{Length: max(0, p.length), Ago: ago, Took: took}
	if learns {
		refusal.Start = a.Grant
	}

	from, to, err := a.store.Refuse(ctx, *c, refusal)
	if err != nil {
		a.reportFailure(ctx, c, refusal.Length, err)
		return err
	}

	if a.observe == nil {
		return nil
	}

	if p.length > 0 {
		a.callers.NoteClosed(c.Budget, p.length)
		a.observe(ctx, eventOf(EventPenalized, c, p.length, nil))
	}

	if to < from {
		e := eventOf(EventLowered, c, 0, nil)
		e.From, e.To = from, to
		a.observe(ctx, e)
	}

	return nil
}

// pauseBudget has the store close a budget for d. After an error it is unknown whether the store
// has closed the budget.
func (a *acquisition) pauseBudget(ctx context.Context, c *store.Charge, d time.Duration) error {
	if err := a.store.Pause(ctx, *c, d); err != nil {
		a.reportFailure(ctx, c, d, err)
		return err
	}
	if a.observe != nil {
		a.callers.NoteClosed(c.Budget, d)
		a.observe(ctx, eventOf(EventPenalized, c, d, nil))
	}
	return nil
}

// reportFailure tells the observer that the store did not take a report on a budget: a
// penalty or a quota of length d, or a cost, with d 0.
func (e *engine) reportFailure(ctx context.Context, c *store.Charge, d time.Duration, err error) {
	if e.observe != nil {
		failed := &StoreError{err}
		e.observe(e.withQuestion(ctx, failed, []store.Charge{*c}), eventOf(EventStoreFailed, c, d, failed))
	}
}

// isForAll reports whether a charge is of the budget that its policy has without a key.
func isForAll(c *store.Charge) bool { return c.Budget.Key == store.BudgetOf(c.Budget.Policy, "").Key }

// isOfKey reports whether a charge holds the caller in a budget of its key. By default a
// refusal is about the first of these, and not about budgets that callers with different
// keys share.
func (a *acquisition) isOfKey(c *store.Charge) bool {
	return !c.Shadow && a.isBooked(c) && !isForAll(c)
}

// isBooked reports whether a charge is one of the booked charges.
func (a *acquisition) isBooked(c *store.Charge) bool {
	for i := range a.Booking.Charges {
		if c == &a.Booking.Charges[i] {
			return true
		}
	}
	return false
}

// learningPenalty returns the index of the penalty from which an Adaptive budget learns
// that the upstream allows less than the limit, or a negative number if there is none: see
// docs/learning.md. If a response closes several Adaptive budgets only the fullest learns:
// the refusal is not about a budget that was hardly used. A budget whose quota the response
// states does not learn.
func (a *acquisition) learningPenalty(ctx context.Context, penalties []penalty, stated func(*store.Charge) bool) int {
	var able []int
	for i := range penalties {
		p := &penalties[i]
		if c := p.charge; c.Adaptive && !c.Shadow && !p.outage && a.isBooked(c) && !stated(c) {
			able = append(able, i)
		}
	}

	if len(able) < 2 {
		return slices.Max(append(able, -1))
	}

	fullest, maxFullness := -1, -1.0
	for _, i := range able {
		if f := a.fullness(ctx, penalties[i].charge); f > maxFullness {
			fullest, maxFullness = i, f
		}
	}

	return fullest
}

// fullness returns the used part of a budget, where 1 is all of it, or 0 if the store does
// not say.
func (a *acquisition) fullness(ctx context.Context, c *store.Charge) float64 {
	st, err := a.store.Status(ctx, *c)
	if err != nil {
		return 0
	}

	capacity := float64(c.Limit.Capacity())
	switch {
	case c.Limit.Kind() == store.KindLeakyBucket:
		capacity = 1 // one start counts at a time
	case st.Ceiling > 0:
		capacity *= st.Ceiling / float64(c.Limit.N())
	}

	return float64(st.Used) / capacity
}
