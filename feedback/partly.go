package feedback

import (
	"net/http"
	"strings"

	"github.com/fleetthrottle/throttle/internal/jsonscan"
)

// Partly reports whether an answer of GraphQL has data that is not null, beside
// whatever errors: a part of what was asked has been done. It is for a
// [throttle.Policy.Acted]. Of a body that is longer than the 64 KB that are looked at
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
