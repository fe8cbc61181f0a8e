package throttle

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"time"

	"github.com/fleetthrottle/throttle/internal/peek"
)

// A feedback is what the policies read out of a response.
type feedback struct {
	penalties []penalty
	quotas    []quota
	costs     []int // of all charges; nil: they cost what was booked
}

// A quota is what is left of one budget.
type quota struct {
	charge *Charge
	Quota
}

// saysNothing reports whether a response is no refusal, and no policy has a function
// that looks at others. It ends the rows of outages.
func (r *roundTrip) saysNothing(resp *http.Response) bool {
	if resp.StatusCode == http.StatusTooManyRequests || resp.StatusCode == http.StatusServiceUnavailable {
		return false
	}
	for i := range r.policyCount() {
		if p, _ := r.policy(i); p.byDefault == nil {
			return false
		}
	}
	for i := range r.policyCount() {
		p, _ := r.policy(i)
		p.byDefault.outage.end()
	}
	return true
}

// readFeedback lets the policies look at a response. No is negative if one of them
// says that it is certainly no refusal.
func (r *roundTrip) readFeedback(resp *http.Response) (l feedback, no time.Duration) {
	req := resp.Request
	late := r.responseDelay(resp)
	l.penalties, no = r.readPenalties(resp, late)
	l.quotas = r.readQuotas(resp, late)
	l.costs = r.readCosts(resp)
	resp.Request = req
	return l, no
}

// responseDelay returns how long ago a response was sent. A response that took long
// gets a Request that tells the functions of policies when the request was handed
// on.
func (r *roundTrip) responseDelay(resp *http.Response) time.Duration {
	took := r.elapsed()
	if took <= slow {
		return 0
	}
	ctx := context.WithValue(r.req.Context(), handedKey{}, time.Now().Add(-took))
	resp.Request = r.req.WithContext(ctx)
	return time.Since(SentAt(resp))
}

// readPenalties returns the penalties, and a negative number if a policy says that
// the response is certainly no refusal. They count from when the response was sent,
// that long ago.
func (r *roundTrip) readPenalties(resp *http.Response, late time.Duration) (all []penalty, no time.Duration) {
	for i := range r.policyCount() {
		p, c := r.policy(i)
		d, err := p.penalty(resp)
		r.reportIllegible(p, c, resp)
		if err != nil {
			r.functionFailed(r.req.Context(), p, err)
			d = RetryAfter(resp) // rather than none
		}
		if d > 0 {
			all = append(all, penalty{
				charge: c, length: min(d, MaxPenalty) - late, acted: r.hasActed(p, resp),
				outage: resp.StatusCode == http.StatusServiceUnavailable,
			})
		} else if !c.Shadow {
			no = min(no, d)
		}
	}
	return all, no
}

// hasActed reports whether a policy says of a refusal that a part was done all the
// same.
func (r *roundTrip) hasActed(p *compiledPolicy, resp *http.Response) bool {
	if p.Acted == nil {
		return false
	}
	acted, err := p.acted(resp)
	if err != nil {
		r.functionFailed(r.req.Context(), p, err)
	}
	return acted
}

// readQuotas returns what the response says is left of budgets, that long ago.
func (r *roundTrip) readQuotas(resp *http.Response, late time.Duration) (all []quota) {
	for i := range r.policyCount() {
		p, c := r.policy(i)
		if p.Quota == nil {
			continue
		}
		q, ok, err := p.quota(resp)
		r.reportIllegible(p, c, resp)
		if err != nil {
			r.functionFailed(r.req.Context(), p, err)
		}
		if !ok {
			continue
		}
		// The answer knows of what arrived before its own request. It may know of
		// later arrivals, too: that cannot be told.
		q.Left, q.Age = max(0, q.Left), max(0, r.elapsed()-max(c.Jitter, DefaultJitter))
		q.Reset = max(0, min(q.Reset, MaxPenalty)-late)
		if q.Reset > 0 || c.Limit.kind == KindTokenBucket { // which knows by itself when there will be more
			all = append(all, quota{c, q})
		}
	}
	return all
}

