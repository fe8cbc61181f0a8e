package throttle

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/fleetthrottle/throttle/internal/acquire"
	"github.com/fleetthrottle/throttle/internal/peek"
	"github.com/fleetthrottle/throttle/store"
)

// A feedback is the sum of the policies' Answers to a response.
type feedback struct {
	penalties []penalty
	quotas    []quota
	costs     []int         // of all charges, asBooked where the response states none. It is nil if the response states none at all.
	verdict   Verdict       // the highest verdict of the policies that close nothing, shadow policies left out
	arrived   time.Duration // when the response came
}

// A quota is the free part of a charge's budget, as a response states it.
type quota struct {
	charge *store.Charge
	Quota
}

// applyResponse lets every policy of the request look at its response, before the caller
// gets it, and marks the response for [AnswerOf]. It has the store close the budgets for which
// the response means a penalty, lower budgets to the quotas that the response states, and
// settle costs that were only estimated. A store far away may be told after the caller has
// the response.
func (r *roundTrip) applyResponse(resp *http.Response) {
	// A response that nobody reads only ends rows of 503s.
	if r.hasNoFeedback(resp) {
		r.endOutages()
		return
	}

	// Mark the response before the report, because a slow report does not keep the response from its caller.
	f := r.readFeedback(resp)
	r.mark(resp, f)

	if f.isEmpty() {
		return
	}

	// A store in memory is told at once, which takes no time, so the store knows everything when the caller gets the response.
	if r.inMemory {
		r.reportPenalties(f)
		r.markAgain(resp, f)
		r.reportUse(f)
		return
	}

	r.toBeTold = true
	if r.Uncounted() {
		r.reportUncounted(f)
	} else {
		r.reportFarAway(resp, f)
	}
}

// reportUncounted tells the store, in the background, of the feedback on a request that started uncounted: the
// store is away, or throttle is off. Feedback that holds nobody, or comes while too many reports are under way, is
// dropped: while the store is away each response would leave a report behind.
func (r *roundTrip) reportUncounted(f feedback) {
	if !r.holdsNobody(f) {
		r.reportInBackground(f)
	}
}

// reportFarAway tells a store far away of a feedback: in the background, unless the feedback has penalties that
// may hold the caller's next attempt, or too many reports are under way.
func (r *roundTrip) reportFarAway(resp *http.Response, f feedback) {
	accepted := false
	if f.penalties == nil || r.holdsNobody(f) {
		accepted = r.reportInBackground(f)
	}

	if !accepted {
		r.reportFirst(resp, f)
	}
}

// isEmpty reports whether there is nothing to tell the store.
func (f *feedback) isEmpty() bool { return f.penalties == nil && f.quotas == nil && f.costs == nil }

// reportInBackground has the store told of a feedback in the background. Bookings in the budgets that
// lowered returns wait for the report. reportInBackground returns false, and reports nothing, if too
// many reports are under way already.
func (r *roundTrip) reportInBackground(f feedback) bool {
	return r.callers.ReportInBackground(func() {
		r.reportPenalties(f) // f has penalties only of shadow policies, or of a request that started uncounted
		r.reportUse(f)
	}, r.lowered(f))
}

// lowered returns the budgets that have less room than the store believes, so that a request
// like this one may not fit: this request cost more than was booked, or less than its cost is
// left by the upstream's count. Budgets of shadow policies, which hold nobody, are left out.
func (r *roundTrip) lowered(f feedback) (all []store.Budget) {
	for i, cost := range f.costs {
		if c := &r.Booking.Charges[i]; cost > c.Cost && !c.Shadow {
			all = append(all, c.Budget)
		}
	}
	for i := range f.quotas {
		if q := &f.quotas[i]; q.Left < q.charge.Cost && !q.charge.Shadow {
			all = append(all, q.charge.Budget)
		}
	}
	return all
}

