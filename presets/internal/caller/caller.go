// Package caller makes keys of the ids in options: of the program itself, or of a request's own
// caller.
package caller

import "net/http"

// A Key is a [throttle.Policy.Key].
type Key = func(*http.Request) string

// Always returns the key of an id that all requests have.
func Always(id string) Key { return func(*http.Request) string { return id } }

// ID returns the key of an id: what caller says or, if caller is nil, the id itself.
func ID(id string, caller func(*http.Request) string) Key {
	if caller == nil {
		return Always(id)
	}
	return caller
}

// IDs returns the keys of two ids: what caller says or, if caller is nil, the ids themselves.
func IDs(idA, idB string, caller func(*http.Request) (a, b string)) (keyA, keyB Key) {
	if caller == nil {
		return Always(idA), Always(idB)
	}
	return func(r *http.Request) string { a, _ := caller(r); return a },
		func(r *http.Request) string { _, b := caller(r); return b }
}

// Or returns the key that key makes of a request or, where key returns "", otherwise makes.
func Or(key, otherwise Key) Key {
	return func(r *http.Request) string {
		if id := key(r); id != "" {
			return id
		}
		return otherwise(r)
	}
}
