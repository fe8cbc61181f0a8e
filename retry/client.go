package retry

import (
	"context"
	"errors"
	"net"
	"net/http"
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
// less than the answer asks for and RetryWaitMin. Then the caller gets the answer, or the
// error, at once. Where a policy has closed the budget there is no such wait: the repeat
// asks the budget, and if the wait does not fit, the caller gets its *[throttle.LimitError]
// and the answer is dropped.
//
// When the client gives up, the caller gets the result of [http.Client]: the last answer
// with its body unread, or the last error, in which the URL is cut down to its host,
// because tokens stand in paths and queries. Never both. A custom ErrorHandler that hands
// on the last answer hands on a body that is closed a moment after its first read.
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
		again = again && canWait(ctx, resp, ceiling(c.RetryWaitMin, c.RetryWaitMax, 0))

		// The client reads the body of an answer that is not the last, to keep its connection.
		if again && resp != nil {
			spend(ctx, resp)
		}

		return again, err
	}

	return c
}

// attempts is the transport below the client. It tells CheckRetry of a failed
// attempt what only the request knows. It has no CloseIdleConnections, which
// go-retryablehttp calls whenever a request has failed for good.
type attempts struct{ throttle http.RoundTripper }

// RoundTrip implements http.RoundTripper.
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