// reportFirst reports the penalties, then the rest of a feedback, and keeps the response from
// its caller until the penalties are reported. If too many reports are under way already, the
// caller waits for the rest, too. The caller waits for ReportTime at most, not beyond the end of
// its context, and not at all if the feedback holds nobody. The report goes on meanwhile. If the
// report of a penalty has failed before the caller goes on, the response is marked again.
func (r *roundTrip) reportFirst(resp *http.Response, f feedback) {
	reported := make(chan struct{})
	go func() {
		// Penalties first, because they are urgent for the whole fleet.
		r.reportPenalties(f)

		// The caller waits for the rest only if no other goroutine can report it.
		rest := feedback{quotas: f.quotas, costs: f.costs, arrived: f.arrived}
		if !rest.isEmpty() && !r.reportInBackground(rest) {
			r.reportUse(rest)
		}

		close(reported)
	}()

	if r.holdsNobody(f) {
		return
	}

	// The caller's next attempt should meet the closed budget.
	timer := time.NewTimer(r.ReportTime())
	defer timer.Stop()

	select {
	case <-reported:
		r.markAgain(resp, f)
	case <-timer.C:
	case <-r.req.Context().Done():
	}
}

// markAgain marks a response once more if the store could not be told of one of its penalties.
func (r *roundTrip) markAgain(resp *http.Response, f feedback) {
	if slices.ContainsFunc(f.penalties, func(p penalty) bool { return p.failed }) {
		r.mark(resp, f)
	}
}

// hasNoFeedback reports whether no policy can read anything out of a response: no policy has a
// function for responses, and the default reads only the statuses 429 and 503.
func (r *roundTrip) hasNoFeedback(resp *http.Response) bool {
	if resp.StatusCode == http.StatusTooManyRequests || resp.StatusCode == http.StatusServiceUnavailable {
		return false
	}
	for i := range r.policyCount() {
		if p, _ := r.policy(i); p.Answer != nil || p.Meter != nil {
			return false
		}
	}
	return true
}

// endOutages tells the defaults of all policies that a response is no 503, which ends
// their rows of 503s.
func (r *roundTrip) endOutages() {
	for i := range r.policyCount() {
		p, _ := r.policy(i)
		p.byDefault.outage.end()
	}
}

// readFeedback lets the policies look at a response, and has their meters read along its body.
func (r *roundTrip) readFeedback(resp *http.Response) (f feedback) {
	f.arrived = now()
	req := resp.Request

	// Each policy of the request reads the response for itself.
	delay := r.responseDelay(resp)
	for i := range r.policyCount() {
		p, c := r.policy(i)
		a, byDefault := r.readAnswer(p, c, resp)
		switch {
		case a.Close > 0:
			// The penalty counts from when the response was sent.
			f.penalties = append(f.penalties, penalty{
				byDefault: byDefault, charge: c, length: min(a.Close, MaxPenalty) - delay, verdict: a.Verdict,
				outage: resp.StatusCode == http.StatusServiceUnavailable,
			})

		case !c.Shadow:
			f.verdict = max(f.verdict, a.Verdict)
		}

		if q, ok := r.quotaOf(c, a, delay); ok {
			f.quotas = append(f.quotas, q)
		}

		// Policies under which the request is free come last: they have nothing to settle.
		if cost, ok := a.Cost(); ok && i < len(r.quote.policies) && r.settles(c) {
			f.costs = r.withCost(f.costs, i, cost)
		}
	}

	if resp.StatusCode == http.StatusTooManyRequests {
		f.penalties = r.leaveOpen(f.penalties)
	}

	// Meters come after the Answers: an Answer may look at the body, and a policy whose Answer states the cost needs no meter. Only
	// then drop costs that are as booked, which the store has already.
	r.meterBody(resp, f.costs)
	if r.areBooked(f.costs) {
		f.costs = nil
	}

	resp.Request = req // responseDelay may have replaced it
	return f
}

// leaveOpen drops penalties of a 429 that the default has read: by default a 429 is about the first
// booked budget with a key alone. It keeps the penalty of that budget, the penalties that a policy's
// own function has read, and the penalties of shadow policies, which hold nobody. It keeps all penalties
// if none is of a booked budget with a key.
func (r *roundTrip) leaveOpen(penalties []penalty) []penalty {
	first := slices.IndexFunc(penalties, func(p penalty) bool { return r.isOfKey(p.charge) })
	if first < 0 {
		return penalties
	}

	meant := penalties[first].charge
	return slices.DeleteFunc(penalties, func(p penalty) bool { return p.byDefault && !p.charge.Shadow && p.charge != meant })
}

