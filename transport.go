package throttle

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net/http"
	"net/http/httptrace"
	"runtime"
	"slices"
	"time"

	"github.com/fleetthrottle/throttle/internal/acquire"
	"github.com/fleetthrottle/throttle/store"
)

// A Transport is an [http.RoundTripper] that holds each request until all its policies have
// room for it, then hands it to its base. It is safe for concurrent use and has nothing to
// close.
//
// Only the near future is booked, usually 350 ms: more where a window is longer than two seconds,
// starts are far apart or the store is far away, and less where shares take turns or costs are
// estimated too high. Requests that have to wait for longer stand in line, by arrival, for the
// whole fleet. The line moves up early when waiters leave, a request turns out to have cost less, a
// limit is raised, or a ban ends. A request may lose its start, because a connection took too long
// or a penalty came. Then it goes before all requests that came later.
//
// A Transport never retries. It belongs inside a retrier, so that every attempt is charged:
// outside, one permit would pay for all attempts. [AnswerOf] tells retriers the policies'
// verdict on a response. Package choice is for requests that several deployments can
// answer.
type Transport struct {
	engine
	base     http.RoundTripper
	policies livePolicies
	dials    dialEstimator
}

// New returns a transport. It reports every mistake in the configuration at
// once, each a *[ConfigError], and sends nothing.
func New(c Config) (*Transport, error) {
	t := &Transport{base: c.Base}
	if err := errors.Join(t.configure(c), t.policies.begin(c.Policies, requests)); err != nil {
		return nil, err
	}
	if t.base == nil {
		t.useDefaultBase()
	}
	return t, nil
}

// idleConnsPerHost is how many idle connections to a host the default base keeps.
const idleConnsPerHost = 256

// useDefaultBase sets the base of a transport whose Config names none: see
// [Config.Base].
func (t *Transport) useDefaultBase() {
	// A program may have replaced http.DefaultTransport by a RoundTripper that nobody can clone.
	standard, ok := http.DefaultTransport.(*http.Transport)
	if !ok {
		t.base = http.DefaultTransport
		return
	}

	// A number that the program has set stays. MaxIdleConns bounds the idle connections to all hosts
	// together, and would close connections that idleConnsPerHost allows.
	base := standard.Clone()
	if base.MaxIdleConnsPerHost == 0 {
		base.MaxIdleConnsPerHost, base.MaxIdleConns = idleConnsPerHost, 0
	}

	t.base = base

	// Nobody closes a Transport, so its idle connections are closed when t is garbage.
	runtime.AddCleanup(t, (*http.Transport).CloseIdleConnections, base)
}

// Must returns t and panics if err is not nil. It is meant for configurations
// written as literals.
func Must(t *Transport, err error) *Transport {
	if err != nil {
		panic(err)
	}
	return t
}

// SetPolicies replaces the policies, at once and for all requests to come.
// Budgets keep their state by policy name and key, so no limit starts afresh.
// Requests that are waiting look at their policies again: if these changed, they
// take a new place. In case of an error nothing changes.
func (t *Transport) SetPolicies(policies []Policy) error {
	if t.store == nil {
		return errNotMade()
	}
	return t.policies.set(policies, requests)
}

// Policies returns a copy of the policies as they are now, as they were given
// to [New] or [Transport.SetPolicies].
func (t *Transport) Policies() []Policy { return slices.Clone(t.policies.Load().given) }

// Explain returns the charges of the request: one for each policy that it matches. It sends
// nothing and asks no store. Charges whose policy cannot price the request are left out.
func (t *Transport) Explain(req *http.Request) []store.Charge {
	b, _ := t.policies.Load().quote(req)
	return b.charges
}

// CloseIdleConnections calls the method of the same name of the base, if the base has one.
// The default base belongs to this transport alone, so connections of other transports
// stay.
func (t *Transport) CloseIdleConnections() {
	if c, ok := t.base.(interface{ CloseIdleConnections() }); ok {
		c.CloseIdleConnections()
	}
}

// Unwrap returns the base.
func (t *Transport) Unwrap() http.RoundTripper { return t.base }

