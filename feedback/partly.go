package feedback

import (
	"net/http"
	"strings"

	"github.com/fleetthrottle/throttle/internal/jsonscan"
)

// Partly reports whether an answer of GraphQL has data that is not null, beside
// whatever errors: a part of what was asked has been done. It is for
// [Acted]. Of a body that is longer than the 64 KB that are looked at
// it is true as soon as the data begin.
func Partly(resp *http.Response) (partly bool) {
	s := jsonscan.New(look(resp, mostBytes), scanBytes)
	s.BOM()
	if s.Peek() != '{' {
		return false
	}

	s.Object(func(name []byte) bool {
		if string(name) != "data" {
			return s.Skip()
		}
		partly = !strings.ContainsRune("n\x00", rune(s.Peek()))
		return false
	})

	return partly
}

// Succeeded reports whether an answer has a status below 400. It is for the
// [Acted] of an upstream that does what was asked and says in the same
// answer for how long to pause, as a [Printed] in a 200: the budget closes, and the
// request is not repeated.
func Succeeded(resp *http.Response) bool { return resp.StatusCode < http.StatusBadRequest }