// readAnswer returns the meaning of a response under a policy. If the policy has no function
// of its own, or the function decides nothing about the request or the budget, the default
// reads the response, and byDefault is true. If the function fails, RetryAfter reads the
// response. The observer is told of a function that fails, of an answer that cannot be right,
// and of a body that cannot be decoded.
func (r *roundTrip) readAnswer(p *compiledPolicy, c *store.Charge, resp *http.Response) (a Answer, byDefault bool) {
	if p.Answer != nil {
		said, err := p.answer(resp)
		r.reportIllegible(p, c, resp)

		if err != nil {
			r.functionFailed(r.req.Context(), p, err)
			return RetryAfter(resp), false // so that leaveOpen does not drop the penalty
		}

		if a, err = said.corrected(); err != nil {
			r.functionFailed(r.req.Context(), p, &ConfigError{p.Name, "Answer", err})
		}

		// Each response would cause this event, so the observer gets the first alone.
		leftOfUnlimited := a.hasLeft && c.Limit.Kind() == store.KindUnlimited
		if leftOfUnlimited && !p.leftReported.Swap(true) {
			r.functionFailed(r.req.Context(), p, &ConfigError{p.Name, "Answer", errNoneLeft})
		}
	}

	// The quota and the cost that the function states stay.
	byDefault = !a.rules()
	if byDefault {
		standard := p.byDefault.answer(resp)
		a.Verdict, a.Close = standard.Verdict, standard.Close
	}

	return a, byDefault
}

// errNoneLeft is the error of an answer that states a quota where nothing is counted.
var errNoneLeft = errors.New("says what is left, but the limit counts no starts, so there is no number that an answer could lower: set a limit with a number")

// quotaOf returns the quota that an answer states for a charge's budget. The answer was sent delay
// ago. ok is false if the answer states none, if the limit is Unlimited, or if the quota has no Reset
// left. A token bucket needs no Reset, and under the limit Told a quota that tells the limit needs
// none.
func (r *roundTrip) quotaOf(c *store.Charge, a Answer, delay time.Duration) (q quota, ok bool) {
	stated, ok := a.Left()
	if !ok || c.Limit.Kind() == store.KindUnlimited {
		return quota{}, false
	}

	// Left was true when this request arrived, which was up to Jitter after its start, or up to
	// DefaultJitter if Jitter is less. The upstream may have counted later arrivals, too, but
	// nobody can tell.
	stated.Left = max(0, stated.Left)
	stated.Age = max(0, r.elapsed()-max(c.Jitter, acquire.DefaultJitter))
	stated.Reset = max(0, min(stated.Reset, MaxPenalty)-delay)

	// A bucket needs no Reset: its flow is known. A limit that the answer tells counts even if the quota itself is void.
	ok = stated.Reset > 0 || c.Limit.Kind() == store.KindTokenBucket || tells(c, stated)
	return quota{c, stated}, ok
}

// tells reports whether a quota tells the limit of a charge.
func tells(c *store.Charge, q Quota) bool {
	return c.Limit.Kind() == store.KindTold && q.Told != (Limit{})
}

// responseDelay returns how long ago a response was sent, or 0 if the response took no longer than
// [peek.SlowAnswer]. If it took longer, responseDelay sets resp.Request to a copy that tells [peek.SentAt]
// when the request started: see elapsed.
func (r *roundTrip) responseDelay(resp *http.Response) time.Duration {
	took := r.elapsed()
	if took <= peek.SlowAnswer {
		return 0
	}
	ctx := peek.WithHanded(r.req.Context(), time.Now().Add(-took))
	resp.Request = r.req.WithContext(ctx)
	return time.Since(peek.SentAt(resp))
}

// mark has [AnswerOf] return the policies' verdict on a response. A penalty counts as
// stored unless its report has failed.
func (r *roundTrip) mark(resp *http.Response, f feedback) {
	// f.verdict is the verdict of the policies that close nothing.
	m := mark{resp: resp, verdict: f.verdict}

	// Where a policy closes its budget, only the verdicts of such policies count, except that VerdictPartly counts whichever policy says so.
	if slices.ContainsFunc(f.penalties, func(p penalty) bool { return !p.charge.Shadow }) && m.verdict != VerdictPartly {
		m.verdict = VerdictNone
	}

	// Only the policies whose budgets hold the next attempt count, except for VerdictPartly.
	for i := range f.penalties {
		p := &f.penalties[i]
		holds := !p.charge.Shadow && r.isBooked(p.charge)
		if holds || !p.charge.Shadow && p.verdict == VerdictPartly {
			m.verdict = max(m.verdict, p.verdict)
		}
		if holds && !p.failed {
			m.closes = max(m.closes, p.length)
		}
	}

	// A refusal with a status of 500 or above that closes nothing may come from half-done work.
	if m.verdict == VerdictRefused && resp.StatusCode >= http.StatusInternalServerError && f.penalties == nil {
		m.verdict = VerdictNone
	}

	if m.verdict != VerdictNone || m.closes > 0 {
		resp.Request = r.req.WithContext(context.WithValue(r.req.Context(), markKey{}, m))
	}
}

