// Package paid keeps the rows of a table from answering for requests that are
// free under them: an upstream that refuses one of those speaks of another row.
package paid

import (
	"net/http"
	"time"

	"github.com/fleetthrottle/throttle"
	"github.com/fleetthrottle/throttle/feedback"
)

// Penalty returns p for the answers to requests that cost something, and 0 for
// all others.
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