// RoundTrip holds the request until every policy that it matches has room for
// it, sends it, and lets the policies learn from the answer. It does not retry
// and does not change the request.
//
// A request that the Transport stops fails with a *[LimitError], a *[StoreError], a *[ConfigError],
// an *[UnmatchedError] or the context's own error. It has spent nothing, unless the base had
// written it before and was about to write it again. If the base may have written a request
// that the Transport stopped, the error is none of these: a retrier must not send it again.
func (t *Transport) RoundTrip(req *http.Request) (*http.Response, error) {
	if req.URL == nil && t.base != nil {
		return t.base.RoundTrip(req) // the base returns the error; without a base errNotMade follows
	}

	var matchBuf [fewPolicies]int32
	policies := t.policies.Load()
	matched := policies.index.Match(matchBuf[:0], req)
	if len(matched) == 0 {
		if err := t.noticeUnmatched(policies, req); err != nil {
			closeBody(req)
			return nil, err
		}
		return t.base.RoundTrip(req)
	}

	// Each pass is one attempt. A request that no policy holds, because it is free or the policies
	// were replaced, leaves the loop and is sent free.
	r := t.newRoundTrip(req)
	err := r.priceRequest(policies, matched)
	for err == nil && !r.hasNoPolicy() {
		if err = r.acquireUntilSend(); err != nil || r.hasNoPolicy() {
			break
		}

		resp, sendErr := r.sendAndLearn()
		if sendErr != acquire.ErrDetach {
			r.recycle()
			return resp, sendErr
		}

		// The start is far away, and the connection was given back.
		r = r.nextAttempt()
	}

	var resp *http.Response
	if err != nil {
		err = r.refuse(err)
	} else {
		resp, err = r.sendFree()
	}

	r.recycle()
	return resp, err
}

// refuse ends a request that is not sent: it closes the body, tells the observer, and
// returns err. If err is of a policy's function that panicked with http.ErrAbortHandler,
// refuse panics with it again.
func (r *roundTrip) refuse(err error) error {
	if r.reqBody != nil {
		r.reqBody.Close()
	}
	r.reportEnd(r.req.Context(), err)

	// By this panic a handler tells net/http that it aborts, so the panic must not end here as an error.
	if abortsHandler(err) {
		panic(http.ErrAbortHandler)
	}

	return err
}

// checkMatched returns the error of a variant that no policy matches, and tells the observer of it, as RoundTrip
// does for a request. A variant that costs nothing under its policies is matched.
func (r *roundTrip) checkMatched() error {
	var matchBuf [fewPolicies]int32
	policies := r.t.policies.Load()
	if len(policies.index.Match(matchBuf[:0], r.req)) > 0 {
		return nil
	}
	return r.t.noticeUnmatched(policies, r.req)
}

// closeBody closes the body of a request that is not sent.
func closeBody(r *http.Request) {
	if r.Body != nil {
		r.Body.Close()
	}
}

// sendFree sends a request that no policy holds. The policies under which it is free learn from the
// response.
func (r *roundTrip) sendFree() (*http.Response, error) {
	// After an attempt that gave its connection back, only reqBody can still be read.
	req := r.req
	if r.detached {
		req = req.WithContext(req.Context())
		req.Body = r.reqBody
	}

	r.handedAt = now()
	resp, err := r.t.base.RoundTrip(req)
	if resp != nil && r.detached {
		resp.Request = r.req // and not the copy
	}

	if err == nil && resp != nil && len(r.quote.zeroCost) > 0 {
		r.applyResponse(resp)
	}

	return resp, err
}

// sendAndLearn sends the request and applies its response. If it returns a response, the
// attempt goes on until the response is over. If it returns ErrDetach, nextAttempt ends the
// attempt. Otherwise, and if the base panics, sendAndLearn ends the attempt.
func (r *roundTrip) sendAndLearn() (*http.Response, error) {
	// Deferred, so that a base that panics leaves no slots behind.
	goesOn := false
	defer func() {
		if !goesOn {
			r.end()
		}
	}()

	resp, err := r.send()
	if err != nil || resp == nil {
		goesOn = err == acquire.ErrDetach
		return nil, err
	}

	r.applyResponse(resp)
	goesOn = true
	return resp, nil
}

