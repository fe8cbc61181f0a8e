// Package tablerow makes the penalties and quotas of rows in a table of several rows, so that an
// answer that is about one row says nothing under another row.
package tablerow

import (
	"net/http"
	"time"

	"github.com/fleetthrottle/throttle"
	"github.com/fleetthrottle/throttle/feedback"
)

// PenaltyIfCharged returns a penalty that is p for the answers to requests with a cost above 0, and 0
// for all others: the refusal of a request that is free under the row is about another row.
func PenaltyIfCharged(cost func(*http.Request) int, p feedback.Penalty) feedback.Penalty {
	return func(resp *http.Response) time.Duration {
		if resp.Request == nil || cost(resp.Request) == 0 {
			return 0
		}
		return p(resp)
	}
}

// QuotaIfCharged returns a quota that is q for the answers to requests with a cost above 0, and says
// nothing for all others.
func QuotaIfCharged(cost func(*http.Request) int, q feedback.Quota) feedback.Quota {
	return func(resp *http.Response) (throttle.Quota, bool) {
		if resp.Request == nil || cost(resp.Request) == 0 {
			return throttle.Quota{}, false
		}
		return q(resp)
	}
}

// WithoutDenials returns a penalty that is p, but 0 where p is [feedback.NotRefused]: an answer that
// closes another row is a refusal, although it closes nothing under this row, and the request may be
// repeated.
func WithoutDenials(p feedback.Penalty) feedback.Penalty {
	return func(resp *http.Response) time.Duration { return max(0, p(resp)) }
}

// Outage returns a penalty that obeys the Retry-After of a 503, if [throttle.OutageAnswers] answers in
// a row are 503s: see [throttle.InARow]. The penalty counts answers, so each transport needs another
// one: it must not be a variable of a package.
func Outage() feedback.Penalty {
	return throttle.InARow(throttle.OutageAnswers, feedback.When{Status: []int{http.StatusServiceUnavailable}}.Penalty(feedback.RetryAfter(0)))
}

// Until returns a penalty that ends when the Reset of the fields says, or Retry-After beside it. It is 0 where
// Reset is missing or cannot be read, so that what the preset knows of the refusal can say for how long.
func Until(fields feedback.Headers) feedback.Penalty {
	fields.Status = []int{http.StatusForbidden}
	return func(resp *http.Response) time.Duration {
		// A 429 would be worth a penalty whatever its fields say, and a 403 is not.
		denial := *resp
		denial.StatusCode = http.StatusForbidden
		return fields.Penalty(&denial)
	}
}
