package throttle

import (
	"context"
	"slices"
)

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
