package throttle

import (
	"context"
	"time"
)

// tellTime bounds how long an answer is kept from its caller while the store is
// told what it means, and tellMost how long the store is told at all: one that
// is away for longer learns of a penalty that still lasts from the next answer.
const (
	tellTime = time.Second
	tellMost = 30 * time.Second
)

// tellOf tells the store, and the observer, of a lesson. A penalty is worth
// telling for as long as it lasts.
func (j *journey) tellOf(l lesson) {
	teaches := j.teaches(l)
	for i := range l.penalties {
		p := &l.penalties[i]
		if p.length <= 0 && i != teaches {
			continue
		}
		ctx, cancel := j.toTell(p.length)
		if i == teaches {
			p.stored = j.shutRefused(ctx, p.charge, max(0, p.length)) && p.length > 0
		} else {
			p.stored = j.shut(ctx, p.charge, p.length)
		}
		cancel()
	}
	ctx, cancel := j.toTell(tellTime)
	defer cancel()
	j.settle(ctx, l.costs)
	for _, q := range l.quotas { // which know of the true costs
		j.lower(ctx, q)
	}
}

// shut closes a budget, and reports whether the store knows.
func (j *journey) shut(ctx context.Context, c *Charge, d time.Duration) bool {
	if err := j.store.Pause(ctx, *c, d); err != nil {
		j.failedTo(ctx, c, d, err)
		return false
	}
	if j.observe != nil {
		j.observe(ctx, eventOf(Penalized, c, d, nil))
	}
	return true
}

// resetDoubt is by how much a reset may be too late: upstreams give it in whole
// seconds, and an answer travels for a while.
const resetDoubt = 2 * time.Second

// lower tells the store what is left of a budget. A store counts within the windows
// of the limit, and holds for no longer than one of its own. So a budget of which
// nothing is left for longer is closed: for days, if the upstream says so, or until
// a window ends that began at another time than ours.
func (j *journey) lower(ctx context.Context, q quota) {
	c := q.charge
	if err := j.store.Reconcile(ctx, *c, q.Quota); err != nil {
		j.failedTo(ctx, c, q.Reset, err)
		return
	}
	kind := c.Limit.kind
	if q.Left > 0 || q.Reset <= resetDoubt || kind == Bucket || kind == InFlight || kind == Sliding && q.Reset <= c.Limit.per {
		return
	}
	status, err := j.store.Status(ctx, *c)
	switch {
	case err != nil:
		j.failedTo(ctx, c, q.Reset, err)
	case status.Wait+resetDoubt < q.Reset:
		j.shut(ctx, c, q.Reset)
	}
}

// settle tells the store what the request has cost; nil: what was booked.
func (j *journey) settle(ctx context.Context, costs []int) {
	if costs == nil {
		return
	}
	if err := j.store.Settle(ctx, &j.booking, j.grant, costs); err != nil {
		for i, cost := range costs {
			if c := &j.booking.Charges[i]; c.Cost != cost {
				j.failedTo(ctx, c, 0, err)
			}
		}
	}
}

// toTell is the context of what the store is told: the caller's, but for its
// end.
func (j *journey) toTell(worth time.Duration) (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.WithoutCancel(j.req.Context()), min(max(worth, tellTime), tellMost))
}

// failedTo reports that the store could not be told something about a budget.
func (j *journey) failedTo(ctx context.Context, c *Charge, d time.Duration, err error) {
	if j.observe != nil {
		j.observe(ctx, eventOf(StoreFailed, c, d, &StoreError{err}))
	}
}
