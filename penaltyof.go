package throttle

import (
	"context"
	"net/http"
	"slices"
	"time"
)

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
