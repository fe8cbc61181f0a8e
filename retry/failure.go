package retry

import (
	"errors"
	"net"
	"net/http"
	"net/url"
	"strings"
)

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

// plain returns an error of http.Client with the scheme and the host of its URL alone: the rest may be
// secret.
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

// reason returns why an attempt has failed, with no URL in it.
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
// returns the caller's answer, as it is, or the caller's error.
func giveUp(resp *http.Response, err error, _ int) (*http.Response, error) {
	if err == nil {
		restore(resp)
		return resp, nil
	}

	// The caller gets either an answer or an error, never both.
	if resp != nil && resp.Body != nil {
		resp.Body.Close()
	}
	if failed, ok := err.(*url.Error); ok { // and not an error that a ResponseHandler has wrapped
		return nil, plain(failed)
	}
	return nil, err
}
