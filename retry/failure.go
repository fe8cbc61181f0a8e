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

// plain returns the error as http.Client would, but for what may be secret.
func plain(failed *url.Error) *url.Error {
	e := &url.Error{Op: failed.Op, Err: reason(failed.Err)}
	if u, err := url.Parse(failed.URL); err == nil {
		e.URL = (&url.URL{Scheme: u.Scheme, Host: u.Host}).String()
	}
	return e
}

// errLocation stands in for what http.Client says of such a field, which prints
// it.
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

// giveUp is the client's ErrorHandler.
func giveUp(resp *http.Response, err error, _ int) (*http.Response, error) {
	if err == nil {
		restore(resp)
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
