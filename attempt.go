package throttle

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptrace"
	"net/url"
	"sync"
	"time"
)

// A roundTrip is one attempt to get a request through a [Transport]: price it,
// acquire its start, send it, apply the response. Most requests need one.
type roundTrip struct {
	acquisition
	t        *Transport
	req      *http.Request
	policies *policySet
	quote    quote // its charges are those of the booking

	reqBody  io.ReadCloser // the request's body
	rewound  io.ReadCloser // the same, for the next attempt
	detached bool          // an attempt before this one gave its connection back
	dialTook time.Duration // how long the base took to get a connection

	// What the base gets. It all lies here so that it is allocated at once. None of
	// it is used again, because a base may keep it for longer than the response.
	sent       http.Request
	cancelSent context.CancelCauseFunc
	sentURL    url.URL // see abort
	trace      httptrace.ClientTrace
	revocable  revocableBody
	respBody   responseBody
	handedAt   time.Duration // when the base got the request

	// The base calls the hooks of a trace from goroutines of its own.
	mu            sync.Mutex
	wrote         bool        // the headers have left under the present grant
	connSeen      bool        // the base has called gotConn
	connClosed    bool        // the connection was closed before anything was written
	baseRetried   bool        // the base sends again what it has written before
	ended         bool        // the response is over, or there is none
	stopErr       error       // why the pre-write check stopped the request
	stopAfterFunc func() bool // ends the watch over the request's context

	chargeBuf [2]Charge
	policyBuf [2]*compiledPolicy
}

// newRoundTrip returns the first attempt of a request.
func (t *Transport) newRoundTrip(req *http.Request) *roundTrip {
	r := &roundTrip{t: t, req: req, reqBody: req.Body}
	r.store, r.rtt, r.observe, r.grant.Held = t.store, &t.rtt, t.observe, -1
	r.maxWait, r.priority = maxWait(req.Context(), t.maxWait), priority(req.Context())
	return r
}

// priceRequest sets what the request costs, under the policies at the positions in
// matched.
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

// dialLead is how much before its start the request is handed to the base. If an
// attempt has dialled for longer than usual, the next one needs as long.
func (r *roundTrip) dialLead() time.Duration {
	usual := r.t.dials.usual(r.req.URL.Host)
	if usual == 0 {
		return 0
	}
	return max(usual, r.dialTook)
}

// eachPolicy yields all policies of the request, those too under which it costs
// nothing.
func (r *roundTrip) eachPolicy(yield func(*compiledPolicy, *Charge) bool) {
	for i, p := range r.quote.policies {
		if !yield(p, &r.booking.Charges[i]) {
			return
		}
	}
	for i := range r.quote.zeroCost {
		if f := &r.quote.zeroCost[i]; !yield(f.policy, &f.charge) {
			return
		}
	}
}

// elapsed is how long ago the request started: when it was handed to the base, or at
// its booked start if that was later.
func (r *roundTrip) elapsed() time.Duration { return max(0, now()-max(r.handedAt, r.startAt)) }

// outcomeOf returns the kind of event for an error.
func outcomeOf(err error) EventKind {
	var gone *gaveUpError
	if errors.As(err, &gone) {
		return GaveUp
	}
	return Refused
}

// functionFailed reports that a function of a policy failed where the request, or
// its response, goes on all the same.
func (r *roundTrip) functionFailed(p *compiledPolicy, err error) {
	if r.observe != nil {
		r.observe(r.req.Context(), Event{Kind: FunctionFailed, Policy: p.Name, Limit: p.Limit, Err: err})
	}
}

// reportWait bounds how long a response is kept from its caller while the store is told
// what it means. maxReport bounds how long the report is tried at all: after a longer
// outage the next response tells the store of a penalty that still lasts.
const (
	reportWait = time.Second
	maxReport  = 30 * time.Second
)

// reportContext returns the context for telling the store something: the caller's,
// without its end.
func (r *roundTrip) reportContext(worth time.Duration) (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.WithoutCancel(r.req.Context()), min(max(worth, reportWait), maxReport))
}

// reportFailure reports that the store could not be told something about a budget.
func (r *roundTrip) reportFailure(ctx context.Context, c *Charge, d time.Duration, err error) {
	if r.observe != nil {
		r.observe(ctx, eventOf(StoreFailed, c, d, &StoreError{err}))
	}
}