// send hands the request to the base, and returns the base's response with a body that
// ends the attempt. A base that calls the hooks of httptrace has the grant checked again
// when it is about to write, because dialling may have taken longer than the grant is good
// for. If that check stops the request, send returns the check's error.
func (r *roundTrip) send() (*http.Response, error) {
	if r.observe != nil {
		r.ReportStart(r.req.Context(), r.Waited())
	}

	r.prepare()
	r.handedAt = now()
	resp, err := r.t.base.RoundTrip(&r.sent)

	// If the pre-write check stopped the request, the base's error is only a consequence.
	stopped, checked := r.preWriteResult(resp != nil)
	if stopped != nil {
		err = stopped
	}

	// Nobody gets the response of a base that fails, so nobody else would close its body.
	if err != nil || resp == nil {
		if resp != nil && resp.Body != nil {
			resp.Body.Close()
		}
		return nil, err
	}

	// This base calls no hooks, so no request to the host may be handed over early any more.
	if !checked {
		r.dials.markSilent(r.req.URL.Host)
	}

	resp.Request = r.req
	r.wrapBody(resp)
	return resp, nil
}

// prepare makes the request that the base gets.
func (r *roundTrip) prepare() {
	// A copy with its own URL: a RoundTripper must not change the caller's request, and abort changes the URL.
	ctx := r.req.Context()
	r.sentContext.Context, r.sentContext.attempt = ctx, r
	r.sent = *r.req.WithContext(&r.sentContext)
	r.sentURL = *r.req.URL
	r.sent.URL = &r.sentURL
	r.sent.Body = r.reqBody

	// Without GetBody one body serves all attempts, so a stopped attempt must be able to take it back.
	if r.reqBody != nil && r.reqBody != http.NoBody && r.req.GetBody == nil {
		r.revocable = &revocableBody{ReadCloser: r.reqBody}
		r.sent.Body = r.revocable
	}

	// The end of the context frees the slots: a caller that wraps the response's body may never close it. Under
	// the lock, because end may run before AfterFunc returns.
	if r.Concurrent() {
		r.mu.Lock()
		r.stopAfterFunc = context.AfterFunc(ctx, r.end)
		r.mu.Unlock()
	}
}

// wrapBody wraps the response's body, so that the attempt ends when the body is over. Without
// a body the attempt ends now. The body of an upgraded connection must stay an
// io.ReadWriteCloser for its caller, and is over when it is closed.
func (r *roundTrip) wrapBody(resp *http.Response) {
	if resp.Body == nil || resp.Body == http.NoBody {
		r.end()
		return
	}

	if w, ok := resp.Body.(io.ReadWriteCloser); ok {
		b := &upgradedBody{w, r}
		if r.canBeDropped() {
			runtime.AddCleanup(b, (*roundTrip).drop, r)
		}

		resp.Body = b
		return
	}

	if r.canBeDropped() {
		// The base may keep r alive until the body is over. So the body is no field of r, but an object of its own, which
		// the garbage collector finds unused.
		b := &droppableBody{responseBody: responseBody{resp.Body, r}}
		b.dropped = runtime.AddCleanup(b, (*roundTrip).drop, r)
		resp.Body = b
		return
	}

	r.respBody = responseBody{resp.Body, r}
	resp.Body = &r.respBody
}

// canBeDropped reports whether the slots of the request would be lost with a body that the program neither
// reads to its end nor closes: no deadline would give them back.
func (r *roundTrip) canBeDropped() bool {
	_, bounded := r.req.Context().Deadline()
	return r.Concurrent() && !r.Uncounted() && !bounded
}

// drop ends a request whose body the program has dropped, unless the request is over, and tells the
// observer.
func (r *roundTrip) drop() {
	r.mu.Lock()
	over := r.ended
	r.mu.Unlock()
	if over {
		return
	}

	r.end()
	r.reportDropped(r.req.Context())
}

// gotConn is called by the base through package httptrace: the base has a connection, and has written nothing to it yet. It runs
// the pre-write check, and stops a request that may not be written.
//
// The check may wait for seconds, and tells the observer. So it runs without r.mu, and the acquisition
// belongs to the check meanwhile.
func (r *roundTrip) gotConn(info httptrace.GotConnInfo) {
	again, ok := r.beginCheck(info)
	if !ok {
		return
	}

	err := r.preWriteCheck(again)
	ctx, events := r.endCheck(err)

	// A base that sends a clone of the request is stopped only by a closed connection.
	if err != nil {
		closed := closeConn(info, r.req.URL.Scheme == "https")
		r.mu.Lock()
		r.connClosed = closed
		r.mu.Unlock()
	}

	// The observer is told last, because it may take long, or call the Transport.
	for _, e := range events {
		r.t.observe(ctx, e)
	}
}

