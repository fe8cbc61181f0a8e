package throttle

import (
	"context"
	"slices"
)

// A quotedAcquisition acquires a start under policies that may be replaced meanwhile.
type quotedAcquisition struct {
	acquisition
	policies *policySet
	quote    quote // its charges are those of the booking

	chargeBuf [2]Charge
	policyBuf [2]*compiledPolicy
}

// newQuote makes the quote ready for one under these policies.
func (a *quotedAcquisition) newQuote(s *policySet) *quote {
	a.policies = s
	if a.quote.charges == nil {
		a.quote.charges, a.quote.policies = a.chargeBuf[:0], a.policyBuf[:0]
	}
	return &a.quote
}

// useQuote books what the quote says from now on; failed says why there is none.
func (a *quotedAcquisition) useQuote(ctx context.Context, failed error) error {
	for i := range a.quote.unpriced {
		f := &a.quote.unpriced[i]
		a.functionFailed(ctx, f.policy, f.err)
	}
	if a.booking.Charges = a.quote.charges; failed != nil {
		return failed
	}
	a.inspectCharges()
	return checkCosts(a.booking.Charges)
}

// functionFailed reports that a function of a policy failed where the request, or
// its response, goes on all the same.
func (a *acquisition) functionFailed(ctx context.Context, p *compiledPolicy, err error) {
	if a.observe != nil {
		a.observe(ctx, Event{Kind: FunctionFailed, Policy: p.Name, Limit: p.Limit, Err: err})
	}
}

// free reports whether no policy holds the caller. That may change while it waits,
// with the policies.
func (a *quotedAcquisition) free() bool { return len(a.quote.policies) == 0 }

// policyCount is how many policies the caller has, those too under which it costs
// nothing.
func (a *quotedAcquisition) policyCount() int { return len(a.quote.policies) + len(a.quote.zeroCost) }

// policy returns one of them, with its charge.
func (a *quotedAcquisition) policy(i int) (*compiledPolicy, *Charge) {
	if n := len(a.quote.policies); i >= n {
		free := &a.quote.zeroCost[i-n]
		return free.policy, &free.charge
	}
	return a.quote.policies[i], &a.booking.Charges[i]
}

// acquireStart holds the caller until it may go on: until its start, or lead before it.
// Reprice makes and uses a new quote when the policies were replaced.
func (a *quotedAcquisition) acquireStart(ctx context.Context, reprice func() error) error {
	for {
		err := a.acquire(ctx, waitOptions{early: a.lead, replaced: a.policies.replaced})
		if err != errReplaced {
			return err
		}
		if err = a.rematch(ctx, reprice); err != nil || a.free() {
			return err
		}
	}
}

// rematch matches and prices the caller again, because the policies were replaced.
// If nothing changes for it, it keeps its place; otherwise it gives the place back.
func (a *quotedAcquisition) rematch(ctx context.Context, reprice func() error) error {
	a.stopWatch()
	old := a.booking
	old.Charges = slices.Clone(old.Charges)
	err := reprice()
	if err == nil && slices.EqualFunc(old.Charges, a.booking.Charges, equivalent) {
		return nil
	}
	moves := a.state == inLine || slices.EqualFunc(old.Charges, a.booking.Charges, interchangeable)
	if a.state != idle && moves && err == nil && len(a.booking.Charges) > 0 {
		return a.book(ctx) // so nobody passes while it changes places
	}
	if a.state != idle {
		a.store.Cancel(&old, a.grant)
		a.state = idle
	}
	a.grant = Grant{Held: NotHeld, Turn: a.grant.Turn}
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