// holdsNobody reports whether a feedback is about shadow policies alone, so that no caller waits for its report.
func (r *roundTrip) holdsNobody(f feedback) bool {
	// Shadowed is about the booked charges alone. Penalties and quotas may also be of policies under which the request is free.
	ofPenalty := func(p penalty) bool { return !p.charge.Shadow }
	ofQuota := func(q quota) bool { return !q.charge.Shadow }
	return r.Shadowed() && !slices.ContainsFunc(f.penalties, ofPenalty) && !slices.ContainsFunc(f.quotas, ofQuota)
}

// reportPenalties tells the store, and the observer, of the budgets that a response closes.
// It tries to report a penalty for as long as the penalty lasts, within the bounds of
// reportContext, and notes in the penalty whether that failed. A penalty that is over is
// reported only if its budget learns from it, and counts as failed then: it closes nothing.
func (r *roundTrip) reportPenalties(f feedback) {
	if f.penalties == nil {
		return
	}

	// took is the time of the answer alone: later calls of elapsed also count the time of reports.
	began := now()
	took := r.elapsed()
	ctx, cancel := r.reportContext(acquire.ReportWait)
	learning := r.learningPenalty(ctx, f.penalties, func(c *store.Charge) bool {
		return slices.ContainsFunc(f.quotas, func(q quota) bool { return q.charge == c && explains(c, q.Quota) })
	})
	cancel()

	for i := range f.penalties {
		p := f.penalties[i] // a copy, because mark needs the length as of the response

		// The report of the penalty before may have taken long. Less than a millisecond is left out: otherwise no event would have the answer's length.
		p.length -= (now() - began).Truncate(time.Millisecond)

		// The budget learns from a refusal even if the penalty is over by now.
		if p.length > 0 || i == learning {
			ctx, cancel := r.reportContext(p.length)
			err := r.reportPenalty(ctx, &p, r.elapsed(), took, i == learning)
			f.penalties[i].failed = err != nil || p.length <= 0
			cancel()
		}
	}
}

// explains reports whether a quota accounts for the refusal of a charge, so that the budget has
// nothing to learn. Every quota does, unless it tells the limit of the budget and leaves room for
// the charge.
func explains(c *store.Charge, q Quota) bool { return !tells(c, q) || q.Left < c.Cost }

// reportUse tells the store of the costs and the quotas that a response states, and the
// observer of failures.
func (r *roundTrip) reportUse(f feedback) {
	if f.costs != nil {
		r.callStore(func(ctx context.Context) { r.settleCosts(ctx, f.costs) })
	}

	// Quotas come after the costs, because the upstream's quota takes the true costs into account.
	for _, q := range f.quotas {
		passed := now() - f.arrived

		// Leave out a quota whose window is over by now. The flow of a bucket, and a told limit, hold beyond the window.
		over := q.Reset <= passed && q.charge.Limit.Kind() != store.KindTokenBucket && !tells(q.charge, q.Quota)
		if over {
			continue
		}

		q.Age, q.Reset = q.Age+passed, max(0, q.Reset-passed)

		// lowerQuota tells the observer of its error.
		r.callStore(func(ctx context.Context) { _ = r.lowerQuota(ctx, q) })
	}
}

// callStore calls the store with a context of the call's own, so that a slow call does not use up the time of the
// next. A call of a store in memory takes no time, and needs no end.
func (r *roundTrip) callStore(call func(context.Context)) {
	if r.inMemory {
		call(context.WithoutCancel(r.req.Context()))
		return
	}
	ctx, cancel := r.reportContext(acquire.ReportWait)
	defer cancel()
	call(ctx)
}

