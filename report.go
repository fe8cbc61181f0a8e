package throttle

import (
	"context"
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
