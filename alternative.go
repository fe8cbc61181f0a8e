package throttle

import (
	"context"
	"errors"
	"fmt"
)

// An Alternative is one way to do a piece of work: see [Limiters.AcquireFirst].
type Alternative struct {
	Demands []Demand // without demands the work is free
	Weight  int      // as in Variant
}

// AcquireFirst is Acquire for work that can be done in several ways: on one of several
// machines, with one of several licences. It takes what the first alternative demands that
// may start, and returns the permit and which of the alternatives that is. Nothing of the
// others is taken. It chooses as [Choice] does, and returns -1 with an error.
//
// The permit is for that alternative: [Permit.Renew] chooses no other.
func (l *Limiters) AcquireFirst(ctx context.Context, alternatives ...Alternative) (*Permit, int, error) {
	if n := len(alternatives); n == 0 || n > mostVariants {
		return nil, -1, &ConfigError{"", "alternatives", fmt.Errorf("there are %d of them: use 1 to %d", n, mostVariants)}
	}
	for i := range alternatives {
		if alternatives[i].Weight < 0 {
			return nil, -1, &ConfigError{"", "alternatives", errors.New("a Weight is negative: use 0 or more")}
		}
	}
	c := newChooser(len(alternatives), func(i int) int { return alternatives[i].Weight }, func(i int) (*contender, error) {
		a := l.newAcquisition(ctx)
		return &contender{quotedAcquisition: a, ctx: ctx, price: func() error {
			s := l.policies.Load()
			return a.useQuote(ctx, a.newQuote(s).priceDemands(s, alternatives[i].Demands, a.Priority))
		}}, nil
	})
	v, err := c.choose(ctx)
	v.Variant = false // the permit has no other
	p, err := l.permit(ctx, v.quotedAcquisition, err)
	if err != nil {
		return nil, -1, err
	}
	return p, v.index, nil
}