// resetDoubt bounds by how much a stated reset may be too late: upstreams state it in whole
// seconds, and a response is on its way for a while. The doubt is never longer than the limit's
// window: a reset that is further away belongs to the next window.
const resetDoubt = 2 * time.Second

// lowerQuota tells the store the quota of a budget. A store counts within the limit's own
// windows, and holds requests for one window at most. If nothing is left, and the store would
// let a request start before the quota's Reset is over, lowerQuota also closes the budget for
// Reset: the upstream's window is longer than the limit's, or began later than the store's. It
// tells the observer of its error.
func (a *acquisition) lowerQuota(ctx context.Context, q quota) error {
	c := q.charge
	if err := a.store.Reconcile(ctx, *c, q.Quota); err != nil {
		a.reportFailure(ctx, c, q.Reset, err)
		return &StoreError{err}
	}

	kind := c.Limit.Kind()
	doubt := resetDoubt
	if c.Limit.Per() > 0 {
		doubt = min(doubt, c.Limit.Per())
	}

	// Reconcile is enough if something is left, or if the reset is near.
	if q.Left > 0 || q.Reset <= doubt {
		return nil
	}

	// Reconcile is enough, too, for a bucket, which fills by its own flow, for slots, which come back when requests end, and
	// for a sliding window that is full until the reset.
	if kind == store.KindTokenBucket || kind == store.KindConcurrency || kind == store.KindSlidingWindow && q.Reset <= c.Limit.Per() {
		return nil
	}

	// Close the budget if the store would let a request start before the reset, by more than the doubt.
	status, err := a.store.Status(ctx, *c)
	switch {
	case err != nil:
		a.reportFailure(ctx, c, q.Reset, err)
	case status.Wait+doubt < q.Reset:
		err = a.pauseBudget(ctx, c, q.Reset) // tells the observer of its error
	}

	if err != nil {
		return &StoreError{err}
	}

	return nil
}

// asBooked is the cost of a charge whose cost a response does not state.
const asBooked = -1

// areBooked reports whether costs are equal to the booked costs.
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

// withCost returns costs, which may be nil, with a cost for the charge i, at most maxSettled.
// A negative cost changes nothing.
func (r *roundTrip) withCost(costs []int, i, cost int) []int {
	if cost < 0 {
		return costs
	}
	if costs == nil {
		costs = slices.Repeat([]int{asBooked}, len(r.Booking.Charges))
	}
	costs[i] = min(cost, maxSettled(&r.Booking.Charges[i]))
	return costs
}

// codings are the content codings that upstreams are known to use and that package peek cannot decode.
// Events name these codings only: the name of an unknown coding is a text that the upstream has chosen.
var codings = map[string]bool{"br": true, "zstd": true, "compress": true}

// reportIllegible tells the observer, once for each policy, that a function of the
// policy wanted to look at a response in a coding that cannot be decoded.
func (r *roundTrip) reportIllegible(p *compiledPolicy, c *store.Charge, resp *http.Response) {
	r.reportCoding(p, c, peek.Refused(resp))
}

// reportCoding tells the observer, once for each policy, that the policy cannot read answers
// in a coding. Every policy can read the empty coding.
func (r *roundTrip) reportCoding(p *compiledPolicy, c *store.Charge, coding string) {
	if coding == "" || r.observe == nil {
		return
	}
	if reported := p.illegibleReported.Swap(true); reported {
		return
	}
	if !codings[coding] {
		coding = "an unknown coding"
	}
	err := fmt.Errorf("throttle: policy %q cannot read answers in %s: leave Accept-Encoding unset, or set it to gzip", p.Name, coding)
	r.observe(r.req.Context(), eventOf(EventIllegible, c, 0, err))
}

// settleCosts tells the store the costs of the request: a cost for each charge, asBooked
// for charges that keep theirs. With nil all charges keep their costs. It tells the engine,
// too, which learns how wrong estimates are, and the observer of charges that the store has
// not settled.
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

// A settlement is the state of the costs of one request in the store: the response changes
// them, and its body when it is over. Both may come at one time.
type settlement struct {
	mu     sync.Mutex
	booked []store.Charge // the charges with the costs that the store has. It is nil until a cost differs from the booking.
}

