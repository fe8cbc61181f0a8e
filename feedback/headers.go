package feedback

import (
	"math"
	"net/http"
	"net/textproto"
	"slices"
	"strings"
	"time"

	"github.com/fleetthrottle/throttle"
)

// Headers are the fields in which an upstream tells of one budget, in any of the
// dialects of X-RateLimit: GitHub's
//
//	feedback.Headers{Remaining: "X-RateLimit-Remaining", Reset: "X-RateLimit-Reset"}
//
// A 401 is ignored, because it speaks of an unknown caller, and so is an answer out
// of a cache. If one header tells of several budgets in turn, say which by [When].
type Headers struct {
	// Remaining or, with Limit or Size, Used is the field that counts: "3",
	// used and size as in "32/40", or a list of counts with the seconds of
	// their windows, as in "20:1,100:120".
	Remaining, Used, Limit string

	// Size is the limit if no field tells.
	Size int

	// Reset is the field that tells when there is more: after so many seconds,
	// "2" or "2.5"; after a Go duration, "6m0s"; or at a moment, in seconds
	// or milliseconds since 1970, in ISO 8601, or as a date of HTTP.
	Reset string

	// As says how Reset is written if it is none of these.
	As Dialect

	// Per is the length of the budget's window. It finds the member of a list of
	// counts, and stands in for a Reset that is not there: a refusal then closes
	// the budget for so long. Without Clock it is unknown when the window ends. So
	// what is left counts for a second, or for Per if that is less, until the next
	// answer says it again.
	Per time.Duration

	// Clock says that the windows begin when the time since 1970 is a
	// multiple of Per: on the minute, on the hour of UTC.
	Clock bool

	// Status are those of answers that may be refusals, for Penalty. Defaults
	// to 403, 429 and 503.
	Status []int
}

// Quota is a [throttle.Policy.Quota].
func (h Headers) Quota(resp *http.Response) (q throttle.Quota, ok bool) {
	return h.quota(resp, unsaid)
}

// unsaid is for how long it is believed what is left, where nobody says how long it
// is all there is. A store then takes all that the fleet has started within a window
// for known to the upstream, and so books no more for others than they have spent.
const unsaid = time.Second

// quota has a Reset of at most so much where the answer has none.
func (h Headers) quota(resp *http.Response, most time.Duration) (q throttle.Quota, ok bool) {
	left, counted := h.left(resp.Header)
	reset, dated := h.reset(resp, most)
	if !counted || !dated || !speaks(resp) {
		return throttle.Quota{}, false
	}
	return throttle.Quota{Left: left, Reset: reset}, true
}

// Penalty is a [throttle.Policy.Penalty]: an answer of one of Status that says
// that nothing is left closes the budget until there is more. If neither
// Remaining nor Used is set, Reset alone closes it. Retry-After, if it can be
// read, wins over Reset. Any other answer is no refusal, even if it was the last
// that was granted: see Quota.
func (h Headers) Penalty(resp *http.Response) time.Duration {
	if !mayRefuse(resp, h.Status) {
		return 0
	}
	q, ok := h.quota(resp, throttle.MaxPenalty)
	if h.Remaining == "" && h.Used == "" {
		q.Reset, ok = h.reset(resp, throttle.MaxPenalty)
	}
	if !ok || q.Left > 0 || !speaks(resp) {
		return 0
	}
	if textproto.CanonicalMIMEHeaderKey(h.Reset) == "Retry-After" {
		return q.Reset // in a dialect of its own
	}
	return untilMore(resp, q)
}

// mayRefuse reports whether an answer's status is one of those of refusals. A
// request that fails for a reason of its own, say with a 400, may have used up
// what was left like any other.
func mayRefuse(resp *http.Response, status []int) bool {
	if len(status) > 0 {
		return slices.Contains(status, resp.StatusCode)
	}
	switch resp.StatusCode {
	case http.StatusForbidden, http.StatusTooManyRequests, http.StatusServiceUnavailable:
		return true
	}
	return false
}

// untilMore returns for how long a quota of which nothing is left closes the
// budget.
func untilMore(resp *http.Response, q throttle.Quota) time.Duration {
	if d, ok := retryAfter(resp); ok {
		return d
	}
	return q.Reset
}

// speaks reports whether the answer can speak of the caller's budget.
func speaks(resp *http.Response) bool {
	age := strings.Trim(resp.Header.Get("Age"), "0 ")
	return resp.StatusCode != http.StatusUnauthorized && age == ""
}

// left returns what is left.
func (h Headers) left(header http.Header) (left int, ok bool) {
	if h.Remaining != "" {
		if overdrawn(firstOf(header, h.Remaining)) {
			return 0, true
		}
		left, _, ok = h.count(header, h.Remaining)
		return left, ok
	}
	used, size, ok := h.count(header, h.Used)
	if n, _, stated := h.count(header, h.Limit); stated {
		size = n
	}
	if size == 0 {
		size = h.Size
	}
	return max(size-used, 0), ok && size > 0
}

// overdrawn reports whether a rest is below 0, which some upstreams write when more
// was spent than there was.
func overdrawn(text string) bool {
	text, below := strings.CutPrefix(strings.TrimSpace(text), "-")
	_, ok := number(text)
	return below && ok
}

// count reads "3", "32/40", or the member for Per of "20:1,100:120".
func (h Headers) count(header http.Header, name string) (n, size int, ok bool) {
	field := strings.Join(valuesOf(header, name), ",")
	if !strings.Contains(field, ":") {
		first, second, both := strings.Cut(field, "/")
		n, ok = whole(first)
		if !both {
			return n, 0, ok
		}
		size, sized := whole(second)
		return n, size, ok && sized
	}
	for member := range strings.SplitSeq(field, ",") {
		first, seconds, _ := strings.Cut(member, ":")
		s, timed := number(seconds)
		if !timed {
			return 0, 0, false
		}
		if length(s, time.Second) == h.Per {
			n, ok = whole(first)
		}
	}
	return n, 0, ok
}

// whole reads a count, which may be written with a fraction.
func whole(text string) (n int, ok bool) {
	f, ok := number(text)
	if !ok || f > math.MaxInt32 {
		return 0, false
	}
	return int(f), true
}

// reset returns for how long what is left is all there is; at most so much if only
// Per says so. A Reset that cannot be read, or has passed, makes what is left untrue.
func (h Headers) reset(resp *http.Response, most time.Duration) (d time.Duration, ok bool) {
	if field := firstOf(resp.Header, h.Reset); field != "" {
		d, ok = h.As.read(resp, field)
		return min(d, throttle.MaxPenalty), ok && d > 0
	}
	switch {
	case h.Per <= 0:
		return 0, false
	case h.Clock:
		d = h.Per - time.Duration(sent(resp).UnixNano())%h.Per
		return min(d, h.Per, throttle.MaxPenalty), true
	}
	return min(h.Per, most), true
}

// valuesOf returns the values of a header field, however its name is spelt. It is Header.Values, which
// allocates memory for each name that is not spelt as http.Header spells it, such as X-RateLimit-Reset.
func valuesOf(header http.Header, name string) []string {
	if values, ok := header[name]; ok {
		return values
	}
	for other, values := range header {
		if len(other) == len(name) && strings.EqualFold(other, name) {
			return values
		}
	}
	return nil
}

// firstOf is valuesOf for the first value; "" if there is none.
func firstOf(header http.Header, name string) string {
	if values := valuesOf(header, name); len(values) > 0 {
		return values[0]
	}
	return ""
}
