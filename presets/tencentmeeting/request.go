package tencentmeeting

import (
	"io"
	"net/http"
	"strings"

	"github.com/fleetthrottle/throttle"
	"github.com/fleetthrottle/throttle/internal/jsonscan"
	"github.com/fleetthrottle/throttle/internal/reqbody"
)

// endpoint is a [throttle.Policy.Key]: the path without its ids, which are the segments behind
// the version that hold a digit.
func endpoint(r *http.Request) string {
	segments := strings.Split(throttle.RawPath(r), "/") // "", "v1", …
	for i, s := range segments {
		if i > 1 && strings.ContainsAny(s, "0123456789") {
			segments[i] = "*"
		}
	}
	return strings.Join(segments, "/")
}

// ofBody is the member "userid" of a body in JSON.
func ofBody(r *http.Request) (user string) {
	reqbody.Look(r, func(body io.Reader) {
		s := jsonscan.New(io.LimitReader(body, 64<<10), 64<<10)
		if s.Peek() != '{' {
			return
		}

		s.Object(func(member []byte) bool {
			if string(member) != "userid" || s.Peek() != '"' {
				return s.Skip()
			}
			user, _ = s.Scalar()
			return false
		})
	})

	return user
}
