package throttle

import (
	"context"
	"fmt"
	"net/http"
	"slices"

	"github.com/fleetthrottle/throttle/internal/peek"
	"github.com/fleetthrottle/throttle/store"
)

// asBooked is the cost of a charge of which a response does not say what it has cost.
const asBooked = -1

// readCosts returns what a response says that its request has cost, one cost for each booked
// charge; nil if it says nothing.
func (r *roundTrip) readCosts(resp *http.Response) (costs []int) {
	for i, p := range r.quote.policies {
		c := &r.Booking.Charges[i]
		if p.Settle == nil || !r.settles(c) {
			continue
		}
		cost, err := p.settledCost(resp)
		r.reportIllegible(p, c, resp)
		if err != nil {
			r.functionFailed(r.req.Context(), p, err)
			continue
		}
		costs = r.withCost(costs, i, cost)
	}
	return costs
}

// areBooked reports whether costs are those that were booked.
func (r *roundTrip) areBooked(costs []int) bool {
	for i, cost := range costs {
		if cost >= 0 && cost != r.Booking.Charges[i].Cost {
			return false
		}
	}
	return true
}

// settles reports whether the cost of a charge can be settled: the charge is booked, and its limit
// counts starts.
func (r *roundTrip) settles(c *store.Charge) bool { return c.Limit.Counts() && !r.Uncounted() }

// withCost returns costs, which may be nil, with that of the charge i. A cost below 0 changes
// nothing.
func (r *roundTrip) withCost(costs []int, i, cost int) []int {
	if cost < 0 {
		return costs
	}
	if costs == nil {
		costs = slices.Repeat([]int{asBooked}, len(r.Booking.Charges))
	}
	costs[i] = min(cost, mostSettled(&r.Booking.Charges[i]))
	return costs
}

// codings are the content codings that upstreams are known to use and that PeekBody cannot decode.
// Events name no other coding: its name is a text that the upstream has chosen.
var codings = map[string]bool{"br": true, "zstd": true, "compress": true}

// reportIllegible tells the observer, once for each policy, that a function of the
// policy wanted to look at a response in a coding that cannot be decoded.
func (r *roundTrip) reportIllegible(p *compiledPolicy, c *store.Charge, resp *http.Response) {
	r.reportCoding(p, c, peek.Refused(resp))
}

// reportCoding is reportIllegible for a coding; "" is none.
func (r *roundTrip) reportCoding(p *compiledPolicy, c *store.Charge, coding string) {
	if coding == "" || r.observe == nil || p.illegibleReported.Swap(true) {
		return
	}
	if !codings[coding] {
		coding = "an unknown coding"
	}
	err := fmt.Errorf("throttle: policy %q cannot read answers in %s: leave Accept-Encoding unset, or set it to gzip", p.Name, coding)
	r.observe(r.req.Context(), eventOf(EventIllegible, c, 0, err))
}

// settleCosts tells the store what the request has cost: a cost for each charge, asBooked for those
// that keep theirs; nil: all do.
func (r *roundTrip) settleCosts(ctx context.Context, costs []int) {
	if costs == nil {
		return
	}
	for i, cost := range costs {
		c := &r.Booking.Charges[i]
		r.callers.NoteCost(c.Budget.Policy, c.Cost, cost)
	}

	failed, err := r.settled.tell(ctx, r.store, r.Booking, r.Grant, costs)
	for i := range failed {
		r.reportFailure(ctx, &failed[i], 0, err)
	}
}
