package throttle

import "slices"

// acquireStart holds the request until it may be handed to the base: until its
// start, or a little before if a connection will probably be dialled first.
func (r *roundTrip) acquireStart() error {
	ctx := r.req.Context()
	r.lead = r.dialLead()
	for {
		if !r.holdsPlace() {
			if err := r.book(ctx); err != nil || r.granted() {
				return err
			}
		}
		err := r.await(ctx, waitOptions{early: r.lead, jitterShare: handoffShare, replaced: r.policies.replaced})
		if err != errReplaced {
			return err
		}
		if err = r.rematch(); err != nil || len(r.quote.policies) == 0 {
			return err
		}
	}
}

// rematch matches and prices the request again, because the policies were replaced.
// If nothing changes for the request it keeps its place; otherwise it gives the
// place back.
func (r *roundTrip) rematch() error {
	r.stopWatch()
	old := r.booking
	old.Charges = slices.Clone(old.Charges)
	var few [fewPolicies]int32
	next := r.t.policies.Load()
	err := r.priceRequest(next, next.index.Match(few[:0], r.req))
	if err == nil && slices.EqualFunc(old.Charges, r.booking.Charges, equivalent) {
		return nil
	}
	moves := r.inLine() || slices.EqualFunc(old.Charges, r.booking.Charges, interchangeable)
	if r.holdsPlace() && moves && err == nil && len(r.booking.Charges) > 0 {
		return r.book(r.req.Context()) // so nobody passes while it changes places
	}
	if r.holdsPlace() {
		r.store.Cancel(&old, r.grant)
	}
	r.grant = Grant{Held: -1, Turn: r.grant.Turn}
	return err
}

// interchangeable reports whether a start booked for a can be given back by a
// booking of b.
func interchangeable(a, b Charge) bool {
	return a.Budget == b.Budget && a.Cost == b.Cost && a.Shadow == b.Shadow && a.Node == b.Node &&
		a.Limit.kind == b.Limit.kind && a.Limit.kind != KindLeakyBucket
}

// equivalent reports whether a place booked for a is as good as one for b.
func equivalent(a, b Charge) bool {
	return a.Budget == b.Budget && a.Cost == b.Cost && a.Jitter == b.Jitter && a.Shadow == b.Shadow &&
		a.Node == b.Node && a.Adaptive == b.Adaptive && a.Reserve == b.Reserve && a.Limit.String() == b.Limit.String()
}
