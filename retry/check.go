package retry

import (
	"context"
	"errors"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/hashicorp/go-retryablehttp"

	"github.com/fleetthrottle/throttle"
)

// CheckRetry is a [retryablehttp.CheckRetry]. It repeats
//
//   - a request that was refused, by a 429 or by an answer that a policy has
//     recognised ([throttle.AnswerOf]), whatever its method: an
//     upstream that refuses does not act. An answer of 500 and above may come from
//     half-done work, so it is no refusal in this sense;
//   - a request that never had a connection, whatever its method;
//   - an idempotent request that failed otherwise or was answered with 500 or
//     above, 501 excepted. Idempotent are GET, HEAD, OPTIONS, TRACE, PUT and
//     DELETE, and any request with the field Idempotency-Key or
//     X-Idempotency-Key, even an empty one.
//
// It does not repeat
//
//   - a request that throttle itself did not send: a *[throttle.LimitError], a
//     *[throttle.StoreError] and a *[throttle.ConfigError]. The wait was over
//     or could not fit already;
//   - anything once the context has ended;
//   - a request whose body cannot be had again, because its GetBody is nil, so
//     that nothing is ever repeated with an empty body;
//   - a request that is not idempotent and was redirected: the server that redirected
//     it may have acted on it;
//   - an answer of which a policy says that it is certainly no refusal, or that a
//     part was done all the same ([throttle.VerdictNotRefused], [throttle.VerdictPartly]),
//     whatever its status;
//   - an answer whose Retry-After is for this request alone to wait out, because
//     no policy has closed a budget, and which asks for more than [LongestWait] or
//     than the context allows. The caller gets that answer at once;
//   - permanent errors: too many redirects, a redirect to nowhere, a certificate that
//     is not trusted, an unknown scheme, a field that is not valid.
//
// CheckRetry never returns an error, so the request's own error reaches the caller. A
// client that was not made by [NewClient] does not say which request has failed: then
// the method alone decides.
func CheckRetry(ctx context.Context, resp *http.Response, err error) (bool, error) {
	switch {
	case ctx.Err() != nil:
		return false, nil
	case err != nil:
		return failed(ctx, resp, err), nil
	}
	return answered(ctx, resp), nil
}

// answered reports whether a request that has an answer is sent again.
func answered(ctx context.Context, resp *http.Response) bool {
	// The service has acted on the request, or the wait is too long, or there is no time for it.
	answer := throttle.AnswerOf(resp)
	done := answer.Verdict == throttle.VerdictNotRefused || answer.Verdict == throttle.VerdictPartly
	tooLong := answer.Close <= 0 && throttle.RetryAfter(resp).Close > LongestWait
	if done || tooLong || !canWait(ctx, resp, 0) {
		return false
	}

	refused := refused(resp)
	again, _ := retryablehttp.DefaultRetryPolicy(ctx, resp, nil)
	return (refused || again) && repeatable(resp.Request, refused)
}

// refused reports whether an answer says that the service has not acted on the request.
func refused(resp *http.Response) bool {
	return resp.StatusCode == http.StatusTooManyRequests ||
		throttle.AnswerOf(resp).Verdict == throttle.VerdictRefused && resp.StatusCode < http.StatusInternalServerError
}

// canWait reports whether the deadline of ctx leaves time for the wait that the answer asks for, and for d
// on top of that. If a budget holds the request, its next attempt learns at once that the wait is too long,
// so canWait is true.
func canWait(ctx context.Context, resp *http.Response, d time.Duration) bool {
	deadline, bounded := ctx.Deadline()
	return !bounded || throttle.AnswerOf(resp).Close > 0 || throttle.RetryAfter(resp).Close+d < time.Until(deadline)
}

// repeatable reports whether a request may be sent again after an attempt. notActedOn says that the
// service has not acted on the request; otherwise nobody knows whether it has.
func repeatable(r *http.Request, notActedOn bool) bool {
	if r == nil {
		return false
	}

	// The repeat begins before the redirects, and the server that redirected may have acted.
	for r.Response != nil && r.Response.Request != nil {
		r, notActedOn = r.Response.Request, false
	}

	renewable := r.Body == nil || r.Body == http.NoBody || r.GetBody != nil
	return renewable && (notActedOn || idempotent(r.Method) || keyed(r.Header))
}

// idempotent reports whether a request with the method does no harm if the service acts on it twice.
func idempotent(method string) bool {
	switch method {
	case "", http.MethodGet, http.MethodHead, http.MethodOptions, http.MethodTrace, http.MethodPut, http.MethodDelete:
		return true
	}
	return false
}

// keyed reports whether a request has a key by which the service knows that it comes again.
func keyed(h http.Header) bool {
	_, key := h["Idempotency-Key"]
	_, xkey := h["X-Idempotency-Key"]
	return key || xkey
}

// failed reports whether a request is sent again that has no answer, or an answer that a ResponseHandler
// has refused.
func failed(ctx context.Context, resp *http.Response, err error) bool {
	if neverRetried(err) {
		return false
	}

	// Every error of http.Client is a *url.Error: any other comes from a ResponseHandler.
	attempt, ok := err.(*url.Error)
	if !ok {
		return resp != nil && repeatable(resp.Request, false)
	}
	if resp != nil { // CheckRedirect has stopped the request
		return false
	}

	// The policy of go-retryablehttp knows permanent errors by their texts.
	shown := plain(attempt)
	if again, _ := retryablehttp.DefaultRetryPolicy(ctx, nil, shown); !again || shown.Err == errLocation {
		return false
	}
	if f, ok := attempt.Err.(*failure); ok {
		return f.repeatable
	}

	return idempotent(strings.ToUpper(attempt.Op))
}

// neverRetried reports whether err says that throttle did not send the request, or that the caller's context was
// cancelled.
func neverRetried(err error) bool {
	var store *throttle.StoreError
	var config *throttle.ConfigError
	return errors.Is(err, throttle.ErrLimited) || errors.Is(err, context.Canceled) ||
		errors.As(err, &store) || errors.As(err, &config)
}
