package throttle

import (
	"context"
	"io"
	"net/http"
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