// beginCheck waits for a pre-write check that still runs, and begins the next. ok is false if the
// request was stopped or is over: then no check begins. again says that the headers were written
// under the present grant, on a different connection. beginCheck also notes how long the first dial
// took.
func (r *roundTrip) beginCheck(info httptrace.GotConnInfo) (again, ok bool) {
	r.mu.Lock()
	defer r.mu.Unlock()

	r.awaitCheck()
	if r.stopErr != nil || r.ended || r.quotedAcquisition == nil {
		r.connClosed = false // the base has a new connection in place of the closed connection
		return false, false
	}

	// Only the first connection tells how long a dial takes: a later one may come after a wait.
	if !r.connSeen {
		r.connSeen = true
		r.dialTook = now() - r.handedAt
		r.dials.add(r.req.URL.Host, r.dialTook, info.Reused)
	}

	// A second connection after the headers were written is a retry of the base.
	r.checking = true
	again, r.wrote = r.wrote, false
	r.baseRetried = r.baseRetried || again

	return again, true
}

// endCheck ends the pre-write check, and stops the request if err, the result of the check, is not
// nil. It returns the events for the observer with their context. If the attempt has ended during
// the check, endCheck gives back everything that the attempt holds.
func (r *roundTrip) endCheck(err error) (context.Context, []Event) {
	r.mu.Lock()
	defer r.mu.Unlock()

	// Whoever waits for the check goes on: see awaitCheck.
	r.checking = false
	if r.checked != nil {
		close(r.checked)
		r.checked = nil
	}

	ctx := r.req.Context()
	var events []Event
	switch {
	// The start shows that budgets which were closed are open. Events without an error share the request's context.
	case err == nil:
		for _, opened := range r.Openings() {
			_, e := r.engine.event(ctx, opened)
			events = append(events, e)
		}

	// The request is refused.
	case err != acquire.ErrDetach && r.observe != nil:
		events = make([]Event, 1)
		ctx, events[0] = r.event(ctx, endOf(err), r.Waited(), err)
	}

	// The attempt has ended during the check, and has left its holdings to the check.
	if r.ended && err == acquire.ErrDetach {
		r.Cancel() // no attempt follows, and nothing was written
		r.closeRewound()
	} else if r.ended {
		r.giveBack()
	}

	if err != nil {
		r.abort(err)
	}

	return ctx, events
}

// awaitCheck waits until no pre-write check runs. The caller holds r.mu, which is free during the wait.
func (r *roundTrip) awaitCheck() {
	for r.checking {
		if r.checked == nil {
			r.checked = make(chan struct{})
		}
		checked := r.checked
		r.mu.Unlock()
		<-checked
		r.mu.Lock()
	}
}

// abort keeps the request from being written, because of err. Ending its context is not
// enough: net/http hands a request to an HTTP/1 connection before it looks at the context.
// So abort replaces the URL by a URL that cannot be written, and the request fails before
// its first byte. The caller holds r.mu.
func (r *roundTrip) abort(err error) {
	r.stopErr = err
	r.sentURL.Opaque = "\x7f"
	r.sentContext.end(err)
}

// closeConn closes the connection of info if it surely speaks HTTP/1, because abort's URL does not
// stop a base that sends a clone of the request. A connection of HTTP/1 carries only this request. A
// connection of HTTP/2 is shared, and there the end of the context stops the request. closeConn
// reports whether it closed the connection, so that nothing of the request can leave on it. secure
// says that the URL is https: a connection that is no *tls.Conn may then be any protocol.
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

