package throttle

import (
	"context"
	"slices"

	"github.com/fleetthrottle/throttle/store"
)

// A quotedAcquisition acquires a start under policies that may be replaced meanwhile.
type quotedAcquisition struct {
	acquisition
	policies *policySet
	quote    quote // its charges are those of the booking

	unredeem func() // notes that the place of the caller is good again; nil: it had none

	chargeBuf [2]store.Charge // memory of the quote, so that few charges cost no allocation
	policyBuf [2]*compiledPolicy
}

// A quoteRoom is memory for the quote of a caller under a provider's table, which has more rows than
// the buffers of a quotedAcquisition hold. It lies beside the acquisition, in one allocation.
type quoteRoom struct {
	charges  [fewPolicies]store.Charge
	policies [fewPolicies]*compiledPolicy
	zeroCost [2]zeroCost
}

// use gives the quote of a caller the memory.
func (m *quoteRoom) use(a *quotedAcquisition) {
	a.quote = quote{charges: m.charges[:0], policies: m.policies[:0], zeroCost: m.zeroCost[:0]}
}

// newQuote notes the policies, and returns the caller's quote to be filled in under them.
func (a *quotedAcquisition) newQuote(s *policySet) *quote {
	a.policies = s
	if a.quote.charges == nil {
		a.quote.charges, a.quote.policies = a.chargeBuf[:0], a.policyBuf[:0]
	}
	return &a.quote
}

// useQuote makes the charges of the quote those of the booking, reports the policies that could
// not be priced, and checks the costs. failed is the error of the quote, which is returned.
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

// functionFailed tells the observer that a function of a policy failed, although the request, or
// its response, goes on.
func (a *acquisition) functionFailed(ctx context.Context, p *compiledPolicy, err error) {
	if a.observe != nil {
		a.observe(ctx, Event{Kind: EventFunctionFailed, Policy: p.Name, Limit: p.Limit, Err: err})
	}
}

// hasNoPolicy reports whether no policy holds the caller. That may change while it waits,
// with the policies.
func (a *quotedAcquisition) hasNoPolicy() bool { return len(a.quote.policies) == 0 }

// policyCount returns how many policies the caller has, including those under which it costs
// nothing.
func (a *quotedAcquisition) policyCount() int { return len(a.quote.policies) + len(a.quote.zeroCost) }

// policy returns one of the caller's policies, with its charge: i is below policyCount, and the
// policies under which the caller costs nothing come last.
func (a *quotedAcquisition) policy(i int) (*compiledPolicy, *store.Charge) {
	if n := len(a.quote.policies); i >= n {
		z := &a.quote.zeroCost[i-n]
		return z.policy, &z.charge
	}
	return a.quote.policies[i], &a.booking.Charges[i]
}

// acquireStart holds the caller until it may go on: until its start, or lead before its start.
// reprice makes and uses a new quote; it is called when the policies were replaced.
func (a *quotedAcquisition) acquireStart(ctx context.Context, reprice func() error) error {
	return a.acquireAs(ctx, waitOptions{}, reprice)
}

// acquireAs is acquireStart for a caller that waits as w says.
func (a *quotedAcquisition) acquireAs(ctx context.Context, w waitOptions, reprice func() error) error {
	for {
		w.early, w.replaced = a.lead, a.policies.replaced
		err := a.acquire(ctx, w)
		if err != errReplaced {
			return err
		}
		if err = a.rematch(ctx, reprice); err != nil || a.hasNoPolicy() {
			return err
		}
	}
}

// rematch has the caller matched and priced again, because the policies were replaced. A caller
// whose charges are equivalent keeps its start or place. Another one books in place of what it
// holds, if the store can replace that in one step; otherwise it gives back what it holds.
func (a *quotedAcquisition) rematch(ctx context.Context, reprice func() error) error {
	a.stopWatch()
	if a.uncounted {
		a.forget()
	}
	old := a.booking
	old.Charges = slices.Clone(old.Charges)
	err := reprice()
	if err == nil && slices.EqualFunc(old.Charges, a.booking.Charges, equivalent) {
		return nil
	}
	moves := a.state == inLine || slices.EqualFunc(old.Charges, a.booking.Charges, interchangeable)
	if a.state != idle && moves && err == nil && len(a.booking.Charges) > 0 {
		return a.book(ctx) // in one step, so that no other caller passes
	}
	if a.state != idle {
		a.store.Cancel(&old, a.grant)
		a.state = idle
	}
	a.grant = store.Grant{Held: store.NotHeld, Turn: a.grant.Turn}
	return err
}

// interchangeable reports whether a booking of b can give back a start that was booked for a.
func interchangeable(a, b store.Charge) bool {
	return a.Budget == b.Budget && a.Cost == b.Cost && a.Shadow == b.Shadow && a.Node == b.Node &&
		a.Limit.Kind() == b.Limit.Kind() && a.Limit.Kind() != store.KindLeakyBucket
}

// equivalent reports whether what was booked for a is as good as what would be booked for b.
func equivalent(a, b store.Charge) bool {
	return a.Budget == b.Budget && a.Cost == b.Cost && a.Jitter == b.Jitter && a.Shadow == b.Shadow &&
		a.Node == b.Node && a.Adaptive == b.Adaptive && a.Reserve == b.Reserve && a.Limit.String() == b.Limit.String()
}
