package throttle

import (
	"context"
	"net/http"
	"slices"
	"time"
)

// PenaltyOf returns for how long an answer closes budgets that hold its request:
// the longest [Policy.Penalty] that was read out of it, and stored before the
// caller got it; 0 if none was. It is for what retries: such an answer is a
// refusal, whatever its status, and the wait belongs to the budget, where the next
// attempt is held anyway. Policies in Shadow, and those under which the request is
// free, do not count: they do not hold it.
//
// It is negative, as the policy has it, if the answer is certainly no refusal: a
// policy says so, and none that it is one.
//
// The answer must be the one that the [Transport] returned; its body may have
// been wrapped since. Its Request is then a copy of the caller's own, which
// differs in nothing but a value of its context.
func PenaltyOf(resp *http.Response) time.Duration {
	if resp == nil || resp.Request == nil {
		return 0
	}
	if m, ok := resp.Request.Context().Value(markKey{}).(mark); ok && m.resp == resp {
		return m.closes
	}
	return 0
}

// A mark is how an answer tells of its penalty. Bodies get wrapped by whoever
// comes next, http.Client.Timeout for one, and headers are the upstream's; the
// request stays. It names its answer, because a context is inherited by
// requests whose own answers are no refusals.
type mark struct {
	resp   *http.Response
	closes time.Duration
}

// markKey is the context key of a mark.
type markKey struct{}

// mark notes on an answer for how long it closes budgets.
func (j *journey) mark(resp *http.Response, closes time.Duration) {
	ctx := context.WithValue(j.req.Context(), markKey{}, mark{resp, closes})
	resp.Request = j.req.WithContext(ctx)
}

// markRefusal marks an answer that has closed budgets by which its request is
// held.
func (j *journey) markRefusal(resp *http.Response, penalties []penalty) {
	var longest time.Duration
	for _, p := range penalties {
		if p.stored && !p.charge.Shadow && j.pays(p.charge) {
			longest = max(longest, p.length)
		}
	}
	if longest > 0 {
		j.mark(resp, longest)
	}
}

// pays reports whether a charge is one of those that were booked.
func (j *journey) pays(c *Charge) bool {
	for i := range j.booking.Charges {
		if c == &j.booking.Charges[i] {
			return true
		}
	}
	return false
}

// markDenial marks an answer that is certainly no refusal, unless a policy takes
// it for one all the same.
func (j *journey) markDenial(resp *http.Response, penalties []penalty, no time.Duration) {
	closes := func(p penalty) bool { return !p.charge.Shadow }
	if no < 0 && !slices.ContainsFunc(penalties, closes) {
		j.mark(resp, no)
	}
}
