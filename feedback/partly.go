package feedback

import (
	"net/http"
	"strings"

	"github.com/fleetthrottle/throttle/internal/jsonscan"
)

// Partly reports whether a GraphQL answer has data that is not null, with or without errors: a part
// of the request was executed. Use it with [Acted]. In a body above 64 KB it is true as soon as the
// data begin.
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

// Succeeded reports whether an answer has a status below 400. Use it with [Acted] for an upstream
// that executes the request and states a pause in the same answer, as a [Printed] in a 200: the
// budget closes, and the request is not repeated.
func Succeeded(resp *http.Response) bool { return resp.StatusCode < http.StatusBadRequest }
