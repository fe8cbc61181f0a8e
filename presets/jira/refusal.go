package jira

import (
	"net/http"
	"slices"
	"time"

	"github.com/fleetthrottle/throttle"
	"github.com/fleetthrottle/throttle/feedback"
	"github.com/fleetthrottle/throttle/presets/internal/tablerow"
)

// refused is the penalty of the 429s that give one of the reasons.
func refused(p feedback.Reader, reasons ...string) feedback.Reader {
	return func(resp *http.Response) throttle.Answer {
		if resp.StatusCode != http.StatusTooManyRequests || !slices.Contains(reasons, reason(resp)) {
			return throttle.Answer{}
		}
		return p(resp)
	}
}

func reason(resp *http.Response) string { return resp.Header.Get("RateLimit-Reason") }

var (
	// soon is for how long a limit by the second closes its budget.
	soon = feedback.First(tablerow.Until(feedback.Headers{Reset: "X-RateLimit-Reset"}), feedback.RetryAfter(time.Second))

	// nextHour is for how long a quota does.
	nextHour = feedback.Headers{Reset: "X-RateLimit-Reset", Per: time.Hour, Clock: true}.Answer
)

// burstRefused is the penalty of all refusals that close no other row.
func (o *Options) burstRefused() feedback.Reader {
	return feedback.First(
		feedback.When{Status: []int{http.StatusTooManyRequests}}.Then(func(resp *http.Response) throttle.Answer {
			if o.closesAnother(resp) {
				return throttle.Answer{}
			}
			return soon(resp)
		}),
		tablerow.Outage(),
	)
}

// closesAnother reports whether a refusal gives a reason that is about a different budget of the
// request.
func (o *Options) closesAnother(resp *http.Response) bool {
	if resp.Request == nil {
		return false
	}
	switch reason(resp) {
	case "jira-quota-global-based", "jira-quota-tenant-based":
		return o.cost(resp.Request) > 0
	case "jira-per-issue-on-write":
		return writes(resp.Request) > 0
	}
	return false
}
