package feedback

import (
	"net/http"
	"strings"
)

// Partly reports whether an answer of GraphQL has data that is not null, beside
// whatever errors: a part of what was asked has been done. It is for a
// [throttle.Policy.Acted]. Of a body that is longer than the 64 KB that are looked at
// it is true as soon as the data begin.
func Partly(resp *http.Response) bool {
	s := scanner{r: look(resp, mostBytes)}
	s.bom()
	if s.peek() != '{' {
		return false
	}
	s.byte()
	for first := true; ; first = false {
		if more, _ := s.more('}', first); !more {
			return false
		}
		name, ok := s.name()
		if !ok {
			return false
		}
		if string(name) == "data" {
			return !strings.ContainsRune("n\x00", rune(s.peek()))
		}
		if !s.skip() {
			return false
		}
	}
}
