package throttle

import "slices"

// teaches returns the index of the penalty that says that the upstream allows less than
// the limit, below 0 if none does: see docs/learning.md. If a response closes several
// adaptive budgets only the fullest learns: the one that was hardly used is not what
// the refusal is about.
func (r *roundTrip) teaches(l feedback) int {
	var able []int
	for i := range l.penalties {
		p := &l.penalties[i]
		stated := func(q quota) bool { return q.charge == p.charge }
		if c := p.charge; c.Adaptive && !c.Shadow && !p.outage && r.isBooked(c) && !slices.ContainsFunc(l.quotas, stated) {
			able = append(able, i)
		}
	}
	if len(able) < 2 {
		return slices.Max(append(able, -1))
	}
	best, most := -1, -1.0
	for _, i := range able {
		if f := r.fullness(l.penalties[i].charge); f > most {
			best, most = i, f
		}
	}
	return best
}

// fullness is how much of what a budget may use counts now; 0 if the store does not say.
func (r *roundTrip) fullness(c *Charge) float64 {
	ctx, cancel := r.reportContext(reportWait)
	defer cancel()
	st, err := r.store.Status(ctx, *c)
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
