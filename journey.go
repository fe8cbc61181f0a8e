package throttle

import (
	"context"
	"io"
	"net/http"
	"net/http/httptrace"
	"net/url"
	"slices"
	"sync"
	"time"
)

// A journey is one request's way through a [Transport]: match, wait, send,
// learn.
type roundTrip struct {
	acquisition
	t        *Transport
	req      *http.Request
	policies *policySet
	quote    quote // its charges are those of the booking

	reqBody  io.ReadCloser // the request's body
	rewound  io.ReadCloser // the same, for another attempt
	detached bool          // an attempt was given up before
	dialTook time.Duration // how long its base took to get a connection

	// What the base gets. All of it lies here, so that it is made at once;
	// nothing is used again, because a base may keep it for longer than its
	// answer.
	sent      http.Request
	line      lifeline
	sentURL   url.URL // see stop
	trace     httptrace.ClientTrace
	revocable revocableBody
	respBody  responseBody
	handedAt  time.Duration // when the base got the request

	// The base calls the hooks of a trace from goroutines of its own.
	mu            sync.Mutex
	wrote         bool        // the headers of the grant's request have left
	connSeen      bool        // the base told of a connection
	baseRetried   bool        // the base tries again what it has written before
	ended         bool        // nobody waits for the answer any more
	stopErr       error       // why the last look stopped the request
	stopAfterFunc func() bool // stops looking at the request's context

	chargeBuf [2]Charge
	policyBuf [2]*compiledPolicy
}

// begin starts a request's journey.
func (t *Transport) newRoundTrip(req *http.Request) *roundTrip {
	r := &roundTrip{t: t, req: req, reqBody: req.Body}
	r.store, r.rtt, r.observe, r.grant.Held = t.store, &t.rtt, t.observe, -1
	r.maxWait, r.priority = maxWait(req.Context(), t.maxWait), priority(req.Context())
	return r
}

// price finds what the request has to pay.
func (r *roundTrip) priceRequest(t *policySet, matched []int32) (err error) {
	r.policies = t
	if r.quote.charges == nil {
		r.quote.charges, r.quote.policies = r.chargeBuf[:0], r.policyBuf[:0]
	}
	err = r.quote.priceRequest(t, matched, r.req)
	for _, f := range r.quote.unpriced {
		r.functionFailed(f.policy, f.err)
	}
	if r.booking.Charges = r.quote.charges; err != nil {
		return err
	}
	r.inspectCharges()
	return checkCosts(r.booking.Charges)
}

// wait holds the request until it may be handed to the base: at its start, or
// a little before if a connection is likely to be dialled first.
func (r *roundTrip) acquireStart() error {
	ctx := r.req.Context()
	r.lead = r.dialLead()
	for {
		if !r.holdsPlace() {
			if err := r.book(ctx); err != nil || r.granted() {
				return err
			}
		}
		err := r.await(ctx, waitOptions{early: r.lead, jitterShare: handoffShare, replaced: r.policies.replaced})
		if err != errReplaced {
			return err
		}
		if err = r.rematch(); err != nil || len(r.quote.policies) == 0 {
			return err
		}
	}
}

// rematch looks at the policies again, because they were replaced. A request
// that they treat as before keeps its place; any other gives it back.
func (r *roundTrip) rematch() error {
	r.stopWatch()
	old := r.booking
	old.Charges = slices.Clone(old.Charges)
	var few [fewPolicies]int32
	next := r.t.policies.Load()
	err := r.priceRequest(next, next.index.Match(few[:0], r.req))
	if err == nil && slices.EqualFunc(old.Charges, r.booking.Charges, equivalent) {
		return nil
	}
	moves := r.inLine() || slices.EqualFunc(old.Charges, r.booking.Charges, interchangeable)
	if r.holdsPlace() && moves && err == nil && len(r.booking.Charges) > 0 {
		return r.book(r.req.Context()) // so nobody passes while it changes places
	}
	if r.holdsPlace() {
		r.store.Cancel(&old, r.grant)
	}
	r.grant = Grant{Held: -1, Turn: r.grant.Turn}
	return err
}