// preWriteCheck waits until the request may be written, and returns nil. It returns ErrDetach if the
// base must give the connection back, and a new attempt follows. Any other error refuses the request.
// again says that the headers were written under the present grant, on a different connection.
func (r *roundTrip) preWriteCheck(again bool) error {
	ctx := r.req.Context()
	var w acquire.Wait

	// A long dial does not count against MaxWait, so the store may be asked once more.
	r.ExtendDeadline()
	r.Lead = r.dialLead() // for an attempt that must connect again

	if again {
		// The base tries again on a new connection. The request that it wrote on the first
		// connection may have arrived, so its grant is spent, and Acquire books a new start.
		r.Spend()

		// The upstream may have this variant, so no other variant may be sent.
		r.Variant = false
		return r.Acquire(ctx, w)
	}

	// After any retry of the base the upstream may have the request, even if nothing was written under this grant. Then no
	// new attempt may follow, so the wait does not detach.
	w.Detaches = !r.baseRetried
	w.DetachAt = now() + r.connectionHold()

	// Time has passed since the grant: Acquire checks the start once more.
	r.Recheck()

	err := r.Acquire(ctx, w)
	if r.Variant && err != nil && ctx.Err() == nil {
		err = acquire.ErrDetach // a different variant may have room
	}

	if err != acquire.ErrDetach {
		return err
	}

	// A new attempt needs the body once more.
	if r.rewindBody() {
		return err
	}

	// The body cannot be sent again, so the request keeps its connection, and its variant, and waits here.
	w.Detaches, r.Variant = false, false
	return r.Acquire(ctx, w)
}

// connectionHold returns for how long the request may hold a connection while it waits. A variant
// holds it for MinHorizon at most, because a different variant may have room sooner.
func (r *roundTrip) connectionHold() time.Duration {
	if r.Variant {
		return store.MinHorizon
	}
	return maxConnectionHold
}

// wroteHeaders is called by the base through package httptrace: the base has written the headers, so the start is used. It
// reports a request that left too late in spite of the pre-write check.
func (r *roundTrip) wroteHeaders() {
	if ctx, e, late := r.noteWritten(); late {
		r.t.observe(ctx, e)
	}
}

// noteWritten notes that the headers were written, which uses the start, unless gotConn has closed
// the connection. If the request left too late and there is an observer, late is true, and e is the
// event for the observer.
func (r *roundTrip) noteWritten() (ctx context.Context, e Event, late bool) {
	r.mu.Lock()
	defer r.mu.Unlock()

	if r.connClosed {
		return nil, e, false // the headers are in a buffer only: net/http notices the closed connection when it flushes
	}

	r.wrote = true

	// During a check the headers went to a connection that no longer counts. Without the acquisition the attempt is over, and
	// its hook was called late.
	if r.checking || r.quotedAcquisition == nil {
		return nil, e, false
	}

	// A start that is used needs no watch.
	r.StopWatch()
	if d := r.Late(); d > 0 && r.stopErr == nil && r.observe != nil {
		ctx, e = r.event(r.req.Context(), acquire.EventLate, d, nil)
		return ctx, e, true
	}

	return nil, e, false
}

// preWriteResult is called when the base has returned, and ends the watch over the start.
// answered says that the base returned a response. stopped is why the pre-write check stopped
// the request, or nil if the check did not stop it. It is errSentAnyway if the request may have been
// written all the same. checked says that the base called the check at all.
func (r *roundTrip) preWriteResult(answered bool) (stopped error, checked bool) {
	r.mu.Lock()
	defer r.mu.Unlock()

	// A check still runs if the base has not waited for its hook. A response needs the acquisition, so wait until the
	// check is over. Without a response the check gives back the holdings and ends the watch: see endCheck.
	if answered {
		r.awaitCheck()
	}
	if !r.checking {
		r.StopWatch()
	}

	// The request may have reached the upstream, so it must not be sent again. The error of a caller's context that has ended
	// stays: no retrier repeats such a request.
	r.arrived = r.stopErr != nil && (r.wrote || answered)
	if r.arrived && (r.req.Context().Err() == nil || saysUnsent(r.stopErr)) {
		r.stopErr = errSentAnyway
	}
	return r.stopErr, r.connSeen
}

// saysUnsent reports whether a retrier takes err, which stopped a request, for the error of a request that was not sent.
func saysUnsent(err error) bool {
	var limit *LimitError
	var store *StoreError
	return err == acquire.ErrDetach || errors.As(err, &limit) || errors.As(err, &store)
}

// maxConnectionHold is for how long a waiting request holds a connection. A server
// closes an idle one, some after five seconds, and a ban lasts for minutes. A
// request that has to wait for longer waits without a connection.
const maxConnectionHold = 4 * time.Second

