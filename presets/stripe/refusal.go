package stripe

import (
	"net/http"
	"time"

	"github.com/fleetthrottle/throttle"
	"github.com/fleetthrottle/throttle/feedback"
	"github.com/fleetthrottle/throttle/presets/internal/tablerow"
)

// reason is the field in which a 429 says which limit it is about.
const reason = "Stripe-Rate-Limited-Reason"

// wait is for how long a refusal closes its row.
var wait = feedback.RetryAfter(time.Second)

// refused is the penalty of the 429s of one reason, which may end in "*".
func refused(why string) feedback.Reader {
	return feedback.When{Status: []int{http.StatusTooManyRequests}, Header: map[string]string{reason: why}}.Then(wait)
}

var (
	endpointRefused = refused("endpoint-*")

	// objectRefused is about one object. So is a lock_timeout, which is no refusal, but asks to wait if it has
	// a Retry-After.
	objectRefused = feedback.First(refused("resource-specific"), feedback.When{Status: []int{http.StatusTooManyRequests}}.Then(locked))

	// anyRefused is the penalty of a request with one limit for all reasons.
	anyRefused = feedback.When{Status: []int{http.StatusTooManyRequests}}.Then(feedback.First(
		not(objectRefused), lockTimeout, wait,
	))

	// lockTimeout knows the 429 that is no refusal: a second request holds the object.
	lockTimeout = feedback.Codes{
		Fields: []string{"error.code"},
		Lasts:  map[string]time.Duration{"lock_timeout": 0},
	}.Answer
)

// locked closes the row of an object that a second request holds, if the answer states a duration.
func locked(resp *http.Response) throttle.Answer {
	if lockTimeout(resp).Verdict == throttle.VerdictNone {
		return throttle.Answer{}
	}
	return feedback.RetryAfter(0)(resp)
}

// accountRefused is the penalty of all others.
func accountRefused() feedback.Reader {
	return feedback.First(
		feedback.When{Status: []int{http.StatusTooManyRequests}}.Then(feedback.First(
			not(endpointRefused), not(objectRefused),
			lockTimeout,
			wait,
		)),
		tablerow.Outage(),
	)
}

// not ends a [feedback.First] at a refusal that closes a different row.
func not(p feedback.Reader) feedback.Reader {
	return func(resp *http.Response) throttle.Answer {
		if p(resp).Close > 0 {
			return throttle.Refused(0)
		}
		return throttle.Answer{}
	}
}