// tell tells the store the costs of a start: a cost for each charge, asBooked for charges
// that keep theirs. It makes no call if the store has these costs already. If the call fails,
// failed has the charges whose costs the store may not know.
func (s *settlement) tell(ctx context.Context, st Store, b store.Booking, g store.Grant, costs []int) (failed []store.Charge, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()

	// The store has the costs of the last call, or of the booking if there was no call before.
	if s.booked != nil {
		b.Charges = s.booked
	}

	next := costsOf(b.Charges)
	for i, cost := range costs {
		if cost >= 0 {
			next[i] = cost
		}
	}

	if slices.EqualFunc(b.Charges, next, func(c store.Charge, cost int) bool { return c.Cost == cost }) {
		return nil, nil
	}

	err = st.Settle(ctx, &b, g, next)
	s.booked = slices.Clone(b.Charges)
	for i, cost := range next {
		c := &s.booked[i]
		if err != nil && c.Cost != cost {
			failed = append(failed, b.Charges[i])
		}

		// If it is unknown which of two costs the store has, the lower cost counts: to give back more
		// than is booked would give back the start of a different request.
		if err == nil || cost < c.Cost {
			c.Cost = cost
		}
	}

	return failed, err
}

// A penalty is the consequence of a refusal for one budget.
type penalty struct {
	byDefault bool // the default read it, and not the policy's own function

	charge  *store.Charge
	length  time.Duration // how long the budget must stay closed from now on. It is not above 0 once the penalty is over.
	verdict Verdict       // of the policy on the request
	failed  bool          // the report failed, or the penalty was over when its budget learned from it
	outage  bool          // the upstream is down: it may be up again at any time, and bans nobody
}

// reportPenalty has the store close the budget of a penalty, and tells the observer of the penalty,
// of a ceiling that it has lowered, or of the error that it returns. ago is how long ago the refused
// work began, and took is how much of that time its answer took. learns says that the budget may
// learn from the refusal. An outage is no refusal: it only pauses the budget. After an error it is
// unknown whether the store has closed the budget.
func (a *acquisition) reportPenalty(ctx context.Context, p *penalty, ago, took time.Duration, learns bool) error {
	c := p.charge
	if p.outage {
		return a.pauseBudget(ctx, c, p.length)
	}

	refusal := store.Refusal{Length: max(0, p.length), Ago: ago, Took: took}
	if learns {
		refusal.Start = a.Grant
	}

	// The store answers with the ceiling before and after.
	from, to, err := a.store.Refuse(ctx, *c, refusal)
	if err != nil {
		a.reportFailure(ctx, c, refusal.Length, err)
		return err
	}

	// NoteClosed, too, is only for the observer.
	if a.observe == nil {
		return nil
	}

	// A penalty that is over has closed nothing, but may have lowered the ceiling.
	if p.length > 0 {
		a.callers.NoteClosed(c.Budget, p.length)
		a.observe(ctx, eventOf(EventPenalized, c, p.length, nil))
	}

	if to < from {
		e := eventOf(EventLowered, c, 0, nil)
		e.From, e.To = from, to
		a.observe(ctx, e)
	}

	return nil
}

// pauseBudget has the store close a budget for d, and tells the observer that the budget is closed or, if
// the store fails, of the error that it returns. After an error it is unknown whether the store has closed
// the budget.
func (a *acquisition) pauseBudget(ctx context.Context, c *store.Charge, d time.Duration) error {
	if err := a.store.Pause(ctx, *c, d); err != nil {
		a.reportFailure(ctx, c, d, err)
		return err
	}

	// Only the observer needs to hear later that the budget is open: see NoteClosed.
	if a.observe != nil {
		a.callers.NoteClosed(c.Budget, d)
		a.observe(ctx, eventOf(EventPenalized, c, d, nil))
	}
	return nil
}

// reportFailure tells the observer that the store did not take a report on the budget of c: a
// penalty or a quota that lasts for d, or a cost, which has a d of 0.
func (e *engine) reportFailure(ctx context.Context, c *store.Charge, d time.Duration, err error) {
	if e.observe != nil {
		failed := &StoreError{err}
		e.observe(e.withQuestion(ctx, failed, []store.Charge{*c}), eventOf(EventStoreFailed, c, d, failed))
	}
}

