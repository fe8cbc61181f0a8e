package retry

import (
	"context"
	"errors"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"time"

	"github.com/hashicorp/go-retryablehttp"

	"github.com/fleetthrottle/throttle"
)

// The defaults of [NewClient]. Every one is a field of the client and may be
// changed before its first use.
const (
	DefaultRetryMax     = 4                // repeats, so five requests at the most
	DefaultRetryWaitMin = time.Second      // see [Backoff]
	DefaultRetryWaitMax = 30 * time.Second // see [Backoff]
)

// NewClient returns a client whose every attempt passes through t and is charged. t is a
// [throttle.Transport], a choice.Choice, where the next attempt takes a different variant,
// or an http.RoundTripper around one of these. The client decides by [CheckRetry] and waits
// by [Backoff]. It logs nothing.
//
// The client does not begin a wait of its own for which the context leaves too little time:
// less than the answer asks for and RetryWaitMin. In that case the caller gets the answer, or
// the error, at once. Where a policy has closed the budget there is no such wait: the repeat
// asks the budget, and if the wait does not fit, the caller gets its *[throttle.LimitError]
// and the answer is dropped.
//
// When the client gives up, the caller gets the result of [http.Client]: the last answer
// with its body unread, or the last error, in which the URL is cut down to its host,
// because tokens stand in paths and queries. It never gets both. A custom ErrorHandler that
// passes the last answer on passes on a body that is closed a moment after its first read.
//
// The client does not close idle connections: t may be shared, and one request that failed
// must not cost other requests their connections. Call t.CloseIdleConnections.
//
// Do not put a second Transport into the client's HTTPClient. It would replace the layer
// that keeps connections, and that tells CheckRetry which failed requests may be repeated.
func NewClient(t http.RoundTripper) *retryablehttp.Client {
	c := &retryablehttp.Client{
		HTTPClient:   &http.Client{Transport: attempts{t}},
		RetryMax:     DefaultRetryMax,
		RetryWaitMin: DefaultRetryWaitMin,
		RetryWaitMax: DefaultRetryWaitMax,
		Backoff:      Backoff,
		ErrorHandler: giveUp,
	}

	// The fields are read at each attempt, because the program may change them before the first.
	c.CheckRetry = func(ctx context.Context, resp *http.Response, err error) (bool, error) {
		again, err := CheckRetry(ctx, resp, err)

		// If the deadline leaves no time for a wait of the client's own, this answer, or error, is the caller's.
		again = again && canWait(ctx, resp, ceiling(c.RetryWaitMin, c.RetryWaitMax, 0))

		// The client reads the body of an answer that is not the last, to keep its connection.
		if again && resp != nil {
			spend(ctx, resp)
		}

		return again, err
	}

	return c
}

// attempts is the transport below the client. The errors that it returns tell CheckRetry
// whether the request of a failed attempt may be repeated. It has no CloseIdleConnections,
// which go-retryablehttp calls whenever a request has failed for good.
type attempts struct{ throttle http.RoundTripper }

// RoundTrip implements http.RoundTripper. The error of an attempt is a *failure. Without a throttle it is a *[throttle.ConfigError].
func (a attempts) RoundTrip(r *http.Request) (*http.Response, error) {
	if a.throttle == nil {
		if r.Body != nil {
			r.Body.Close()
		}
		return nil, &throttle.ConfigError{Field: "retry.NewClient", Err: errors.New("t is nil: give it the *throttle.Transport")}
	}

	resp, err := a.throttle.RoundTrip(r)
	if err != nil {
		return nil, &failure{reason(err), repeatable(r, unsent(err))}
	}
	return resp, nil
}

// Unwrap returns the throttle.
func (a attempts) Unwrap() http.RoundTripper { return a.throttle }

// unsent reports whether a request failed before there was a connection.
func unsent(err error) bool {
	var failed *net.OpError
	return errors.As(err, &failed) && (failed.Op == "dial" || failed.Op == "proxyconnect")
}

// LongestWait is the longest Retry-After that a caller sleeps through by
// itself. It does not bound the wait for a budget that a penalty has closed.
const LongestWait = 5 * time.Minute

