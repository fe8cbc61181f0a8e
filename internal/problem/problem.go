// Package problem is the form of the answers in which a handler of this module says itself why a
// request is not served: application/problem+json of RFC 9457.
package problem

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/fleetthrottle/throttle"
	"github.com/fleetthrottle/throttle/internal/inbound"
	"github.com/fleetthrottle/throttle/store"
)

// Via is how the handlers name themselves in the header Via.
const Via = "1.1 throttle"

// A Problem is an answer in this form. Of the request it repeats only names: of policies, of fields,
// and of a host that policies name.
type Problem struct {
	Type     string    `json:"type,omitempty"` // "" if the status says all
	Title    string    `json:"title"`
	Status   int       `json:"status"`
	Detail   string    `json:"detail"`
	Policy   string    `json:"policy,omitempty"`
	Violated []string  `json:"violated-policies,omitempty"` // of quotaExceeded
	Errors   []Mistake `json:"errors,omitempty"`

	RetryAfter time.Duration  `json:"-"` // 0 if unknown
	Limit      throttle.Limit `json:"-"` // of Policy, for the fields RateLimit and RateLimit-Policy, which a zero Limit leaves out
}

// quotaExceeded is the type that IANA has for a limit without room.
const quotaExceeded = "https://iana.org/assignments/http-problem-types#quota-exceeded"

// A Mistake is one of several in the body of a request. Pointer is a JSON pointer to its place,
// as a fragment of a URI: "#/demands/0/cost".
type Mistake struct {
	Pointer string `json:"pointer"`
	Detail  string `json:"detail"`
}

// New returns a problem with the title of its status, such as "Too Many Requests".
func New(status int, detail string) *Problem {
	return &Problem{Title: http.StatusText(status), Status: status, Detail: detail}
}

// Of returns the Problem for an error of a [throttle.Transport], of [throttle.Limiters] or of an [inbound.Queue], or nil
// for every other error, such as the end of the request's context.
func Of(err error) *Problem {
	// A refusal of the queue comes first: it ended the wait, and so the error of the wait has it as its cause.
	var refusal *inbound.Refusal
	var full *throttle.LimitError
	var away *throttle.StoreError
	var mistake *throttle.ConfigError
	switch {
	case errors.As(err, &refusal):
		p := New(http.StatusServiceUnavailable, refusal.Error())
		p.Policy, p.RetryAfter = refusal.Policy, refusal.RetryAfter
		return p

	case errors.As(err, &full):
		p := New(http.StatusTooManyRequests, full.Error())
		p.Type, p.Policy, p.Violated, p.Limit = quotaExceeded, full.Policy, []string{full.Policy}, full.Limit
		// If waiting never helps, the answer has no Retry-After.
		if full.RetryAfter != throttle.Never {
			p.RetryAfter = full.RetryAfter
		}

		return p

	case errors.As(err, &away):
		p := New(http.StatusServiceUnavailable, "it is unknown whether there is room: the store of the budgets does not answer")
		p.RetryAfter = inbound.Soon
		return p

	// The text of a mistake is for the operator, and may quote the configuration.
	case errors.As(err, &mistake):
		p := New(http.StatusInternalServerError, "the policy cannot read this request")
		p.Policy = mistake.Policy
		return p
	}

	return nil
}

// Kind is the Content-Type of a Problem.
const Kind = "application/problem+json"

// Write sends the answer.
func (p *Problem) Write(w http.ResponseWriter) { p.WriteAs(w, Kind, p) }

// WriteAs sends the answer with a different body that says the same as the Problem. kind is the body's
// Content-Type, and the body is written as JSON.
func (p *Problem) WriteAs(w http.ResponseWriter, kind string, body any) {
	h := w.Header()
	h.Set("Content-Type", kind)
	h.Set("Cache-Control", "no-store")
	h.Set("Via", Via)
	if p.RetryAfter > 0 {
		h.Set("Retry-After", strconv.FormatInt(seconds(p.RetryAfter), 10))
	}
	if p.Limit != (throttle.Limit{}) {
		addLimit(h, p.Policy, p.Limit, p.RetryAfter)
	}
	w.WriteHeader(p.Status)
	_ = json.NewEncoder(w).Encode(body) // a caller that has gone needs no answer
}

// addLimit describes a limit that has no room for a request, in the fields of
// draft-ietf-httpapi-ratelimit-headers-11. It leaves out a wait of 0, which is unknown, and [throttle.Never].
func addLimit(h http.Header, policy string, l throttle.Limit, wait time.Duration) {
	name := quoted(policy)
	switch l.Kind() {
	// A limit without a number gets no RateLimit-Policy.
	case store.KindUnlimited, store.KindTold:
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

// window returns the length of a limit's window. The window of a bucket is the time in which it fills.
func window(l throttle.Limit) time.Duration {
	switch {
	// The windows of the calendar differ in length: take the present one.
	case l.Per() == 0:
		from, to := l.Window(time.Now())
		return to.Sub(from)
	case l.Kind() == store.KindTokenBucket:
		return time.Duration(float64(l.Per()) * float64(l.Capacity()) / float64(l.N()))
	}
	return l.Per()
}

// seconds returns a duration in whole seconds, rounded up, or 0 for a negative duration.
func seconds(d time.Duration) int64 {
	if d <= 0 {
		return 0
	}
	return int64((d-1)/time.Second) + 1
}

// quoted returns a name as a string of RFC 9651, which has ASCII only. Other bytes, and "%", are
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
