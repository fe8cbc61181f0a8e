package problem

import (
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/fleetthrottle/throttle"
	"github.com/fleetthrottle/throttle/store"
)

// addLimit tells of a limit that has no room for a request, in the fields of
// draft-ietf-httpapi-ratelimit-headers-11. A wait of 0 is unknown.
func addLimit(h http.Header, policy string, l throttle.Limit, wait time.Duration) {
	name := quoted(policy)
	switch l.Kind() {
	case store.KindUnlimited: // it has no number
	case store.KindConcurrency:
		h.Set("RateLimit-Policy", fmt.Sprintf(`%s;q=%d;qu="concurrent-requests"`, name, l.N()))
	default:
		h.Set("RateLimit-Policy", fmt.Sprintf("%s;q=%d;w=%d", name, l.Capacity(), seconds(window(l))))
	}

	state := name + ";r=0"
	if wait > 0 && wait != throttle.Never {
		state += ";t=" + strconv.FormatInt(seconds(wait), 10)
	}

	h.Set("RateLimit", state)
}

// window returns in how long a limit allows what it allows: a bucket is full again then.
func window(l throttle.Limit) time.Duration {
	switch {
	case l.Per() == 0:
		from, to := l.Window(time.Now())
		return to.Sub(from)
	case l.Kind() == store.KindTokenBucket:
		return time.Duration(float64(l.Per()) * float64(l.Capacity()) / float64(l.N()))
	}
	return l.Per()
}

// seconds returns a duration in whole seconds, rounded up.
func seconds(d time.Duration) int64 {
	if d <= 0 {
		return 0
	}
	return int64((d-1)/time.Second) + 1
}

// quoted returns a name as a string of RFC 9651, which has ASCII only. Other characters are
// escaped as in URLs.
func quoted(name string) string {
	var b strings.Builder
	b.WriteByte('"')

	for _, c := range []byte(name) {
		switch {
		case c == '"' || c == '\\':
			b.WriteByte('\\')
			b.WriteByte(c)
		case c < ' ' || c > '~' || c == '%':
			fmt.Fprintf(&b, "%%%02X", c)
		default:
			b.WriteByte(c)
		}
	}

	b.WriteByte('"')
	return b.String()
}
