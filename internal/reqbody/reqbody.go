// Package reqbody lets a key or a cost look at a request's body and leaves it to be sent.
package reqbody

import (
	"io"
	"net/http"
	"net/url"
	"reflect"

	"github.com/fleetthrottle/throttle/internal/jsonscan"
)

// mostLooked is how much of a body Member and Form look at.
const mostLooked = 64 << 10

// Member returns the text of a member of the object that a body in JSON is, or "" if the member is not there,
// or is an object or an array.
func Member(r *http.Request, name string) (text string) { return MemberWithin(r, name, mostLooked) }

// MemberWithin is Member with a bound: it reads at most most bytes of the body.
func MemberWithin(r *http.Request, name string, most int64) (text string) {
	Look(r, func(body io.Reader) {
		s := jsonscan.New(io.LimitReader(body, most), mostLooked)
		if s.Peek() != '{' {
			return
		}

		s.Object(func(member []byte) bool {
			if first := s.Peek(); string(member) != name || first == '{' || first == '[' {
				return s.Skip()
			}
			if value, whole := s.Scalar(); whole {
				text = value
			}

			return false
		})
	})

	return text
}

// Form returns the values of a body that is a form, as far as they can be read.
func Form(r *http.Request) (values url.Values) {
	Look(r, func(body io.Reader) {
		if text, err := io.ReadAll(io.LimitReader(body, mostLooked)); err == nil {
			values, _ = url.ParseQuery(string(text))
		}
	})
	return values
}

// Look calls look with the body from its beginning, and reports whether that was possible: the body
// itself belongs to the base, so the request must have a GetBody.
//
// GetBody must return a copy, but the GetBody of some SDKs rewinds its only body and returns it: so
// the body is rewound after the look, and never closed then.
func Look(r *http.Request, look func(io.Reader)) bool {
	if r.GetBody == nil {
		return false
	}

	body, err := r.GetBody()
	if err != nil {
		return false
	}

	look(body)
	closeCopy(r, body)
	if again, err := r.GetBody(); err == nil {
		closeCopy(r, again)
	}

	return true
}

// closeCopy closes a body, unless it is the request's own.
func closeCopy(r *http.Request, body io.ReadCloser) {
	if v := reflect.ValueOf(body); v.IsValid() && v.Comparable() && body == r.Body {
		return
	}
	_ = body.Close() // it was only read
}
