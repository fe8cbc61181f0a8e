package throttle

import (
	"context"
	"net/http"
	"slices"
	"time"

	"github.com/fleetthrottle/throttle/store"
)

// A feedback is what the policies read out of a response.
type feedback struct {
	penalties []penalty
	quotas    []quota
	costs     []int // of all charges, asBooked where the response does not say; nil: it says nothing
}

// A quota is what a response says is left of the budget of a charge.
type quota struct {
	charge *store.Charge
	Quota
}

// hasNoFeedback reports whether no policy can read anything out of a response: all of them have
// only the default penalty, and that is for other statuses.
func (r *roundTrip) hasNoFeedback(resp *http.Response) bool {
	if resp.StatusCode == http.StatusTooManyRequests || resp.StatusCode == http.StatusServiceUnavailable {
		return false
	}
	for i := range r.policyCount() {
		if p, _ := r.policy(i); p.byDefault == nil {
			return false
		}
	}
	return true
}

// endOutages tells the default penalties of all policies of a response that is no 503, so that
// their rows of 503s end.
func (r *roundTrip) endOutages() {
	for i := range r.policyCount() {
		p, _ := r.policy(i)
		p.byDefault.outage.end()
	}
}

// readFeedback lets the policies look at a response. denial is negative if a policy
// says that the response is certainly no refusal.
func (r *roundTrip) readFeedback(resp *http.Response) (f feedback, denial time.Duration) {
	req := resp.Request
	delay := r.responseDelay(resp)
	f.penalties, denial = r.readPenalties(resp, delay)
	f.quotas = r.readQuotas(resp, delay)
	f.costs = r.readCosts(resp)
	r.meterBody(resp, f.costs)
	if r.areBooked(f.costs) {
		f.costs = nil
	}
	resp.Request = req // responseDelay may have set another
	return f, denial
}

// responseDelay returns how long ago a response was sent. If the response took longer than
// slowAnswer, responseDelay sets resp.Request to a copy that tells SentAt when the request was
// handed on.
func (r *roundTrip) responseDelay(resp *http.Response) time.Duration {
	took := r.elapsed()
	if took <= slowAnswer {
		return 0
	}
	ctx := context.WithValue(r.req.Context(), handedKey{}, time.Now().Add(-took))
	resp.Request = r.req.WithContext(ctx)
	return time.Since(SentAt(resp))
}

// readPenalties returns the penalties that the policies read out of a response, which was sent
// delay ago: a penalty counts from then. denial is negative if a policy says that the response is
// certainly no refusal.
func (r *roundTrip) readPenalties(resp *http.Response, delay time.Duration) (all []penalty, denial time.Duration) {
	for i := range r.policyCount() {
		p, c := r.policy(i)
		d, err := p.penalty(resp)
		r.reportIllegible(p, c, resp)
		if err != nil {
			r.functionFailed(r.req.Context(), p, err)
			d = RetryAfter(resp) // the policy's own function cannot say
		}
		if d > 0 {
			all = append(all, penalty{
				charge: c, length: min(d, MaxPenalty) - delay, acted: r.hasActed(p, resp),
				outage: resp.StatusCode == http.StatusServiceUnavailable,
			})
		} else if !c.Shadow {
			denial = min(denial, d)
		}
	}
	return all, denial
}

// hasActed reports whether a policy says of a refusal that the upstream has done a part of what
// was asked all the same.
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

// readQuotas returns what a response, which was sent delay ago, says is left of budgets.
func (r *roundTrip) readQuotas(resp *http.Response, delay time.Duration) (all []quota) {
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
		// The upstream has counted what arrived before its own request. It may have counted
		// later arrivals, too, but nobody can tell.
		q.Left, q.Age = max(0, q.Left), max(0, r.elapsed()-max(c.Jitter, DefaultJitter))
		q.Reset = max(0, min(q.Reset, MaxPenalty)-delay)
		if q.Reset > 0 || c.Limit.Kind() == store.KindTokenBucket { // a bucket needs no Reset: its flow is known
			all = append(all, quota{c, q})
		}
	}
	return all
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

// mark has PenaltyOf return a duration for a response: see there.
func (r *roundTrip) mark(resp *http.Response, closes time.Duration) {
	ctx := context.WithValue(r.req.Context(), markKey{}, mark{resp, closes})
	resp.Request = r.req.WithContext(ctx)
}

// markRefusal marks a response that is a refusal by a policy under which the request has a
// charge. reported says that the report to the store has ended, so that stored is set in each
// penalty; otherwise the report still goes on.
func (r *roundTrip) markRefusal(resp *http.Response, penalties []penalty, reported bool) {
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
		if longest = max(longest, Unheld); !reported || p.stored {
			longest = max(longest, p.length)
		}
	}
	if longest > 0 {
		r.mark(resp, longest)
	}
}

// markDenial marks a response of which a policy says that it is certainly no refusal: then denial
// is negative. It does not mark the response if another policy that is no shadow read a penalty
// out of it.
func (r *roundTrip) markDenial(resp *http.Response, penalties []penalty, denial time.Duration) {
	counts := func(p penalty) bool { return !p.charge.Shadow }
	if denial < 0 && !slices.ContainsFunc(penalties, counts) {
		r.mark(resp, denial)
	}
}
