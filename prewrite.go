package throttle

import (
	"crypto/tls"
	"net/http/httptrace"
)

// gotConn runs the pre-write check: there is a connection, and nothing is written to
// it yet.
func (r *roundTrip) gotConn(info httptrace.GotConnInfo) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.stopErr != nil || r.ended {
		r.connClosed = false // this is another connection
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

// abort keeps the request from being written. Ending its context is not enough:
// HTTP/1 hands a request to the connection before it looks at the context. So the
// URL becomes one that cannot be written, and the request fails before its first
// byte.
func (r *roundTrip) abort(err error) {
	r.stopErr = err
	r.sentURL.Opaque = "\x7f"
	r.sentContext.end(err)
}

// closeConn closes a connection of HTTP/1, which carries only this request: a base
// that sends a clone of the request has a URL of its own. A connection of HTTP/2 is
// shared, and there the end of the context is enough. It reports whether it closed
// the connection: then nothing of the request can leave on it.
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
		// The base tries again on another connection. What it wrote on the
		// first may have arrived, so that grant is spent.
		r.wrote, r.baseRetried = false, true
		r.releaseSlots()
		r.forget()
		return r.acquire(ctx, w)
	}
	w.withConnection, w.connectionUntil = !r.baseRetried, now()+maxConnectionHold
	err := r.await(ctx, w)
	if err == errDetach && !r.rewindBody() {
		w.withConnection = false
		err = r.await(ctx, w)
	}
	return err
}

// wroteHeaders reports a request that left too late in spite of the pre-write check.
func (r *roundTrip) wroteHeaders() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.connClosed {
		return // into a buffer that goes nowhere: HTTP/1 notices before it flushes
	}
	r.wrote = true
	r.stopWatch()
	if d := r.late(); d > 0 && r.stopErr == nil {
		r.report(r.req.Context(), Late, d, nil)
	}
}

// preWriteResult returns why the pre-write check stopped the request, nil if it did
// not, and whether the base called it at all. No check runs after it.
func (r *roundTrip) preWriteResult(answered bool) (stopped error, checked bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.stopWatch()
	if r.stopErr == errDetach && (r.wrote || answered) {
		return errSentAnyway, r.connSeen
	}
	return r.stopErr, r.connSeen
}