// Backoff is a [retryablehttp.Backoff]. After an answer by which a policy has closed a
// budget the next attempt waits in that budget, with the whole fleet, as long as its
// context and MaxWait allow, and is refused at once if that is not long enough. But a
// refusal may name a moment while the upstream is overloaded for seconds. So the next
// attempt comes no earlier than after a back-off: a random time from half of shortest to
// shortest at first, doubled after each further attempt, up to longest. If the back-off is
// longer than the penalty, Backoff returns the back-off, and otherwise 0.
//
// After every other answer Backoff returns the time that the answer asks for, as
// [throttle.RetryAfter] reads it and at most [LongestWait], plus a random time: up to
// shortest at first, doubled after each further attempt, and never more than longest. So
// callers that failed together do not come back together.
//
// In a client of [NewClient] back-offs and random times are shortened where the wait would not end
// before the deadline of the context.
func Backoff(shortest, longest time.Duration, attempt int, resp *http.Response) time.Duration {
	most := ceiling(shortest, longest, attempt)
	left, bounded := timeLeft(resp)

	// The budget holds the next attempt while the penalty lasts, so only a longer back-off is waited for here.
	if penalty := throttle.AnswerOf(resp).Close; penalty > 0 {
		d := most/2 + random(most-most/2)

		// Leave as long as the penalty before the deadline: the next attempt may have to wait in the budget once more.
		if bounded && d >= left-penalty {
			d = random(left - penalty)
		}
		if d <= penalty {
			return 0
		}

		return d
	}

	// No budget holds the next attempt, so wait here for as long as the answer asks, and a random time longer.
	stated := min(throttle.RetryAfter(resp).Close, LongestWait)
	if bounded {
		most = min(most, left-stated)
	}

	return stated + random(most)
}

// ceiling returns d, doubled as often as there were attempts before, and at most longest.
func ceiling(d, longest time.Duration, attempts int) time.Duration {
	for range attempts {
		if d > longest/2 {
			return longest
		}
		d *= 2
	}
	return min(d, longest)
}

// random returns a random time of at least 0 and less than d, or 0 if d is 0 or less.
func random(d time.Duration) time.Duration {
	if d <= 0 {
		return 0
	}
	return rand.N(d)
}

// A failure is an attempt without an answer.
type failure struct {
	error
	repeatable bool
}

// Unwrap returns what went wrong.
func (f *failure) Unwrap() error { return f.error }

// Timeout reports whether the attempt ran out of time. url.Error asks the failure itself, and does not unwrap it.
func (f *failure) Timeout() bool {
	var failed net.Error
	return errors.As(f.error, &failed) && failed.Timeout()
}

// plain returns an error of http.Client with the scheme and the host of its URL alone: the rest may be
// secret. If the URL cannot be parsed, nothing of it is left.
func plain(failed *url.Error) *url.Error {
	e := &url.Error{Op: failed.Op, Err: reason(failed.Err)}
	if u, err := url.Parse(failed.URL); err == nil {
		e.URL = (&url.URL{Scheme: u.Scheme, Host: u.Host}).String()
	}
	return e
}

// errLocation stands in for the error of http.Client about a Location field, whose text has the field's
// value.
var errLocation = errors.New("failed to parse Location header")

// reason returns why an attempt has failed. A URL in it is cut down to its scheme and host: see plain.
func reason(err error) error {
	switch e := err.(type) {
	case *failure:
		return e.error
	case *url.Error:
		return plain(e)
	}
	if strings.HasPrefix(err.Error(), errLocation.Error()) {
		return errLocation
	}
	return err
}

// giveUp is the ErrorHandler of the retrying client: it is called when a request is not sent again, and
// returns the caller's answer, with its body unread, or the caller's error.
func giveUp(resp *http.Response, err error, _ int) (*http.Response, error) {
	if err == nil {
		restore(resp)
		return resp, nil
	}

	// The caller gets either an answer or an error, never both.
	if resp != nil && resp.Body != nil {
		resp.Body.Close()
	}

	// An error that a ResponseHandler has wrapped is the program's own, and stays.
	if failed, ok := err.(*url.Error); ok {
		return nil, plain(failed)
	}
	return nil, err
}

// drainTime is for how long, at the most, the next attempt waits while go-retryablehttp reads
// the body of the last answer to keep the connection. A body that takes longer is not worth a connection,
// or would take forever.
const drainTime = 100 * time.Millisecond

// A spent body is the body of an answer whose request is about to be repeated. It is closed
// drainTime after its first read.
type spent struct {
	io.ReadCloser
	drain    func() *time.Timer // starts the timer that closes the body, at its first call
	deadline time.Time          // of the request with all its repeats, or zero
}

// spend replaces the answer's body by a spent body, with the deadline of ctx.
func spend(ctx context.Context, resp *http.Response) {
	body := resp.Body
	deadline, _ := ctx.Deadline()
	resp.Body = &spent{body, sync.OnceValue(func() *time.Timer {
		return time.AfterFunc(drainTime, func() { body.Close() })
	}), deadline}
}

