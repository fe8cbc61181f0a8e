package throttle

import (
	"net/http"

	"github.com/fleetthrottle/throttle/internal/acquire"
)

// RoundTrip holds the request until every policy that it matches has room for
// it, sends it, and lets the policies learn from the answer. It does not retry
// and does not change the request.
//
// A request that is not sent fails with a *[LimitError], a *[StoreError], an *[UnmatchedError] or the
// context's own error, and has spent nothing.
func (t *Transport) RoundTrip(req *http.Request) (*http.Response, error) {
	if req.URL == nil {
		return t.base.RoundTrip(req) // which says what is wrong with it
	}
	var matchBuf [fewPolicies]int32
	policies := t.policies.Load()
	matched := policies.index.Match(matchBuf[:0], req)
	if len(matched) == 0 {
		if err := t.noticeUnmatched(req); err != nil {
			closeBody(req)
			return nil, err
		}
		return t.base.RoundTrip(req)
	}

	r := t.newRoundTrip(req, len(matched))
	err := r.priceRequest(policies, matched) // which budgets, which costs
	for err == nil && !r.hasNoPolicy() {
		if err = r.acquireUntilSend(); err != nil || r.hasNoPolicy() { // book, wait, revalidate
			break
		}
		resp, failed := r.sendAndLearn() // checks once more before the first byte
		if failed != acquire.ErrDetach {
			return resp, failed
		}
		r = r.nextAttempt() // the start is far away: the connection was given back
	}
	if err != nil {
		return nil, r.refuse(err)
	}
	return r.sendFree()
}

// refuse ends a request that is not sent, and returns err. If a policy's function
// aborted its HTTP handler the panic goes on.
func (r *roundTrip) refuse(err error) error {
	if r.reqBody != nil {
		r.reqBody.Close()
	}
	r.reportEnd(r.req.Context(), err)
	if abortsHandler(err) {
		panic(http.ErrAbortHandler)
	}
	return err
}

// checkMatched notices a variant of a [Choice] that no policy matches, as RoundTrip notices a request. A variant whose policies
// all cost nothing is matched.
func (r *roundTrip) checkMatched() error {
	var matchBuf [fewPolicies]int32
	if len(r.t.policies.Load().index.Match(matchBuf[:0], r.req)) > 0 {
		return nil
	}
	return r.t.noticeUnmatched(r.req)
}

// closeBody closes the body of a request that is not sent.
func closeBody(r *http.Request) {
	if r.Body != nil {
		r.Body.Close()
	}
}

// sendFree sends a request that costs nothing.
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

// sendAndLearn sends the request and applies its response. The attempt ends here, also
// if the base panics, with two exceptions: if the caller gets the response, the attempt
// ends with it, and after ErrDetach another attempt follows.
func (r *roundTrip) sendAndLearn() (*http.Response, error) {
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
