package throttle

import (
	"context"
	"time"

	"github.com/fleetthrottle/throttle/internal/acquire"
	"github.com/fleetthrottle/throttle/store"
)

// A quotedAcquisition acquires a start under policies that may be replaced meanwhile.
type quotedAcquisition struct {
	acquisition
	policies *policySet
	quote    quote // its charges are the charges of the booking

	dialTook time.Duration // how long the base took to get a connection, in the request's last attempt that got one
	settled  settlement    // of the costs

	// The memory of the quote, so that a provider's table costs no allocation.
	chargeBuf   [fewPolicies]store.Charge
	policyBuf   [fewPolicies]*compiledPolicy
	zeroCostBuf [2]zeroCost
}

// newQuotedAcquisition returns an acquisition of the caller's own. It may have been used
// before: see recycle.
func (e *engine) newQuotedAcquisition() *quotedAcquisition {
	a, _ := e.idle.Get().(*quotedAcquisition)
	if a == nil {
		a = new(quotedAcquisition)
		a.init(e)
	}
	return a
}

// recycle frees the acquisition, whose way is over, for the next caller.
//
// Invariant: only the caller of recycle has a pointer to the acquisition or to a charge of
// its quote. Stores keep neither when their methods have returned and the watch has ended,
// events are made of copies, and a permit copies everything that it holds.
func (a *quotedAcquisition) recycle() {
	a.StopWatch()
	if a.Reuse() {
		a.policies, a.quote.unpriced, a.settled.booked = nil, nil, nil
		a.dialTook = 0
		a.engine.idle.Put(a)
	}
}

// newQuote notes the policies, and returns the caller's quote to be filled in under them.
func (a *quotedAcquisition) newQuote(s *policySet) *quote {
	a.policies = s
	if a.quote.charges == nil {
		a.quote = quote{charges: a.chargeBuf[:0], policies: a.policyBuf[:0], zeroCost: a.zeroCostBuf[:0]}
	}
	return &a.quote
}

// useQuote makes the charges of the quote the charges of the booking, reports the policies
// that could not be priced, and checks the costs. failed is the error of the quote, which
// is returned.
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
		switch fits := c.Limit.Capacity() - c.KeepFree; {
		case c.Cost <= fits:
		case c.Shadow:
			c.Cost = fits // a shadow policy refuses nobody, so it counts as much as fits
		default:
			return &LimitError{Policy: c.Budget.Policy, Limit: c.Limit, RetryAfter: Never, cost: c.Cost}
		}
	}
	return nil
}
