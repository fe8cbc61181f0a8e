package throttle

import (
	"context"
	"crypto/tls"
	"io"
	"net/http"
	"net/http/httptrace"
	"slices"
	"time"
)

// send hands the request to the base. A base that calls the hooks of httptrace has
// the grant checked again when it is about to write: dialling may have taken longer
// than the grant is good for.
func (r *roundTrip) send() (*http.Response, error) {
	if r.observe != nil {
		r.reportStart(r.req.Context(), r.waited())
	}
	r.prepare()
	r.handedAt = now()
	resp, err := r.t.base.RoundTrip(&r.sent)

	stopped, checked := r.preWriteResult(resp != nil)
	if stopped != nil {
		err = stopped
	}
	if err != nil || resp == nil {
		if resp != nil && resp.Body != nil {
			resp.Body.Close()
		}
		return nil, err
	}
	if !checked {
		r.dials.markSilent(r.req.URL.Host)
	}
	resp.Request = r.req
	r.wrapBody(resp)
	return resp, nil
}

// prepare makes the request that the base gets.
func (r *roundTrip) prepare() {
	ctx := r.req.Context()
	r.sentContext.Context, r.sentContext.hooks = ctx, r
	r.sent = *r.req.WithContext(&r.sentContext)
	r.sentURL = *r.req.URL
	r.sent.URL = &r.sentURL
	r.sent.Body = r.reqBody
	if r.reqBody != nil && r.reqBody != http.NoBody && r.req.GetBody == nil {
		r.revocable.ReadCloser = r.reqBody
		r.sent.Body = &r.revocable
	}
	if r.concurrent {
		// A caller that wraps the response's body may never close it.
		r.mu.Lock()
		r.stopAfterFunc = context.AfterFunc(ctx, r.end)
		r.mu.Unlock()
	}
}

// wrapBody wraps the response's body, so that its end ends the attempt. The body of
// an upgraded connection stays an io.ReadWriteCloser and is over when it is closed.
func (r *roundTrip) wrapBody(resp *http.Response) {
	if resp.Body == nil || resp.Body == http.NoBody {
		r.end()
		return
	}
	if w, ok := resp.Body.(io.ReadWriteCloser); ok {
		resp.Body = &upgradedBody{w, r}
		return
	}
	r.respBody = responseBody{resp.Body, r}
	resp.Body = &r.respBody
}

// gotConn implements hooks: the base has a connection, and has written nothing to it yet. It runs
// the pre-write check, and stops a request that may not be written.
func (r *roundTrip) gotConn(info httptrace.GotConnInfo) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.stopErr != nil || r.ended {
		r.connClosed = false // the base has got another connection than the one that was closed
		return
	}
	if !r.connSeen {
		r.connSeen = true
		r.dialTook = now() - r.handedAt
		r.dials.add(r.req.URL.Host, r.dialTook, info.Reused)
	}
	if err := r.preWriteCheck(); err != nil {
		if err != errDetach {
			r.report(r.req.Context(), outcomeOf(err), r.waited(), err)
		}
		r.abort(err)
		r.connClosed = closeConn(info, r.req.URL.Scheme == "https")
		return
	}
	r.noticeOpen(r.req.Context())
}

// abort keeps the request from being written, because of err. Ending its context is not enough:
// net/http hands a request to an HTTP/1 connection before it looks at the context. So abort
// makes the URL one that cannot be written, and the request fails before its first
// byte.
func (r *roundTrip) abort(err error) {
	r.stopErr = err
	r.sentURL.Opaque = "\x7f"
	r.sentContext.end(err)
}

// closeConn closes a connection of HTTP/1, because abort's URL does not stop a base that sends a
// clone of the request. Such a connection carries only this request. A connection of HTTP/2 is
// shared, and there the end of the context stops the request. closeConn reports whether it closed
// the connection: then nothing of the request can leave on it. secure says that the URL is https.
func closeConn(info httptrace.GotConnInfo, secure bool) bool {
	switch c, ok := info.Conn.(*tls.Conn); {
	case ok && c.ConnectionState().NegotiatedProtocol != "h2":
		_ = c.NetConn().Close()
	case !ok && !secure && info.Conn != nil:
		_ = info.Conn.Close()
	default:
		return false
	}
	return true
}

