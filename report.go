package throttle

import (
	"context"
	"slices"
	"time"

	"github.com/fleetthrottle/throttle/store"
)

// A penalty is what a refusal means for one budget.
type penalty struct {
	byDefault bool // the policy has no function that says so

	charge  *store.Charge
	length  time.Duration // how long the budget must stay closed from now on; 0 or less: the penalty is over
	verdict Verdict       // what has become of the request
	failed  bool          // the store could not be told, or the penalty was over by then
	outage  bool          // the upstream is down: it may be up again at any time, and bans nobody
}

// reportPenalty has the store close the budget of a penalty. The refused work began ago, and its
// answer took so much of that. teaches says that the budget may learn from the refusal. After an
// error it is unknown whether the store has closed the budget.
func (a *acquisition) reportPenalty(ctx context.Context, p *penalty, ago, took time.Duration, teaches bool) error {
	c := p.charge
	if p.outage {
		return a.pauseBudget(ctx, c, p.length)
	}

	refusal := store.Refusal{Length: max(0, p.length), Ago: ago, Took: took}
	if teaches {
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

// reportFailure tells the observer that the store could not be told something about a budget: a
// penalty or a quota of length d, or a cost, with d 0.
func (e *engine) reportFailure(ctx context.Context, c *store.Charge, d time.Duration, err error) {
	if e.observe != nil {
		failed := &StoreError{err}
		e.observe(e.withQuestion(ctx, failed, []store.Charge{*c}), eventOf(EventStoreFailed, c, d, failed))
	}
}

// isForAll reports whether a charge is of the budget that its policy has without a key.
func isForAll(c *store.Charge) bool { return c.Budget.Key == store.BudgetOf(c.Budget.Policy, "").Key }

// isOfKey reports whether a charge holds the caller in a budget of its key. A refusal is about the first of these
// by default, and not about the budgets that callers with other keys share.
func (a *acquisition) isOfKey(c *store.Charge) bool {
	return !c.Shadow && a.isBooked(c) && !isForAll(c)
}

// isBooked reports whether a charge is one of those that were booked.
func (a *acquisition) isBooked(c *store.Charge) bool {
	for i := range a.Booking.Charges {
		if c == &a.Booking.Charges[i] {
			return true
		}
	}
	return false
}

// teachingPenalty returns the index of the penalty from which an Adaptive budget learns that the
// upstream allows less than the limit, below 0 if there is none: see docs/learning.md. If a
// response closes several Adaptive budgets only the fullest learns: the refusal is not about a
// budget that was hardly used. A budget of which the response states what is left does not learn.
func (a *acquisition) teachingPenalty(ctx context.Context, penalties []penalty, stated func(*store.Charge) bool) int {
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

	best, most := -1, -1.0
	for _, i := range able {
		if f := a.fullness(ctx, penalties[i].charge); f > most {
			best, most = i, f
		}
	}

	return best
}

// fullness returns which part of what a budget may use is used now, 1 for all; 0 if the store does
// not say.
func (a *acquisition) fullness(ctx context.Context, c *store.Charge) float64 {
	st, err := a.store.Status(ctx, *c)
	if err != nil {
		return 0
	}
	most := float64(c.Limit.Capacity())
	switch {
	case c.Limit.Kind() == store.KindLeakyBucket:
		most = 1 // one start counts at a time
	case st.Ceiling > 0:
		most *= st.Ceiling / float64(c.Limit.N())
	}
	return float64(st.Used) / most
}
