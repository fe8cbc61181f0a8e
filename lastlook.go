package throttle

import (
	"crypto/tls"
	"net/http/httptrace"
)

// connected is the last look: the connection is there, nothing is written yet.
func (r *roundTrip) gotConn(info httptrace.GotConnInfo) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.stopErr != nil || r.ended {
		return
	}
	if !r.connSeen {
		r.connSeen = true
		r.dialTook = now() - r.handedAt
		r.t.dials.add(r.req.URL.Host, r.dialTook, info.Reused)
	}
	if err := r.preWriteCheck(); err != nil {
		if err != errDetach {
			r.report(r.req.Context(), outcomeOf(err), r.waited(), err)
		}
		r.abort(err)
		closeConn(info, r.req.URL.Scheme == "https")
	}
}

// stop keeps the request from being written. Ending its context is not enough:
// HTTP/1 hands a request to the connection before it looks. What it then fails
// on, before the first byte, is a URL that cannot be written.
func (r *roundTrip) abort(err error) {
	r.stopErr = err
	r.sentURL.Opaque = "\x7f"
	r.line.cut(err)
}

// sever closes a connection of HTTP/1, which carries nothing but this request: a base
// that sends a clone of it has a URL of its own. One of HTTP/2 is shared, and there the
// end of the context is enough.
func closeConn(info httptrace.GotConnInfo, secure bool) {
	switch c, ok := info.Conn.(*tls.Conn); {
	case ok && c.ConnectionState().NegotiatedProtocol != "h2":
		_ = c.NetConn().Close()
	case !ok && !secure && info.Conn != nil:
		_ = info.Conn.Close()
	}
}

// depart returns when the request may be written, or errFar if the attempt is to
// be given up.
func (r *roundTrip) preWriteCheck() error {
	ctx, w := r.req.Context(), waitOptions{jitterShare: preWriteShare}
	r.extendDeadline()
	r.lead = r.dialLead() // if it has to connect again
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

// wrote counts a request that left too late in spite of everything.
func (r *roundTrip) wroteHeaders() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.wrote = true
	r.stopWatch()
	if d := r.late(jitterShares); d > 0 && r.stopErr == nil {
		r.report(r.req.Context(), Late, d, nil)
	}
}

// looked ends the last look, and returns what it found.
func (r *roundTrip) preWriteResult(answered bool) (failed error, traced bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.stopWatch()
	if r.stopErr == errDetach && (r.wrote || answered) {
		return errSentAnyway, r.connSeen
	}
	return r.stopErr, r.connSeen
}
