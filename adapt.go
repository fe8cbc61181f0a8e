package throttle

import (
	"context"
	"slices"
	"time"
)

// teaches returns the index of the penalty that says that the upstream allows less than
// the limit, below 0 if none does: see docs/learning.md. If an answer closes several
// adaptive budgets only the fullest learns: the one that was hardly used is not what
// the refusal is about.
func (j *journey) teaches(l lesson) int {
	var able []int
	for i := range l.penalties {
		c := l.penalties[i].charge
		stated := func(q quota) bool { return q.charge == c }
		if c.Adaptive && !c.Shadow && j.pays(c) && !slices.ContainsFunc(l.quotas, stated) {
			able = append(able, i)
		}
	}
	if len(able) < 2 {
		return slices.Max(append(able, -1))
	}
	best, most := -1, -1.0
	for _, i := range able {
		if f := j.fullness(l.penalties[i].charge); f > most {
			best, most = i, f
		}
	}
	return best
}

// fullness is how much of what a budget may use counts now; 0 if the store does not say.
func (j *journey) fullness(c *Charge) float64 {
	ctx, cancel := j.toTell(tellTime)
	defer cancel()
	st, err := j.store.Status(ctx, *c)
	if err != nil {
		return 0
	}
	most := float64(c.Limit.Capacity())
	switch {
	case c.Limit.kind == Paced:
		most = 1 // nothing else counts
	case st.Ceiling > 0:
		most *= st.Ceiling / float64(c.Limit.n)
	}
	return float64(st.Used) / most
}

// shutRefused tells the store of a refusal that its budget can learn from, closes the budget
// for d, and reports whether the store knows.
func (j *journey) shutRefused(ctx context.Context, c *Charge, d time.Duration) bool {
	from, to, err := j.store.Refuse(ctx, *c, j.grant, d)
	if err != nil {
		j.failedTo(ctx, c, d, err)
		return false
	}
	if j.observe == nil {
		return true
	}
	if d > 0 {
		j.observe(ctx, eventOf(Penalized, c, d, nil))
	}
	if to < from {
		e := eventOf(Lowered, c, 0, nil)
		e.From, e.To = from, to
		j.observe(ctx, e)
	}
	return true
}
