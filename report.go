package throttle

import (
	"context"
	"slices"
	"time"
)

// A penalty is for how long a budget must stay closed from now on; 0 or less if the
// response took so long that the penalty is over.
type penalty struct {
	charge *Charge
	length time.Duration
	stored bool
	acted  bool // the upstream has done a part of what was asked
	outage bool // the upstream is down: it may be up again at any time, and bans nobody
}

// reportPenalty closes a budget, and lets it learn if the penalty teaches something. The
// refused work began that long ago, and its answer took that long. After an error the store does
// not know.
func (a *acquisition) reportPenalty(ctx context.Context, p *penalty, ago, took time.Duration, teaches bool) error {
	c := p.charge
	if p.outage {
		return a.pauseBudget(ctx, c, p.length)
	}
	refusal := Refusal{Length: max(0, p.length), Ago: ago, Took: took}
	if teaches {
		refusal.Start = a.grant
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
		a.closings.extend(c.Budget, now(), now()+p.length)
		a.observe(ctx, eventOf(Penalized, c, p.length, nil))
	}
	if to < from {
		e := eventOf(Lowered, c, 0, nil)
		e.From, e.To = from, to
		a.observe(ctx, e)
	}
	return nil
}

// pauseBudget closes a budget. After an error the store does not know.
func (a *acquisition) pauseBudget(ctx context.Context, c *Charge, d time.Duration) error {
	if err := a.store.Pause(ctx, *c, d); err != nil {
		a.reportFailure(ctx, c, d, err)
		return err
	}
	if a.observe != nil {
		a.closings.extend(c.Budget, now(), now()+d)
		a.observe(ctx, eventOf(Penalized, c, d, nil))
	}
	return nil
}

// reportFailure reports that the store could not be told something about a budget.
func (a *acquisition) reportFailure(ctx context.Context, c *Charge, d time.Duration, err error) {
	if a.observe != nil {
		failed := &StoreError{err}
		a.observe(a.withQuestion(ctx, failed, []Charge{*c}), eventOf(StoreFailed, c, d, failed))
	}
}

// isBooked reports whether a charge is one of those that were booked.
func (a *acquisition) isBooked(c *Charge) bool {
	for i := range a.booking.Charges {
		if c == &a.booking.Charges[i] {
			return true
		}
	}
	return false
}

// teaches returns the index of the penalty that says that the upstream allows less than
// the limit, below 0 if none does: see docs/learning.md. If a response closes several
// adaptive budgets only the fullest learns: the one that was hardly used is not what
// the refusal is about. Budgets teach nothing of which the response says what is left.
func (a *acquisition) teaches(ctx context.Context, penalties []penalty, stated func(*Charge) bool) int {
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

// fullness is how much of what a budget may use counts now; 0 if the store does not say.
func (a *acquisition) fullness(ctx context.Context, c *Charge) float64 {
	st, err := a.store.Status(ctx, *c)
	if err != nil {
		return 0
	}
	most := float64(c.Limit.Capacity())
	switch {
	case c.Limit.kind == KindLeakyBucket:
		most = 1 // nothing else counts
	case st.Ceiling > 0:
		most *= st.Ceiling / float64(c.Limit.n)
	}
	return float64(st.Used) / most
}