// rewindBody sets rewound to the request's body for the next attempt. It returns false if the body
// cannot be sent again: GetBody fails, or there is no GetBody and the base has touched the body.
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
		// GetBody makes a new body for each attempt.
		body, err := r.req.GetBody()
		if err != nil {
			return false
		}
		r.rewound = body
	}

	return true
}

// end ends the attempt: the response is over, or there is none. It frees the slots, and tells
// the observer if the store fails. Only the first call does something. During a pre-write check
// end does not wait: the check gives back everything that the attempt holds.
func (r *roundTrip) end() {
	if unbooked, err := r.noteEnd(); err != nil {
		r.t.reportFailure(context.WithoutCancel(r.req.Context()), unbooked, 0, err)
	}
}

// noteEnd is end without the observer. Its error is the error of bookArrival, and unbooked is the
// charge that could not be booked.
func (r *roundTrip) noteEnd() (unbooked *store.Charge, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()

	if r.ended {
		return nil, nil
	}

	r.ended = true

	// A caller's context that has ended ends sentContext itself, with the caller's own error.
	if r.req.Context().Err() == nil {
		r.sentContext.end(nil)
	}

	if r.stopAfterFunc != nil {
		r.stopAfterFunc()
	}

	// A check that still runs gives back the attempt's holdings: see endCheck. Without the acquisition the attempt
	// holds nothing.
	if r.checking || r.quotedAcquisition == nil {
		return nil, nil
	}

	// A next attempt would have taken the acquisition over. The attempt still has it, so no attempt follows.
	r.giveBack()
	if r.stopErr == acquire.ErrDetach || r.arrived {
		return r.abandon()
	}

	return nil, nil
}

// giveBack ends the watch and frees the slots of an attempt that is over. The start stays booked: it was used.
func (r *roundTrip) giveBack() {
	r.StopWatch()
	if r.Concurrent() {
		r.ReleaseSlots()
	}
}

// nextAttempt ends this attempt, whose connection was given back, and returns the attempt
// that follows. The next attempt takes over the acquisition, but nothing that the base has
// seen.
func (r *roundTrip) nextAttempt() *roundTrip {
	// Without the acquisition this attempt gives nothing back when it ends: the next attempt owns it.
	r.mu.Lock()
	next := &roundTrip{
		quotedAcquisition: r.quotedAcquisition,
		t:                 r.t, req: r.req, reqBody: r.rewound, detached: true, dials: r.dials,
	}
	r.quotedAcquisition, r.rewound = nil, nil
	r.mu.Unlock()

	r.end()
	return next
}

// abandon is for an attempt that was stopped and that has no next attempt, because the base
// went on or panicked. The request may have arrived. So its start stays booked or, if the caller
// has no start, bookArrival books one, whose results abandon returns. It also closes the body for
// the next attempt.
func (r *roundTrip) abandon() (unbooked *store.Charge, err error) {
	if !r.HasStart() {
		r.Cancel()
		unbooked, err = r.bookArrival()
	}
	r.closeRewound()
	return unbooked, err
}

// closeRewound closes the body of an attempt that will not follow.
func (r *roundTrip) closeRewound() {
	if r.rewound != nil {
		r.rewound.Close()
		r.rewound = nil
	}
}

// bookArrival books a start, however far away, for a request that may have arrived. It
// takes no slots, because the request is not in flight any more. If the store fails, unbooked
// is the first of the charges that could not be booked.
func (r *roundTrip) bookArrival() (unbooked *store.Charge, err error) {
	b := store.Booking{Charges: slices.DeleteFunc(slices.Clone(r.Booking.Charges), countsSlot), MaxWait: store.AnyWait}
	if len(b.Charges) == 0 {
		return nil, nil
	}

	ctx, cancel := r.reportContext(acquire.ReportWait)
	defer cancel()
	_, err = r.store.Book(ctx, &b)
	return &b.Charges[0], err
}

// countsSlot reports whether a charge takes a slot.
func countsSlot(c store.Charge) bool { return c.Limit.Kind() == store.KindConcurrency }

// errSentAnyway is the error of a request that the pre-write check stopped, but that may
// have arrived: it must not be sent again.
var errSentAnyway = errors.New("throttle: the request may have been written though it was stopped")
