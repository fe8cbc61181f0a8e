package throttle

import (
	"context"

	"github.com/fleetthrottle/throttle/internal/acquire"
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

	a.SetCharges(a.quote.charges)
	if failed != nil {
		return failed
	}
	return checkCosts(a.Booking.Charges)
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
	return a.quote.policies[i], &a.Booking.Charges[i]
}

// acquireStart holds the caller until it may go on: until its start, or lead before its start.
// reprice makes and uses a new quote; it is called when the policies were replaced.
func (a *quotedAcquisition) acquireStart(ctx context.Context, reprice func() error) error {
	return a.acquireAs(ctx, acquire.Wait{}, reprice)
}

// acquireAs is acquireStart for a caller that waits as w says.
func (a *quotedAcquisition) acquireAs(ctx context.Context, w acquire.Wait, reprice func() error) error {
	for {
		w.Early, w.Replaced = a.Lead, a.policies.replaced
		err := a.Acquire(ctx, w)
		if err != acquire.ErrReplaced {
			return err
		}

		if err = a.Reprice(ctx, reprice); err != nil || a.hasNoPolicy() {
			return err
		}
	}
}

// checkCosts returns the error of a charge whose cost is above its limit: no wait can make it
// fit. It lowers such a cost of a shadow charge instead.
func checkCosts(charges []store.Charge) error {
	for i := range charges {
		c := &charges[i]
		switch most := c.Limit.Capacity() - c.Reserve; {
		case c.Cost <= most:
		case c.Shadow:
			c.Cost = most // a shadow refuses nobody, so it counts as much as fits
		default:
			return &LimitError{Policy: c.Budget.Policy, Limit: c.Limit, RetryAfter: Never, cost: c.Cost}
		}
	}
	return nil
}
