package throttle

import (
	"context"
	"net/http"
	"slices"
	"time"
)

// applyResponse lets every policy of the request look at its response, before the
// caller gets it. It closes the budgets for which the response means a penalty,
// lowers those that have less left than was believed, and settles costs that were
// only estimated.
func (r *roundTrip) applyResponse(resp *http.Response) {
	if r.saysNothing(resp) {
		return
	}
	l, no := r.readFeedback(resp)
	r.markDenial(resp, l.penalties, no)
	if l.penalties == nil && l.quotas == nil && l.costs == nil {
		return
	}
	reported := make(chan struct{})
	go func() {
		defer close(reported)
		r.reportFeedback(l)
	}()
	timer := time.NewTimer(r.maxResponseDelay())
	defer timer.Stop()
	select {
	case <-reported:
		r.markRefusal(resp, l.penalties, true)
		return
	case <-timer.C: // the fleet must know all the same
	case <-r.req.Context().Done():
	}
	r.markRefusal(resp, l.penalties, false)
}

// maxResponseDelay is how long a response may be kept from its caller while the
// store is told what it means. It respects a MaxWait that is over.
func (r *roundTrip) maxResponseDelay() time.Duration {
	if r.maxWait == 0 {
		return reportWait
	}
	return min(reportWait, max(storeGrace, r.waitDeadline-now()))
}

// reportFeedback tells the store, and the observer, what a response means. It tries to
// report a penalty for as long as the penalty lasts.
func (r *roundTrip) reportFeedback(l feedback) {
	arrived, took := now(), r.elapsed()
	ctx, cancel := r.reportContext(reportWait)
	teaches := r.teaches(ctx, l.penalties, func(c *Charge) bool {
		return slices.ContainsFunc(l.quotas, func(q quota) bool { return q.charge == c })
	})
	cancel()
	for i := range l.penalties {
		p := l.penalties[i]
		p.length -= (now() - arrived).Truncate(time.Millisecond) // the store was away for the one before
		if p.length > 0 || i == teaches {
			ctx, cancel := r.reportContext(p.length)
			l.penalties[i].stored = r.reportPenalty(ctx, &p, r.elapsed(), took, i == teaches) == nil && p.length > 0
			cancel()
		}
	}
	ctx, cancel = r.reportContext(reportWait)
	defer cancel()
	r.settleCosts(ctx, l.costs)
	for _, q := range l.quotas { // which know of the true costs
		r.lowerQuota(ctx, q)
	}
}

// resetDoubt is how much too late a reset may be: upstreams state it in whole seconds,
// and a response travels for a while. In a window of a second a reset that is a second
// later than the window ends is another window's.
const resetDoubt = 2 * time.Second

// lowerQuota tells the store what is left of a budget. A store counts within the
// limit's own windows, and holds requests for one window at most. If nothing is left
// for longer than that, lowerQuota closes the budget: for days, if the upstream says
// so, or until the end of a window that began at another time than the store's.
func (r *roundTrip) lowerQuota(ctx context.Context, q quota) {
	c := q.charge
	if err := r.store.Reconcile(ctx, *c, q.Quota); err != nil {
		r.reportFailure(ctx, c, q.Reset, err)
		return
	}
	kind, doubt := c.Limit.kind, resetDoubt
	if c.Limit.per > 0 {
		doubt = min(doubt, c.Limit.per)
	}
	if q.Left > 0 || q.Reset <= doubt || kind == KindTokenBucket || kind == KindConcurrency || kind == KindSlidingWindow && q.Reset <= c.Limit.per {
		return
	}
	status, err := r.store.Status(ctx, *c)
	switch {
	case err != nil:
		r.reportFailure(ctx, c, q.Reset, err)
	case status.Wait+doubt < q.Reset:
		_ = r.pauseBudget(ctx, c, q.Reset) // the observer knows
	}
}

// settleCosts tells the store what the request has cost; nil: what was booked.
func (r *roundTrip) settleCosts(ctx context.Context, costs []int) {
	if costs == nil {
		return
	}
	if err := r.store.Settle(ctx, &r.booking, r.grant, costs); err != nil {
		for i, cost := range costs {
			if c := &r.booking.Charges[i]; c.Cost != cost {
				r.reportFailure(ctx, c, 0, err)
			}
		}
	}
}
