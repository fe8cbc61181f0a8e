// Package reqbody lets a preset look at a request's body and leaves it to be sent.
package reqbody

import (
	"io"
	"net/http"
	"reflect"
)

// Look calls look with the body from its beginning, and reports whether that was
// possible: the body itself is the base's, so there must be a GetBody.
//
// GetBody is to return a copy. But some SDKs have one that rewinds the one body and
// returns it: so the body is rewound after the look, and never closed then.
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
