package throttle

import (
	"context"
	"net/http"
	"slices"
	"time"

	"github.com/fleetthrottle/throttle/internal/acquire"
	"github.com/fleetthrottle/throttle/store"
)

// applyResponse lets every policy of the request look at its response, before the
// caller gets it. It closes the budgets for which the response means a penalty,
// lowers those that have less left than was believed, and settles costs that were
// only estimated.
func (r *roundTrip) applyResponse(resp *http.Response) {
	if r.hasNoFeedback(resp) {
		r.endOutages()
		return
	}
	f, denial := r.readFeedback(resp)
	r.markDenial(resp, f.penalties, denial)
	if f.penalties == nil && f.quotas == nil && f.costs == nil {
		return
	}
	if r.holdsNobody(f) {
		if !r.Uncounted() { // otherwise the store is away, and each response would leave a goroutine behind
			go r.reportFeedback(f)
		}
		return
	}
	if !r.isToldFirst(f) && r.startBehind() {
		go func() {
			defer r.behind.Add(-1)
			r.reportFeedback(f)
		}()
		return
	}

	reported := make(chan struct{})
	go func() {
		defer close(reported)
		r.reportFeedback(f)
	}()
	timer := time.NewTimer(r.maxResponseDelay())
	defer timer.Stop()
	select {
	case <-reported:
		r.markRefusal(resp, f.penalties, true)
		return
	case <-timer.C:
	case <-r.req.Context().Done():
	} // the report goes on: the fleet must hear of the response
	r.markRefusal(resp, f.penalties, false)
}

// holdsNobody reports whether a feedback is about shadow policies alone: then no caller waits until the
// store has heard of it.
func (r *roundTrip) holdsNobody(f feedback) bool {
	held := func(c *store.Charge) bool { return !c.Shadow }
	return r.Shadowed() && !slices.ContainsFunc(f.penalties, func(p penalty) bool { return held(p.charge) }) &&
		!slices.ContainsFunc(f.quotas, func(q quota) bool { return held(q.charge) })
}

// mostBehind bounds how many reports go on at a time behind the back of callers that have their
// response. A store that is so slow holds the callers of further responses, and so their next requests.
const mostBehind = 64

// isToldFirst reports whether the store must hear of a feedback before the caller has its response: a
// budget is closed by it, or has too little left for another request like this one, or the store is in
// memory and takes no time.
func (r *roundTrip) isToldFirst(f feedback) bool {
	short := func(q quota) bool { return !q.charge.Shadow && q.Left < q.charge.Cost }

	// A start from a line in memory has an age, too, but no answer of a server is so young.
	const leastTrip = 20 * time.Microsecond
	inMemory := r.callers.RTT() == 0 && r.Grant.Age < leastTrip
	return f.penalties != nil || inMemory || slices.ContainsFunc(f.quotas, short)
}

// startBehind counts a report that goes on behind the back of the caller, and returns false if there
// are mostBehind already.
func (r *roundTrip) startBehind() bool {
	if r.behind.Add(1) <= mostBehind {
		return true
	}
	r.behind.Add(-1)
	return false
}

// maxResponseDelay returns how long a response may be kept from its caller while the
// store is told what the response means: reportWait, or what is left of MaxWait if that is less,
// but at least [acquire.StoreGrace].
func (r *roundTrip) maxResponseDelay() time.Duration {
	if r.MaxWait == 0 {
		return reportWait
	}
	return min(reportWait, max(acquire.StoreGrace, r.MaxWaitLeft()))
}

// reportFeedback tells the store, and the observer, what a response means. It tries to
// report a penalty for as long as the penalty lasts.
func (r *roundTrip) reportFeedback(f feedback) {
	arrived, took := now(), r.elapsed()
	ctx, cancel := r.reportContext(reportWait)
	teaches := r.teachingPenalty(ctx, f.penalties, func(c *store.Charge) bool {
		return slices.ContainsFunc(f.quotas, func(q quota) bool { return q.charge == c })
	})
	cancel()
	for i := range f.penalties {
		p := f.penalties[i]
		p.length -= (now() - arrived).Truncate(time.Millisecond) // the report of the penalty before may have taken long
		if p.length > 0 || i == teaches {
			ctx, cancel := r.reportContext(p.length)
			f.penalties[i].stored = r.reportPenalty(ctx, &p, r.elapsed(), took, i == teaches) == nil && p.length > 0
			cancel()
		}
	}

	ctx, cancel = r.reportContext(reportWait)
	r.settleCosts(ctx, f.costs)
	cancel()

	// After the costs: what the upstream says is left takes the true costs into account.
	for _, q := range f.quotas {
		late := now() - arrived
		over := q.Reset <= late && q.charge.Limit.Kind() != store.KindTokenBucket
		if over {
			continue
		}

		q.Age, q.Reset = q.Age+late, max(0, q.Reset-late)
		ctx, cancel := r.reportContext(reportWait) // of its own: a slow report before it must not end it
		r.lowerQuota(ctx, q)
		cancel()
	}
}

// resetDoubt bounds by how much a stated reset may be too late: upstreams state it in whole
// seconds, and a response is on its way for a while. The doubt is never longer than the limit's
// window: a reset that is a window later than the end of a window belongs to another window.
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
	kind, doubt := c.Limit.Kind(), resetDoubt
	if c.Limit.Per() > 0 {
		doubt = min(doubt, c.Limit.Per())
	}
	if q.Left > 0 || q.Reset <= doubt || kind == store.KindTokenBucket || kind == store.KindConcurrency || kind == store.KindSlidingWindow && q.Reset <= c.Limit.Per() {
		return
	}
	status, err := r.store.Status(ctx, *c)
	switch {
	case err != nil:
		r.reportFailure(ctx, c, q.Reset, err)
	case status.Wait+doubt < q.Reset:
		_ = r.pauseBudget(ctx, c, q.Reset) // which tells the observer of its error
	}
}