// preWriteCheck returns nil when the request may be written. It returns errDetach if
// the connection is to be given back and another attempt made later.
func (r *roundTrip) preWriteCheck() error {
	ctx, w := r.req.Context(), waitOptions{}
	r.extendDeadline()
	r.lead = r.dialLead() // for an attempt that must connect again
	if r.wrote {
		// The base tries again on another connection. The request that it wrote on the
		// first connection may have arrived, so the grant of that request is spent.
		r.wrote, r.baseRetried = false, true
		r.releaseSlots()
		r.forget()
		r.variant = false
		return r.acquire(ctx, w)
	}
	w.withConnection, w.connectionUntil = !r.baseRetried, now()+r.connectionHold()
	r.recheck()
	err := r.acquire(ctx, w)
	if r.variant && err != nil && ctx.Err() == nil {
		err = errDetach // another variant may have room
	}
	if err == errDetach && !r.rewindBody() {
		w.withConnection, r.variant = false, false
		err = r.acquire(ctx, w)
	}
	return err
}

// connectionHold returns for how long the request may hold a connection while it waits. A request
// that has other variants waits for no longer than it waits for a start.
func (r *roundTrip) connectionHold() time.Duration {
	if r.variant {
		return leastHorizon
	}
	return maxConnectionHold
}

// wroteHeaders implements hooks: the base has written the headers, so the start is used. It
// reports a request that left too late in spite of the pre-write check.
func (r *roundTrip) wroteHeaders() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.connClosed {
		return // the headers are in a buffer only: net/http notices the closed connection when it flushes
	}
	r.wrote = true
	r.stopWatch()
	if d := r.late(); d > 0 && r.stopErr == nil {
		r.report(r.req.Context(), Late, d, nil)
	}
}

// preWriteResult returns why the pre-write check stopped the request, nil if the check did
// not, and whether the base called the check at all. answered says that the base returned a
// response. The base has returned, so no check runs any more.
func (r *roundTrip) preWriteResult(answered bool) (stopped error, checked bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.stopWatch()
	if r.stopErr == errDetach && (r.wrote || answered) {
		return errSentAnyway, r.connSeen
	}
	return r.stopErr, r.connSeen
}

// maxConnectionHold is for how long a waiting request holds a connection. A server
// closes an idle one, some after five seconds, and a ban lasts for minutes. A
// request that has to wait for longer waits without a connection.
const maxConnectionHold = 4 * time.Second

// rewindBody sets rewound to the request's body for another attempt, and reports whether there is
// one: there is none if the base has touched the body of a request without GetBody.
func (r *roundTrip) rewindBody() bool {
	switch {
	case r.reqBody == nil || r.reqBody == http.NoBody:
		r.rewound = r.reqBody
	case r.req.GetBody == nil:
		if !r.revocable.revoke() {
			return false
		}
		r.rewound = r.reqBody
	default:
		body, err := r.req.GetBody()
		if err != nil {
			return false
		}
		r.rewound = body
	}
	return true
}

// end ends the attempt: the response is over, or there is none. It frees the slots.
// It may be called more than once.
func (r *roundTrip) end() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.ended {
		return
	}
	r.ended = true
	r.stopWatch()
	if r.req.Context().Err() == nil {
		// Otherwise the end of the caller's context ends sentContext, with the caller's own error.
		r.sentContext.end(nil)
	}
	if r.concurrent {
		r.releaseSlots()
	}
	if r.stopErr == errDetach {
		r.abandon()
	}
	if r.stopAfterFunc != nil {
		r.stopAfterFunc()
	}
}

// nextAttempt ends this attempt, whose connection was given back, and returns the attempt that
// follows. The next attempt takes over the acquisition, but nothing that the base has seen.
func (r *roundTrip) nextAttempt() *roundTrip {
	r.mu.Lock()
	next := &roundTrip{
		quotedAcquisition: quotedAcquisition{acquisition: r.acquisition, policies: r.policies, quote: r.quote},
		t:                 r.t, req: r.req, reqBody: r.rewound, detached: true, dials: r.dials, dialTook: r.dialTook,
	}
	r.acquisition, r.rewound = acquisition{}, nil
	r.mu.Unlock()
	r.end()
	return next
}

// abandon is for an attempt that errDetach stopped, and that no other attempt follows, because
// the base went on or panicked. The request may have arrived: its start stays booked or, if the
// caller stood in line, a start is booked for the request now.
func (r *roundTrip) abandon() {
	if r.state == inLine || r.state == inSlotLine {
		r.cancel()
		r.bookArrival()
	}
	if r.rewound != nil {
		r.rewound.Close()
		r.rewound = nil
	}
}

// bookArrival books a start, however far away, for a request that may have arrived. It takes no
// slots, because the request is not in flight any more.
func (r *roundTrip) bookArrival() {
	b := Booking{Charges: slices.DeleteFunc(slices.Clone(r.booking.Charges), countsSlot), MaxWait: AnyWait}
	if len(b.Charges) == 0 {
		return
	}
	ctx, cancel := r.reportContext(reportWait)
	defer cancel()
	if _, err := r.store.Book(ctx, &b); err != nil {
		r.reportFailure(ctx, &b.Charges[0], 0, err)
	}
}
