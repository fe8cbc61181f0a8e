package throttle

import (
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/fleetthrottle/throttle/internal/dialect"
	"github.com/fleetthrottle/throttle/internal/peek"
	"github.com/fleetthrottle/throttle/store"
)

// An Answer is the meaning of an upstream's answer for one budget: whether the request was
// refused, for how long the budget closes, the quota that is left, and the cost of the
// request. Each part may be set without the rest. The zero Answer says nothing. A
// [Policy.Answer] returns an Answer to a [Transport], and the holder of a [Permit] passes
// one to [Permit.Tell].
//
//	throttle.Refused(time.Minute)                            // refused, and the budget closes for a minute
//	throttle.Answer{Verdict: throttle.VerdictRefused}        // refused because of a different budget: this budget stays open
//	throttle.Answer{Verdict: throttle.VerdictNotRefused}     // a 429 about money: waiting does not help
//	throttle.Answer{}.WithCost(12)                           // the request cost 12
//	throttle.Answer{}.WithLeft(throttle.Quota{Left: 3, Reset: time.Minute})
type Answer struct {
	// Verdict says whether the request was refused.
	Verdict Verdict

	// Close is for how long the budget must stay closed, for the whole fleet, whatever the
	// verdict: at most [MaxPenalty]. A Close of 0 or less closes nothing.
	Close time.Duration

	left    Quota
	cost    int
	hasLeft bool
	hasCost bool
}

// A Verdict says whether the upstream refused a request.
type Verdict uint8

// The verdicts.
const (
	// VerdictNone says nothing of the request.
	VerdictNone Verdict = iota

	// VerdictRefused says that the upstream has refused the request, and has not acted on it, so
	// that the request may be repeated, whatever the status. With a Close of 0 the refusal is
	// about a different budget.
	VerdictRefused

	// VerdictNotRefused says that the answer is certainly no refusal, although it looks like a
	// refusal, so that the request must not be repeated because of it: a 429 about money, say.
	VerdictNotRefused

	// VerdictPartly says that the upstream has acted on a part of the request, or on all of it,
	// although it reports an exceeded limit, as with a GraphQL mutation of which one field was
	// refused. The request must not be repeated.
	VerdictPartly
)

// String returns the verdict in words.
func (v Verdict) String() string {
	switch v {
	case VerdictNone:
		return "none"
	case VerdictRefused:
		return "refused"
	case VerdictNotRefused:
		return "not refused"
	case VerdictPartly:
		return "partly done"
	}
	return fmt.Sprintf("Verdict(%d)", uint8(v))
}

// Refused returns the Answer of a refusal that closes the budget for d.
func Refused(d time.Duration) Answer { return Answer{Verdict: VerdictRefused, Close: d} }

// WithLeft returns a copy of a that states the quota that is left of the budget.
func (a Answer) WithLeft(q Quota) Answer {
	a.left, a.hasLeft = q, true
	return a
}

// WithCost returns a copy of a that states the cost of the request. A cost of 0 or [Free]
// gives all of the booked cost back. Every other negative cost is a mistake.
func (a Answer) WithCost(cost int) Answer {
	if cost == Free {
		cost = 0
	}
	a.cost, a.hasCost = cost, true
	return a
}

// Left returns the quota that is left of the budget. ok is false if the Answer does not
// state it.
func (a Answer) Left() (q Quota, ok bool) { return a.left, a.hasLeft }

// Cost returns the cost of the request. ok is false if the Answer does not state it.
func (a Answer) Cost() (cost int, ok bool) { return a.cost, a.hasCost }

// String returns the Answer in words: "refused, closes for 1m0s, cost 0". The zero Answer is "nothing".
func (a Answer) String() string {
	// A part appears only if the Answer states it.
	var parts []string
	if a.Verdict != VerdictNone {
		parts = append(parts, a.Verdict.String())
	}
	if a.Close > 0 {
		parts = append(parts, fmt.Sprintf("closes for %v", a.Close))
	}
	if a.hasLeft {
		parts = append(parts, textOf(a.left)...)
	}
	if a.hasCost {
		parts = append(parts, fmt.Sprintf("cost %d", a.cost))
	}
	if parts == nil {
		return "nothing"
	}

	return strings.Join(parts, ", ")
}

// textOf returns what a quota states, in words.
func textOf(q Quota) (parts []string) {
	if q.Reset > 0 || q.Told == (Limit{}) {
		parts = append(parts, fmt.Sprintf("%d left for %v", q.Left, q.Reset))
	}
	if q.Told != (Limit{}) {
		parts = append(parts, fmt.Sprintf("the limit is %v", q.Told))
	}
	return parts
}

// rules reports whether the Answer decides about the request or the budget. The default
// reads the response only if it does not.
func (a Answer) rules() bool { return a.Verdict != VerdictNone || a.Close > 0 }