// likeCharge reports whether a start that was booked for a can be given back by b.
func interchangeable(a, b Charge) bool {
	return a.Budget == b.Budget && a.Cost == b.Cost && a.Shadow == b.Shadow && a.Node == b.Node &&
		a.Limit.kind == b.Limit.kind && a.Limit.kind != Paced
}

// sameCharge reports whether a place booked for a is as good as one for b.
func equivalent(a, b Charge) bool {
	return a.Budget == b.Budget && a.Cost == b.Cost && a.Jitter == b.Jitter && a.Shadow == b.Shadow &&
		a.Node == b.Node && a.Reserve == b.Reserve && a.Limit.String() == b.Limit.String()
}

// refuse ends a journey on which nothing was sent.
func (r *roundTrip) giveUp(err error) error {
	if r.reqBody != nil {
		r.reqBody.Close()
	}
	r.report(r.req.Context(), outcomeOf(err), r.waited(), err)
	return err
}

// pass sends a request that costs nothing.
func (r *roundTrip) sendFree() (*http.Response, error) {
	req := r.req
	if r.detached {
		req = req.WithContext(req.Context())
		req.Body = r.reqBody
	}
	r.handedAt = now()
	resp, err := r.t.base.RoundTrip(req)
	if resp != nil && r.detached {
		resp.Request = r.req
	}
	if err == nil && resp != nil && len(r.quote.zeroCost) > 0 {
		r.applyResponse(resp)
	}
	return resp, err
}

// run sends the request and learns from the answer. What it has in flight ends
// here unless the caller gets the answer, also if the base panics. After errFar
// the journey goes on as another.
func (r *roundTrip) sendAndLearn() (*http.Response, error) {
	goesOn := false
	defer func() {
		if !goesOn {
			r.end()
		}
	}()
	resp, err := r.send()
	if err != nil || resp == nil {
		goesOn = err == errDetach
		return nil, err
	}
	r.applyResponse(resp)
	goesOn = true
	return resp, nil
}

// send hands the request to the base. A base that tells of its connections has
// the grant looked at once more when it is about to write: dialling may have
// taken longer than the grant is good for.
func (r *roundTrip) send() (*http.Response, error) {
	if r.observe != nil {
		r.report(r.req.Context(), Started, r.waited(), nil)
	}
	r.prepare()
	r.handedAt = now()
	resp, err := r.t.base.RoundTrip(&r.sent)

	failed, traced := r.preWriteResult(resp != nil)
	if failed != nil {
		err = failed
	}
	if err != nil || resp == nil {
		if resp != nil && resp.Body != nil {
			resp.Body.Close()
		}
		return nil, err
	}
	if !traced {
		r.t.dials.markSilent(r.req.URL.Host)
	}
	resp.Request = r.req
	r.wrapBody(resp)
	return resp, nil
}

// prepare makes the request that the base gets.
func (r *roundTrip) prepare() {
	ctx := r.req.Context()
	r.line.parent = ctx
	r.trace.GotConn, r.trace.WroteHeaders = r.gotConn, r.wroteHeaders
	r.sent = *r.req.WithContext(httptrace.WithClientTrace(&r.line, &r.trace))
	r.sentURL = *r.req.URL
	r.sent.URL = &r.sentURL
	r.sent.Body = r.reqBody
	if r.reqBody != nil && r.reqBody != http.NoBody && r.req.GetBody == nil {
		r.revocable.ReadCloser = r.reqBody
		r.sent.Body = &r.revocable
	}
	if r.concurrent {
		// Whoever puts another body around the answer's may never close it.
		r.mu.Lock()
		r.stopAfterFunc = context.AfterFunc(ctx, r.end)
		r.mu.Unlock()
	}
}

// end is called, perhaps more than once, when the answer is over. It ends what
// the request has in flight.
func (r *roundTrip) end() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.ended {
		return
	}
	r.ended = true
	r.stopWatch()
	r.line.end()
	r.releaseSlots()
	if r.stopErr == errDetach {
		r.abandon()
	}
	if r.stopAfterFunc != nil {
		r.stopAfterFunc()
	}
}
