// Package problem is the form of the answers in which a handler of this module says itself why a
// request is not served: application/problem+json of RFC 9457.
package problem

import (
	"encoding/json"
	"errors"
	"net/http"
	"strconv"
	"time"

	"github.com/fleetthrottle/throttle"
)

// Via is how the handlers name themselves in the header Via.
const Via = "1.1 throttle"

// A Problem is such an answer. It repeats nothing of the request but names: of policies, of fields,
// and of a host that policies name.
type Problem struct {
	Type     string    `json:"type,omitempty"` // "": the status says all
	Title    string    `json:"title"`
	Status   int       `json:"status"`
	Detail   string    `json:"detail"`
	Policy   string    `json:"policy,omitempty"`
	Violated []string  `json:"violated-policies,omitempty"` // of quotaExceeded
	Errors   []Mistake `json:"errors,omitempty"`

	RetryAfter time.Duration  `json:"-"` // 0: the answer does not say
	Limit      throttle.Limit `json:"-"` // of Policy, for the fields RateLimit and RateLimit-Policy; zero: they are left out
}

// quotaExceeded is the type that IANA has for a limit without room.
const quotaExceeded = "https://iana.org/assignments/http-problem-types#quota-exceeded"

// A Mistake is one of several in the body of a request. Pointer is a JSON pointer to its place,
// as a fragment of a URI: "#/demands/0/cost".
type Mistake struct {
	Pointer string `json:"pointer"`
	Detail  string `json:"detail"`
}

// New returns a problem whose title is that of its status.
func New(status int, detail string) *Problem {
	return &Problem{Title: http.StatusText(status), Status: status, Detail: detail}
}

// Of returns what an error of a [throttle.Transport] or of [throttle.Limiters] means to the
// caller; nil: it is no error of theirs.
func Of(err error) *Problem {
	var full *throttle.LimitError
	var away *throttle.StoreError

	var mistake *throttle.ConfigError
	switch {
	case errors.As(err, &full):
		p := New(http.StatusTooManyRequests, full.Error())
		p.Type, p.Policy, p.Violated, p.Limit = quotaExceeded, full.Policy, []string{full.Policy}, full.Limit
		if full.RetryAfter != throttle.Never {
			p.RetryAfter = full.RetryAfter
		}

		return p

	case errors.As(err, &away):
		p := New(http.StatusServiceUnavailable, "it is unknown whether there is room: the store of the budgets does not answer")
		p.RetryAfter = time.Second
		return p

	case errors.As(err, &mistake):
		p := New(http.StatusInternalServerError, "the policy cannot read this request")
		p.Policy = mistake.Policy
		return p
	}

	return nil
}

// Write sends the answer.
func (p *Problem) Write(w http.ResponseWriter) {
	h := w.Header()
	h.Set("Content-Type", "application/problem+json")
	h.Set("Cache-Control", "no-store")
	h.Set("Via", Via)
	if p.RetryAfter > 0 {
		h.Set("Retry-After", strconv.FormatInt(seconds(p.RetryAfter), 10))
	}
	if p.Limit != (throttle.Limit{}) {
		addLimit(h, p.Policy, p.Limit, p.RetryAfter)
	}
	w.WriteHeader(p.Status)
	_ = json.NewEncoder(w).Encode(p) // a caller that has gone needs no answer
}