// corrected returns a copy of the Answer without impossible parts, and an error that names
// them.
func (a Answer) corrected() (Answer, error) {
	var errs []error
	if a.Verdict > VerdictPartly {
		errs = append(errs, fmt.Errorf("%d is no verdict: use VerdictRefused, VerdictNotRefused or VerdictPartly", a.Verdict))
		a.Verdict = VerdictNone
	}
	if a.hasCost && a.cost < 0 {
		errs = append(errs, fmt.Errorf("says a cost of %d: leave WithCost out if the answer does not say", a.cost))
		a.cost, a.hasCost = 0, false
	}
	return a, errors.Join(errs...)
}

const (
	// usualRetryAfter is for how long RetryAfter closes a budget after a 429 without a time
	// that it can read.
	usualRetryAfter = time.Second

	// maxRetryAfter caps RetryAfter. Servers have sent days, and seconds since 1970 in place of a
	// delay.
	maxRetryAfter = time.Hour
)

// RetryAfter is the default [Policy.Answer]: a 429 (Too Many Requests) or 503 (Service
// Unavailable) is a refusal that closes the budget for as long as its Retry-After field
// asks, at most an hour. An Answer that knows better may close for longer. For every other
// response, and for nil, RetryAfter returns the zero Answer.
//
// The field may hold seconds, decimals too; a date of HTTP, of mail or of ISO 8601;
// seconds, milliseconds, microseconds or nanoseconds since 1970; a Go duration, "6m0s", or
// "30 seconds". A moment is compared with the answer's own Date and with the clock of this
// machine, and the shorter time counts, so that no single clock can close a budget for
// hours. RetryAfter adds a second to a moment in whole seconds, and a minute to a moment in
// minutes, because the upstream may have cut off that much. Of several lines the longest
// counts.
//
// "0" is a legal value that means now: nothing closes, and the policy's own limit alone
// paces the requests that follow. A field that is missing, cannot be read, or names a
// moment that has passed states no time. In that case a 429, which is about a limit, closes the
// budget for a second, so that nonsense never causes a storm of retries. For a 503 without
// a time, which is an outage and not a limit, the result is the zero Answer.
func RetryAfter(resp *http.Response) Answer {
	if resp == nil {
		return Answer{}
	}

	limited := resp.StatusCode == http.StatusTooManyRequests
	if !limited && resp.StatusCode != http.StatusServiceUnavailable {
		return Answer{}
	}

	wait, ok := dialect.Fields(dialect.Common, resp.Header["Retry-After"], resp.Header, peek.SentAt(resp))
	switch {
	case ok:
		return Refused(min(wait, maxRetryAfter))
	case limited:
		return Refused(usualRetryAfter)
	}

	return Answer{}
}

// AnswerOf tells a retrier what the policies read in a response that a [Transport] has
// returned: their verdict and, as Close, for how long a closed budget will hold the next
// attempt. Of several such budgets the longest counts. While Close is above 0 a retrier need
// not wait, because the budget holds the next attempt. If Close is 0 after a refusal, no
// budget holds the next attempt: the refusal is about a different budget, the store could
// not be told, or the penalty was over when the response came. Then the retrier must wait by
// itself. Quota and cost are not part of the result.
//
// Policies in Shadow do not count. A policy under which the request is free closes a budget
// that does not hold the request, so neither its Close nor, except for VerdictPartly, the
// verdict beside its Close counts. Of several verdicts, VerdictPartly counts before all, then
// the verdict of a policy that closes its budget, then VerdictNotRefused. A refusal with a
// status of 500 or above that closes no budget does not count, because a part of the work may
// be done.
//
// If the store is slow the caller gets the response while the store is still being told of
// it. The budget counts as closed all the same.
//
// The response must be the one that the Transport returned, although its body may have been
// wrapped since. AnswerOf reads a value in the context of the response's Request, which the
// Transport has replaced by a copy of the caller's own. The zero Answer means that no policy
// has an opinion.
func AnswerOf(resp *http.Response) Answer {
	if resp == nil || resp.Request == nil {
		return Answer{}
	}
	if m, ok := resp.Request.Context().Value(markKey{}).(mark); ok && m.resp == resp {
		return Answer{Verdict: m.verdict, Close: m.closes}
	}
	return Answer{}
}

// A mark carries the meaning of a response to [AnswerOf]. Later layers wrap bodies,
// http.Client.Timeout for one, and headers are the upstream's, but the request stays. The
// mark names its response, because a context is inherited by requests whose own responses
// are no refusals.
type mark struct {
	resp    *http.Response
	verdict Verdict
	closes  time.Duration
}

// markKey is the context key of a mark.
type markKey struct{}

// maxSettled returns the highest cost at which a response can settle a charge. Under a
// LeakyBucket each unit of cost keeps the next start away for per/n, and no response
// closes anything for longer than [MaxPenalty]. The booked cost can always be settled.
func maxSettled(c *store.Charge) int {
	if c.Limit.Kind() != store.KindLeakyBucket {
		return store.MaxCost
	}
	units := float64(MaxPenalty) / float64(c.Limit.Per()) * float64(c.Limit.N())
	return max(c.Cost, int(min(units, store.MaxCost)))
}

// costsOf returns the costs of charges.
func costsOf(charges []store.Charge) []int {
	costs := make([]int, len(charges))
	for i := range charges {
		costs[i] = charges[i].Cost
	}
	return costs
}
