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
type journey struct {
	hold
	t     *Transport
	req   *http.Request
	table *table
	bill  bill // its charges are those of the booking

	content  io.ReadCloser // the request's body
	regained io.ReadCloser // the same, for another attempt
	again    bool          // an attempt was given up before
	dialled  time.Duration // how long its base took to get a connection

	// What the base gets. All of it lies here, so that it is made at once;
	// nothing is used again, because a base may keep it for longer than its
	// answer.
	sent   http.Request
	line   lifeline
	url    url.URL // see stop
	trace  httptrace.ClientTrace
	shield shield
	body   watchedBody
	handed time.Duration // when the base got the request

	// The base calls the hooks of a trace from goroutines of its own.
	last    sync.Mutex
	written bool        // the headers of the grant's request have left
	traced  bool        // the base told of a connection
	retried bool        // the base tries again what it has written before
	over    bool        // nobody waits for the answer any more
	failed  error       // why the last look stopped the request
	unwatch func() bool // stops looking at the request's context

	fewCharges [2]Charge
	fewRules   [2]*rule
}

// begin starts a request's journey.
func (t *Transport) begin(req *http.Request) *journey {
	j := &journey{t: t, req: req, content: req.Body}
	j.store, j.lag, j.observe, j.grant.Held = t.store, &t.lag, t.observe, -1
	j.maxWait, j.priority = maxWait(req.Context(), t.maxWait), priority(req.Context())
	return j
}

// price finds what the request has to pay.
func (j *journey) price(t *table, matched []int32) (err error) {
	j.table = t
	if j.bill.charges == nil {
		j.bill.charges, j.bill.rules = j.fewCharges[:0], j.fewRules[:0]
	}
	err = j.bill.price(t, matched, j.req)
	for _, f := range j.bill.unpriced {
		j.survived(f.rule, f.err)
	}
	if j.booking.Charges = j.bill.charges; err != nil {
		return err
	}
	j.measure()
	return payable(j.booking.Charges)
}

// wait holds the request until it may be handed to the base: at its start, or
// a little before if a connection is likely to be dialled first.
func (j *journey) wait() error {
	ctx := j.req.Context()
	j.lead = j.early()
	for {
		if !j.placed() {
			if err := j.book(ctx); err != nil || j.granted() {
				return err
			}
		}
		err := j.await(ctx, waiting{early: j.lead, parts: handOn, replaced: j.table.replaced})
		if err != errReplaced {
			return err
		}
		if err = j.rematch(); err != nil || len(j.bill.rules) == 0 {
			return err
		}
	}
}

// rematch looks at the policies again, because they were replaced. A request
// that they treat as before keeps its place; any other gives it back.
func (j *journey) rematch() error {
	j.stopWatch()
	old := j.booking
	old.Charges = slices.Clone(old.Charges)
	var few [fewPolicies]int32
	next := j.t.table.Load()
	err := j.price(next, next.index.match(few[:0], j.req))
	if err == nil && slices.EqualFunc(old.Charges, j.booking.Charges, sameCharge) {
		return nil
	}
	moves := j.inLine() || slices.EqualFunc(old.Charges, j.booking.Charges, likeCharge)
	if j.placed() && moves && err == nil && len(j.booking.Charges) > 0 {
		return j.book(j.req.Context()) // so nobody passes while it changes places
	}
	if j.placed() {
		j.store.Cancel(&old, j.grant)
	}
	j.grant = Grant{Held: -1, Turn: j.grant.Turn}
	return err
}

// likeCharge reports whether a start that was booked for a can be given back by b.
func likeCharge(a, b Charge) bool {
	return a.Budget == b.Budget && a.Cost == b.Cost && a.Shadow == b.Shadow && a.Node == b.Node &&
		a.Limit.kind == b.Limit.kind && a.Limit.kind != Paced
}

// sameCharge reports whether a place booked for a is as good as one for b.
func sameCharge(a, b Charge) bool {
	return a.Budget == b.Budget && a.Cost == b.Cost && a.Jitter == b.Jitter && a.Shadow == b.Shadow &&
		a.Node == b.Node && a.Adaptive == b.Adaptive && a.Reserve == b.Reserve && a.Limit.String() == b.Limit.String()
}

// refuse ends a journey on which nothing was sent.
func (j *journey) refuse(err error) error {
	if j.content != nil {
		j.content.Close()
	}
	j.event(j.req.Context(), outcome(err), j.waited(), err)
	return err
}

// pass sends a request that costs nothing.
func (j *journey) pass() (*http.Response, error) {
	req := j.req
	if j.again {
		req = req.WithContext(req.Context())
		req.Body = j.content
	}
	j.handed = now()
	resp, err := j.t.base.RoundTrip(req)
	if resp != nil && j.again {
		resp.Request = j.req
	}
	if err == nil && resp != nil && len(j.bill.free) > 0 {
		j.learn(resp)
	}
	return resp, err
}

// run sends the request and learns from the answer. What it has in flight ends
// here unless the caller gets the answer, also if the base panics. After errFar
// the journey goes on as another.
func (j *journey) run() (*http.Response, error) {
	goesOn := false
	defer func() {
		if !goesOn {
			j.end()
		}
	}()
	resp, err := j.send()
	if err != nil || resp == nil {
		goesOn = err == errFar
		return nil, err
	}
	j.learn(resp)
	goesOn = true
	return resp, nil
}

// send hands the request to the base. A base that tells of its connections has
// the grant looked at once more when it is about to write: dialling may have
// taken longer than the grant is good for.
func (j *journey) send() (*http.Response, error) {
	if j.observe != nil {
		j.event(j.req.Context(), Started, j.waited(), nil)
	}
	j.prepare()
	j.handed = now()
	resp, err := j.t.base.RoundTrip(&j.sent)

	failed, traced := j.looked(resp != nil)
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
		j.t.dials.silent(j.req.URL.Host)
	}
	resp.Request = j.req
	j.watch(resp)
	return resp, nil
}

// prepare makes the request that the base gets.
func (j *journey) prepare() {
	ctx := j.req.Context()
	j.line.parent = ctx
	j.trace.GotConn, j.trace.WroteHeaders = j.connected, j.wrote
	j.sent = *j.req.WithContext(httptrace.WithClientTrace(&j.line, &j.trace))
	j.url = *j.req.URL
	j.sent.URL = &j.url
	j.sent.Body = j.content
	if j.content != nil && j.content != http.NoBody && j.req.GetBody == nil {
		j.shield.ReadCloser = j.content
		j.sent.Body = &j.shield
	}
	if j.inFlight {
		// Whoever puts another body around the answer's may never close it.
		j.last.Lock()
		j.unwatch = context.AfterFunc(ctx, j.end)
		j.last.Unlock()
	}
}

// end is called, perhaps more than once, when the answer is over. It ends what
// the request has in flight.
func (j *journey) end() {
	j.last.Lock()
	defer j.last.Unlock()
	if j.over {
		return
	}
	j.over = true
	j.stopWatch()
	j.line.end()
	j.land()
	if j.failed == errFar {
		j.drop()
	}
	if j.unwatch != nil {
		j.unwatch()
	}
}
