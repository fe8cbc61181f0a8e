// Package tablerow makes the readers of rows in a table of several rows, so that an answer about
// one row closes no second row.
package tablerow

import (
	"net/http"
	"reflect"

	"github.com/fleetthrottle/throttle"
	"github.com/fleetthrottle/throttle/feedback"
)

// Table returns the rows of a table that knows the refusals of its upstream: a 429 or 503 that a row's
// Answer does not know is about a different row, so the default does not close the row. Rows
// without an Answer keep the default. Table changes the rows that it is given.
func Table(rows []throttle.Policy) []throttle.Policy {
	for i := range rows {
		if read := rows[i].Answer; read != nil && !leavesOpen(read) {
			rows[i].Answer = feedback.First(read, feedback.LeaveOpen)
		}
	}
	return rows
}

// leavesOpen reports whether a reader is [feedback.LeaveOpen], by which policy files and the proxy know rows
// that no answer closes.
func leavesOpen(read feedback.Reader) bool {
	return reflect.ValueOf(read).Pointer() == reflect.ValueOf(feedback.LeaveOpen).Pointer()
}

// IfCharged returns a reader that asks r about the answers to requests with a cost above 0, and ignores
// all other answers: the refusal of a request that is free under the row is about a different row.
func IfCharged(cost func(*http.Request) int, r feedback.Reader) feedback.Reader {
	return func(resp *http.Response) throttle.Answer {
		if resp.Request == nil || cost(resp.Request) == 0 {
			return throttle.Answer{}
		}
		return r(resp)
	}
}

// OutageAnswers is how many answers in a row must be a 503 before a row takes the upstream for down, as the default
// of [throttle.Policy.Answer] does.
const OutageAnswers = 10

// Outage returns a reader that obeys the Retry-After of a 503, if [OutageAnswers] answers in a row
// are 503s: see [feedback.InARow]. The reader counts answers, so each transport needs its own: do
// not share one in a package variable.
func Outage() feedback.Reader {
	return feedback.InARow(OutageAnswers, feedback.When{Status: []int{http.StatusServiceUnavailable}}.Then(feedback.RetryAfter(0)))
}

// Until returns a reader that closes the row until the fields' Reset, or for the Retry-After beside
// it. It ignores answers without a readable Reset, so that the preset can supply the duration.
func Until(fields feedback.Headers) feedback.Reader {
	fields.Status = []int{http.StatusForbidden}
	return func(resp *http.Response) throttle.Answer {
		// Headers takes a 429 for a refusal even if its Reset cannot be read, but not a 403. So make any answer a 403.
		denial := *resp
		denial.StatusCode = http.StatusForbidden
		a := fields.Answer(&denial)
		return throttle.Answer{Verdict: a.Verdict, Close: a.Close}
	}
}
