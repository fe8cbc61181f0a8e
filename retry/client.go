package retry

import (
	"errors"
	"net"
	"net/http"
	"net/url"
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

// NewClient returns a client whose every attempt passes through t and is
// charged. It decides by [CheckRetry] and waits by [Backoff]; it logs nothing.
//
// When it gives up, the caller gets what [http.Client] would return: the last
// answer with its body unread, or the last error, in which the URL is cut down
// to its host, because tokens stand in paths and queries. Never both.
//
// The client does not close idle connections: t may be shared, and one request
// that failed must not cost the others theirs. Call t.CloseIdleConnections.
func NewClient(t *throttle.Transport) *retryablehttp.Client {
	return &retryablehttp.Client{
		HTTPClient:   &http.Client{Transport: attempts{t}},
		RetryMax:     DefaultRetryMax,
		RetryWaitMin: DefaultRetryWaitMin,
		RetryWaitMax: DefaultRetryWaitMax,
		CheckRetry:   CheckRetry,
		Backoff:      Backoff,
		ErrorHandler: giveUp,
	}
}

// attempts is the transport below the client. It tells CheckRetry of a failed
// attempt what only the request knows. It has no CloseIdleConnections, which
// go-retryablehttp calls whenever a request has failed for good.
type attempts struct{ throttle *throttle.Transport }

// RoundTrip implements http.RoundTripper.
func (a attempts) RoundTrip(r *http.Request) (*http.Response, error) {
	resp, err := a.throttle.RoundTrip(r)
	if err != nil {
		return nil, &failure{err, repeatable(r, unsent(err))}
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

// A failure is an attempt without an answer.
type failure struct {
	error
	repeatable bool
}

// Unwrap returns what went wrong.
func (f *failure) Unwrap() error { return f.error }

// Timeout is for url.Error, which does not unwrap.
func (f *failure) Timeout() bool {
	var failed net.Error
	return errors.As(f.error, &failed) && failed.Timeout()
}

// giveUp is the client's ErrorHandler.
func giveUp(resp *http.Response, err error, _ int) (*http.Response, error) {
	if err == nil {
		return resp, nil
	}
	if resp != nil && resp.Body != nil {
		resp.Body.Close()
	}
	if failed, ok := err.(*url.Error); ok { // not what a ResponseHandler has wrapped
		return nil, plain(failed)
	}
	return nil, err
}

// plain returns the error as http.Client would, but for what may be secret.
func plain(failed *url.Error) *url.Error {
	e := &url.Error{Op: failed.Op, Err: failed.Err}
	if u, err := url.Parse(failed.URL); err == nil {
		e.URL = (&url.URL{Scheme: u.Scheme, Host: u.Host}).String()
	}
	if f, ok := failed.Err.(*failure); ok {
		e.Err = f.error
	}
	return e
}