// Read implements io.Reader.
func (s *spent) Read(p []byte) (int, error) {
	s.drain()
	return s.ReadCloser.Read(p)
}

// Close implements io.Closer.
func (s *spent) Close() error {
	s.drain().Stop()
	return s.ReadCloser.Close()
}

// restore undoes spend, if it was called for the answer: the answer turned out to be the last.
func restore(resp *http.Response) {
	if s, ok := resp.Body.(*spent); ok {
		resp.Body = s.ReadCloser
	}
}

// timeLeft returns how much time is left until the deadline of the request. bounded is false if
// there is no answer, if the request has no deadline, or if resp has no spent body, which keeps the deadline.
func timeLeft(resp *http.Response) (d time.Duration, bounded bool) {
	if resp == nil {
		return 0, false
	}
	s, ok := resp.Body.(*spent)
	if !ok || s.deadline.IsZero() {
		return 0, false
	}
	return time.Until(s.deadline), true
}

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
// client that was not made by [NewClient] does not say which request has failed, so
// the method alone decides.
func CheckRetry(ctx context.Context, resp *http.Response, err error) (bool, error) {
	switch {
	case ctx.Err() != nil:
		return false, nil
	case err != nil:
		return repeatsFailed(ctx, resp, err), nil
	}
	return repeatsAnswered(ctx, resp), nil
}

// repeatsAnswered reports whether a request that has an answer is sent again.
func repeatsAnswered(ctx context.Context, resp *http.Response) bool {
	// Not if the service has acted on the request, if the wait is too long, or if there is no time for it.
	answer := throttle.AnswerOf(resp)
	done := answer.Verdict == throttle.VerdictNotRefused || answer.Verdict == throttle.VerdictPartly
	tooLong := answer.Close <= 0 && throttle.RetryAfter(resp).Close > LongestWait
	if done || tooLong || !canWait(ctx, resp, 0) {
		return false
	}

	// The default policy repeats after 500 and above, except 501.
	isRefusal := refused(resp)
	again, _ := retryablehttp.DefaultRetryPolicy(ctx, resp, nil)
	return (isRefusal || again) && repeatable(resp.Request, isRefusal)
}

// refused reports whether an answer says that the service has not acted on the request.
func refused(resp *http.Response) bool {
	return resp.StatusCode == http.StatusTooManyRequests ||
		throttle.AnswerOf(resp).Verdict == throttle.VerdictRefused && resp.StatusCode < http.StatusInternalServerError
}

// canWait reports whether the deadline of ctx leaves time for the wait that the answer asks for, plus d. It does
// if ctx has no deadline. It is true, too, if a policy has closed a budget: there the next attempt learns at once if its
// wait is too long.
func canWait(ctx context.Context, resp *http.Response, d time.Duration) bool {
	deadline, bounded := ctx.Deadline()
	isHeld := throttle.AnswerOf(resp).Close > 0
	return !bounded || isHeld || throttle.RetryAfter(resp).Close+d < time.Until(deadline)
}

// repeatable reports whether a request may be sent again after an attempt. notActedOn says that the
// service has certainly not acted on the request. A request that is not known, nil, may not be sent again.
func repeatable(r *http.Request, notActedOn bool) bool {
	if r == nil {
		return false
	}

	// The repeat begins with the first request, before all redirects, and a server that redirected may have acted.
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

// repeatsFailed reports whether a request is sent again after an attempt that failed: an attempt without an answer, or
// with an answer that a ResponseHandler refused.
func repeatsFailed(ctx context.Context, resp *http.Response, err error) bool {
	if neverRetried(err) {
		return false
	}

	// Every error of http.Client is a *url.Error: any other comes from a ResponseHandler.
	attempt, ok := err.(*url.Error)
	if !ok {
		return resp != nil && repeatable(resp.Request, false)
	}

	// CheckRedirect has stopped the request.
	if resp != nil {
		return false
	}

	// DefaultRetryPolicy knows permanent errors by their texts. An invalid Location is none of them: plain puts errLocation for it.
	shown := plain(attempt)
	if again, _ := retryablehttp.DefaultRetryPolicy(ctx, nil, shown); !again || shown.Err == errLocation {
		return false
	}
	if f, ok := attempt.Err.(*failure); ok {
		return f.repeatable
	}

	// The client is not of NewClient, so the method alone is known, which http.Client writes as in "Get".
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
