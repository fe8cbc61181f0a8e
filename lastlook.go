package throttle

import (
	"crypto/tls"
	"net/http/httptrace"
)

// connected is the last look: the connection is there, nothing is written yet.
func (j *journey) connected(info httptrace.GotConnInfo) {
	j.last.Lock()
	defer j.last.Unlock()
	if j.failed != nil || j.over {
		j.severed = false // this is another connection
		return
	}
	if !j.traced {
		j.traced = true
		j.dialled = now() - j.handed
		j.t.dials.took(j.req.URL.Host, j.dialled, info.Reused)
	}
	if err := j.depart(); err != nil {
		if err != errFar {
			j.event(j.req.Context(), outcome(err), j.waited(), err)
		}
		j.stop(err)
		j.severed = sever(info, j.req.URL.Scheme == "https")
	}
}

// stop keeps the request from being written. Ending its context is not enough:
// HTTP/1 hands a request to the connection before it looks. What it then fails
// on, before the first byte, is a URL that cannot be written.
func (j *journey) stop(err error) {
	j.failed = err
	j.url.Opaque = "\x7f"
	j.line.cut(err)
}

// sever closes a connection of HTTP/1, which carries nothing but this request: a base
// that sends a clone of it has a URL of its own. One of HTTP/2 is shared, and there the
// end of the context is enough. It reports whether it closed the connection: then
// nothing of the request can leave on it any more.
func sever(info httptrace.GotConnInfo, secure bool) bool {
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

// depart returns when the request may be written, or errFar if the attempt is to
// be given up.
func (j *journey) depart() error {
	ctx, w := j.req.Context(), waiting{parts: lastLook}
	j.excuse()
	j.lead = j.early() // if it has to connect again
	if j.written {
		// The base tries again on another connection. What it wrote on the
		// first may have arrived, so that grant is spent.
		j.written, j.retried = false, true
		j.land()
		j.forget()
		return j.take(ctx, w)
	}
	w.inHand, w.until = !j.retried, now()+handMost
	err := j.await(ctx, w)
	if err == errFar && !j.regain() {
		w.inHand = false
		err = j.await(ctx, w)
	}
	return err
}

// wrote counts a request that left too late in spite of everything.
func (j *journey) wrote() {
	j.last.Lock()
	defer j.last.Unlock()
	if j.severed {
		return // into a buffer that goes nowhere: HTTP/1 says so before it flushes
	}
	j.written = true
	j.stopWatch()
	if d := j.late(sevenths); d > 0 && j.failed == nil {
		j.event(j.req.Context(), Late, d, nil)
	}
}

// looked ends the last look, and returns what it found.
func (j *journey) looked(answered bool) (failed error, traced bool) {
	j.last.Lock()
	defer j.last.Unlock()
	j.stopWatch()
	if j.failed == errFar && (j.written || answered) {
		return errWentOn, j.traced
	}
	return j.failed, j.traced
}
