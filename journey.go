package throttle

import (
	"context"
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
	rules []*rule // one for each charge of the booking

	handed time.Time // when the base got the request
	abort  context.CancelCauseFunc
	url    url.URL // of the request as it is sent; see stop

	// The base calls the hooks of a trace from goroutines of its own.
	last    sync.Mutex
	written bool  // the headers of the grant's request have left
	traced  bool  // the base told of a connection
	failed  error // why the last look stopped the request

	fewCharges [2]Charge
	fewRules   [2]*rule
}

// begin starts a request's journey.
func (t *Transport) begin(req *http.Request) *journey {
	j := &journey{t: t, req: req}
	j.store, j.lag, j.observe, j.grant.Held = t.store, &t.lag, t.observe, -1
	j.maxWait = maxWait(req.Context(), t.maxWait)
	return j
}

// match finds the budgets that the request has to pay.
func (j *journey) match() (err error) {
	j.table = j.t.table.Load()
	j.booking.Charges, j.rules, err = j.table.match(j.fewCharges[:0], j.fewRules[:0], j.req)
	if err != nil {
		return err
	}
	return payable(j.booking.Charges)
}

// wait holds the request until it may be handed to the base: at its start, or
// a little before if a connection is likely to be dialled first.
func (j *journey) wait() error {
	ctx := j.req.Context()
	w := waiting{j.t.dials.usual(j.req.URL.Host), handOn, j.table.replaced}
	err := j.take(ctx, w)
	for err == errReplaced {
		if err = j.rematch(); err != nil || len(j.rules) == 0 {
			return err
		}
		if w.replaced = j.table.replaced; j.grant.OK {
			err = j.await(ctx, w)
		} else {
			err = j.take(ctx, w)
		}
	}
	return err
}

// rematch looks at the policies again, because they were replaced. A request
// that they treat as before keeps its place; any other gives it back.
func (j *journey) rematch() error {
	old := j.booking
	old.Charges = slices.Clone(old.Charges)
	err := j.match()
	if err == nil && slices.EqualFunc(old.Charges, j.booking.Charges, sameCharge) {
		return nil
	}
	j.store.Cancel(&old, j.grant)
	j.grant = Grant{Held: -1}
	return err
}

// sameCharge reports whether a place booked for a is as good as one for b.
func sameCharge(a, b Charge) bool {
	return a.Budget == b.Budget && a.Cost == b.Cost && a.Jitter == b.Jitter && a.Shadow == b.Shadow &&
		a.Limit.String() == b.Limit.String()
}

// refuse ends a journey on which nothing was sent.
func (j *journey) refuse(err error) error {
	if j.req.Body != nil {
		j.req.Body.Close()
	}
	j.event(j.req.Context(), outcome(err), j.waited(), err)
	return err
}

// send hands the request to the base. A base that tells of its connections has
// the grant looked at once more when it is about to write: dialling may have
// taken longer than the grant is good for.
func (j *journey) send() (*http.Response, error) {
	ctx, abort := context.WithCancelCause(j.req.Context())
	j.abort = abort
	j.event(ctx, Started, j.waited(), nil)
	traced := httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{
		GotConn:      j.connected,
		WroteHeaders: j.wrote,
	})
	sent := j.req.WithContext(traced)
	j.url = *j.req.URL
	sent.URL = &j.url
	j.handed = time.Now()
	resp, err := j.t.base.RoundTrip(sent)

	j.last.Lock()
	defer j.last.Unlock()
	if j.failed != nil {
		err = j.failed
	}
	if err != nil || resp == nil {
		if resp != nil && resp.Body != nil {
			resp.Body.Close()
		}
		abort(nil)
		return nil, err
	}
	if !j.traced {
		j.t.dials.silent(j.req.URL.Host)
	}
	resp.Request = j.req
	resp.Body = release(resp, func() { abort(nil) })
	return resp, nil
}

// connected is the last look: the connection is there, nothing is written yet.
func (j *journey) connected(httptrace.GotConnInfo) {
	j.last.Lock()
	defer j.last.Unlock()
	if j.failed != nil {
		return
	}
	if !j.traced {
		j.traced = true
		j.t.dials.took(j.req.URL.Host, time.Since(j.handed))
	}
	if err := j.depart(); err != nil {
		j.event(j.req.Context(), outcome(err), j.waited(), err)
		j.stop(err)
	}
}

// stop keeps the request from being written. Ending its context is not enough:
// HTTP/1 hands a request to the connection before it looks. What it then fails
// on, before the first byte, is a URL that cannot be written.
func (j *journey) stop(err error) {
	j.failed = err
	j.url.Opaque = "\x7f"
	j.abort(err)
}

// depart returns when the request may be written.
func (j *journey) depart() error {
	ctx, w := j.req.Context(), waiting{parts: lastLook}
	if j.written {
		// The base tries again on another connection. What it wrote on the
		// first may have arrived, so that grant is spent.
		j.written, j.grant.OK = false, false
		return j.take(ctx, w)
	}
	return j.await(ctx, w)
}

// wrote counts a request that left too late in spite of everything.
func (j *journey) wrote() {
	j.last.Lock()
	defer j.last.Unlock()
	j.written = true
	if d := j.late(sevenths); d > 0 && j.failed == nil {
		j.event(j.req.Context(), Late, d, nil)
	}
}
