// Package own keeps each row of a table to its own business: what an answer says
// of another row is for that row to say.
package own

import (
	"net/http"
	"time"

	"github.com/fleetthrottle/throttle"
	"github.com/fleetthrottle/throttle/feedback"
)

// Penalty returns p for the answers to requests that cost something, and 0 for
// all others: an upstream that refuses one that is free speaks of another row.
func Penalty(cost func(*http.Request) int, p feedback.Penalty) feedback.Penalty {
	return func(resp *http.Response) time.Duration {
		if resp.Request == nil || cost(resp.Request) == 0 {
			return 0
		}
		return p(resp)
	}
}

// Quota returns q for the answers to requests that cost something; all others
// say nothing.
func Quota(cost func(*http.Request) int, q feedback.Quota) feedback.Quota {
	return func(resp *http.Response) (throttle.Quota, bool) {
		if resp.Request == nil || cost(resp.Request) == 0 {
			return throttle.Quota{}, false
		}
		return q(resp)
	}
}

// Refusals returns p, and 0 where p is [feedback.NotRefused]: what another row is closed by
// is a refusal all the same, and may be repeated.
func Refusals(p feedback.Penalty) feedback.Penalty {
	return func(resp *http.Response) time.Duration { return max(0, p(resp)) }
}

// Outage returns a penalty that obeys the Retry-After of a 503, if many answers in a
// row have one: see [throttle.InARow]. It counts, so each transport needs its own: a
// variable of a package must not hold one.
func Outage() feedback.Penalty {
	return throttle.InARow(throttle.OutageAnswers, feedback.When{Status: []int{http.StatusServiceUnavailable}}.Penalty(feedback.RetryAfter(0)))
}