// readCosts returns what the request has cost under each of its policies, or nil if
// that is what was booked.
func (r *roundTrip) readCosts(resp *http.Response) (all []int) {
	for i, p := range r.quote.policies {
		c := &r.booking.Charges[i]
		if p.Settle == nil || !c.Limit.counts() {
			continue
		}
		cost, err := p.settle(resp)
		r.reportIllegible(p, c, resp)
		if err != nil {
			r.functionFailed(r.req.Context(), p, err)
			continue
		}
		if cost = min(cost, mostSettled(c)); cost < 0 || cost == c.Cost {
			continue
		}
		if all == nil {
			all = costsOf(r.booking.Charges)
		}
		all[i] = cost
	}
	return all
}

// codings are those that upstreams are known to use and that cannot be decoded here.
// Others are not named in events: their name is the upstream's own text.
var codings = map[string]bool{"br": true, "zstd": true, "compress": true}

// reportIllegible tells the observer, once for each policy, that a function of the
// policy wanted to look at a response in a coding that cannot be decoded.
func (r *roundTrip) reportIllegible(p *compiledPolicy, c *Charge, resp *http.Response) {
	coding := peek.Refused(resp)
	if coding == "" || r.observe == nil || p.illegibleReported.Swap(true) {
		return
	}
	if !codings[coding] {
		coding = "an unknown coding"
	}
	err := fmt.Errorf("throttle: policy %q cannot read answers in %s: leave Accept-Encoding unset, or set it to gzip", p.Name, coding)
	r.observe(r.req.Context(), eventOf(Illegible, c, 0, err))
}

// Unheld is what [PenaltyOf] returns for a refusal that closes no budget: the store
// could not be told, or the penalty was over when the answer came. A caller that
// repeats the request must wait by itself.
const Unheld time.Duration = 1

// PenaltyOf returns how long an answer closes the budgets that hold its request: what
// is left of the longest [Policy.Penalty] that was read out of it, or [Unheld]; 0 if
// there was none. It is for retriers: such an answer is a refusal, whatever its
// status, and the retrier need not wait, because the budget holds the next attempt.
// Policies in Shadow do not count, nor do those under which the request is free: they
// do not hold it.
//
// It is negative if the request must not be repeated. Either the answer is certainly
// no refusal: a policy says so, and no policy says that it is one. Or the upstream
// has acted on a part of the request, as [Policy.Acted] says.
//
// If the store is slow the caller gets the answer before the store has heard of it.
// Then the penalty counts as stored: the store is still being told.
//
// The answer must be the one that the [Transport] returned; its body may have been
// wrapped since. Its Request is then a copy of the caller's own: only its context has
// one more value.
func PenaltyOf(resp *http.Response) time.Duration {
	if resp == nil || resp.Request == nil {
		return 0
	}
	if m, ok := resp.Request.Context().Value(markKey{}).(mark); ok && m.resp == resp {
		return m.closes
	}
	return 0
}

// A mark is how a response carries its penalty to [PenaltyOf]. Later layers wrap
// bodies, http.Client.Timeout for one, and headers are the upstream's; the request
// stays. The mark names its response, because a context is inherited by requests
// whose own responses are no refusals.
type mark struct {
	resp   *http.Response
	closes time.Duration
}

// markKey is the context key of a mark.
type markKey struct{}

// mark notes on a response for how long it closes budgets.
func (r *roundTrip) mark(resp *http.Response, closes time.Duration) {
	ctx := context.WithValue(r.req.Context(), markKey{}, mark{resp, closes})
	resp.Request = r.req.WithContext(ctx)
}

// markRefusal marks a response that a policy takes for a refusal, if the request has a
// charge under it. told says that the store has heard of all penalties or could not be
// told; otherwise the report still goes on.
func (r *roundTrip) markRefusal(resp *http.Response, penalties []penalty, told bool) {
	var longest time.Duration
	for i := range penalties {
		p := &penalties[i]
		if p.charge.Shadow || !r.isBooked(p.charge) {
			continue
		}
		if p.acted {
			r.mark(resp, -1)
			return
		}
		if longest = max(longest, Unheld); !told || p.stored {
			longest = max(longest, p.length)
		}
	}
	if longest > 0 {
		r.mark(resp, longest)
	}
}

// markDenial marks a response that is certainly no refusal, unless a policy takes it
// for one all the same.
func (r *roundTrip) markDenial(resp *http.Response, penalties []penalty, no time.Duration) {
	closes := func(p penalty) bool { return !p.charge.Shadow }
	if no < 0 && !slices.ContainsFunc(penalties, closes) {
		r.mark(resp, no)
	}
}
