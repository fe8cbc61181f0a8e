// Package reqbody lets a key or a cost look at a request's body and leaves it to be sent.
package reqbody

import (
	"bytes"
	"io"
	"net/http"
	"net/url"
	"sync"

	"github.com/fleetthrottle/throttle/internal/jsonscan"
)

// maxRead is how much of a body Member and Form look at.
const maxRead = 64 << 10

// Member returns the text of the member name of the JSON object in a request's body. The text is "" if the body
// cannot be looked at, or if the member is not in its first maxRead bytes, is malformed, null, an object or an array.
func Member(r *http.Request, name string) (text string) { return MemberWithin(r, name, maxRead) }

// MemberWithin is Member with a bound: it reads at most maxBytes bytes of the body.
func MemberWithin(r *http.Request, name string, maxBytes int64) (text string) {
	Members(r, maxBytes, func(json *jsonscan.Scanner, member []byte) bool {
		// Skip other members, and values that have no text.
		if first := json.Peek(); string(member) != name || first == '{' || first == '[' {
			return json.Skip()
		}
		if value, whole := json.Scalar(); whole {
			text = value
		}

		return false
	})

	return text
}

// Members walks through the members of the JSON object in a request's body, as far as its first maxBytes bytes hold
// them. It calls member behind each name: member reads the value, and name is valid until it does. Members returns
// false if the body cannot be looked at, is no object, is malformed or is longer, and if member returned false.
func Members(r *http.Request, maxBytes int64, member func(json *jsonscan.Scanner, name []byte) bool) (whole bool) {
	Look(r, func(body io.Reader) {
		s := scans.Get().(*scan)
		s.body, s.left = body, maxBytes
		s.json.Reset(s, 0)

		s.json.BOM()
		whole = s.json.Peek() == '{' && s.json.Object(func(name []byte) bool { return member(&s.json, name) })

		s.body = nil
		scans.Put(s)
	})

	return whole
}

// A scan is the memory of a walk through a body. The rows of a table walk through one body many times.
type scan struct {
	json  jsonscan.Scanner
	body  io.Reader
	left  int64 // bytes that may be read
	piece [16 << 10]byte
}

var scans = sync.Pool{New: func() any { return new(scan) }}

// From implements [jsonscan.Source]. The offset is always the end of the last piece.
func (s *scan) From(int) []byte {
	n, _ := io.ReadAtLeast(s.body, s.piece[:min(int64(len(s.piece)), s.left)], 1)
	s.left -= int64(n)
	return s.piece[:n]
}

// Form returns the values of a body that is a form, as far as they can be read: each value is whole.
func Form(r *http.Request) (values url.Values) {
	Look(r, func(body io.Reader) {
		text, err := io.ReadAll(io.LimitReader(body, maxRead+1))
		if err != nil {
			return
		}

		// Leave out a value whose end is not known.
		if len(text) > maxRead {
			text = text[:max(0, bytes.LastIndexByte(text, '&'))]
		}
		values, _ = url.ParseQuery(string(text))
	})
	return values
}

// Look calls look with the body from its beginning, and reports whether that was possible: the body
// itself belongs to the base, so the request must have a GetBody that does not fail.
//
// GetBody must return a copy, but the GetBody of some SDKs rewinds its only body and returns it. So
// Look calls GetBody again after look, to rewind such a body, and does not close the request's own
// body.
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

// closeCopy closes a body that GetBody has returned, unless it is the request's own.
func closeCopy(r *http.Request, body io.ReadCloser) {
	if !isSame(body, r.Body) {
		_ = body.Close() // it was only read
	}
}

// isSame reports whether two bodies are one. Bodies of a type that Go cannot compare, which panics, are two.
func isSame(a, b io.ReadCloser) (same bool) {
	defer func() { _ = recover() }()
	return a == b
}