// isForAll reports whether a charge is of the budget that its policy has without a key.
func isForAll(c *store.Charge) bool { return c.Budget.Key == store.BudgetOf(c.Budget.Policy, "").Key }

// isOfKey reports whether a charge holds the caller in a budget with a key. By default a
// refusal is about the first such budget, and not about budgets that callers with different
// keys share.
func (a *acquisition) isOfKey(c *store.Charge) bool {
	return !c.Shadow && a.isBooked(c) && !isForAll(c)
}

// isBooked reports whether a charge is one of the booked charges.
func (a *acquisition) isBooked(c *store.Charge) bool {
	for i := range a.Booking.Charges {
		if c == &a.Booking.Charges[i] {
			return true
		}
	}
	return false
}

// learningPenalty returns the index of the penalty from which an Adaptive budget learns
// that the upstream allows less than the limit, or -1 if there is none: see
// docs/use/bans.md#learn-from-refusals. If a response closes several Adaptive budgets only the fullest learns:
// the refusal is not about a budget that was hardly used. Nothing is learned from an outage, nor by a
// budget of a shadow policy, a budget that is not booked, or a budget for which isExplained reports
// that a quota accounts for the refusal.
func (a *acquisition) learningPenalty(ctx context.Context, penalties []penalty, isExplained func(*store.Charge) bool) int {
	var able []int
	for i := range penalties {
		p := &penalties[i]
		if c := p.charge; c.Adaptive && !c.Shadow && !p.outage && a.isBooked(c) && !isExplained(c) {
			able = append(able, i)
		}
	}

	switch len(able) {
	case 0:
		return -1
	case 1:
		return able[0]
	}

	// Several budgets are able to learn, so ask the store which is the fullest.
	fullest, maxFullness := -1, -1.0
	for _, i := range able {
		if f := a.fullness(ctx, penalties[i].charge); f > maxFullness {
			fullest, maxFullness = i, f
		}
	}

	return fullest
}

// fullness returns the used part of a budget, where 1 is all of it, or 0 if the store does
// not say.
func (a *acquisition) fullness(ctx context.Context, c *store.Charge) float64 {
	st, err := a.store.Status(ctx, *c)
	if err != nil {
		return 0
	}

	capacity := float64(c.Limit.Capacity())
	switch {
	case c.Limit.Kind() == store.KindLeakyBucket:
		capacity = 1 // one start counts at a time
	case st.Told.N() > 0:
		// The limit Told has no capacity of its own: take the ceiling, which is in starts, or else the told number.
		capacity = cmp.Or(st.Ceiling, float64(st.Told.N()))
	case st.Ceiling > 0:
		// The ceiling is a part of Limit.N. The capacity of a token bucket is its burst, so lower it by the same ratio.
		capacity *= st.Ceiling / float64(c.Limit.N())
	}

	return float64(st.Used) / capacity
}

// An outageRow counts how many answers in a row were a 503 that would have closed a budget. A single backend of
// many may send a few such answers.
type outageRow struct{ length atomic.Int64 }

// outageAnswers is how many answers in a row must be a 503 before the upstream counts as down. If a
// third of the answers are a 503, one run of ten comes in 60,000 answers.
const outageAnswers = 10

// count adds a, the default's answer to a 503, to the row, or ends the row if a closes nothing.
// It returns a, without its Close if the row is shorter than outageAnswers.
func (r *outageRow) count(a Answer) Answer {
	if a.Close <= 0 {
		r.end()
		return a
	}

	if r.length.Add(1) < outageAnswers {
		a.Close = 0
	}
	return a
}

// end ends the row, because an answer was no 503 or closes nothing.
func (r *outageRow) end() {
	// Most rows are empty: good answers must not all write to one place in memory.
	if r.length.Load() != 0 {
		r.length.Store(0)
	}
}

// A defaultAnswer reads the responses on which a policy's own function has no opinion: it
// returns the result of [RetryAfter], but closes nothing for a 503 unless outageAnswers in
// a row came.
type defaultAnswer struct{ outage outageRow }

// answer is a [Policy.Answer].
func (d *defaultAnswer) answer(resp *http.Response) Answer {
	if resp.StatusCode == http.StatusServiceUnavailable {
		return d.outage.count(RetryAfter(resp))
	}
	d.outage.end()
	return RetryAfter(resp)
}
