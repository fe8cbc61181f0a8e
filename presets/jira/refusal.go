package jira

import (
	"net/http"
	"slices"
	"time"

	"github.com/fleetthrottle/throttle/feedback"
	"github.com/fleetthrottle/throttle/presets/internal/tablerow"
)

// refused is the penalty of the 429s that give one of the reasons.
func refused(p feedback.Penalty, reasons ...string) feedback.Penalty {
	return func(resp *http.Response) time.Duration {
		if resp.StatusCode != http.StatusTooManyRequests || !slices.Contains(reasons, reason(resp)) {
			return 0
		}
		return p(resp)
	}
}

func reason(resp *http.Response) string { return resp.Header.Get("RateLimit-Reason") }

// soon is for how long a limit by the second closes its budget.
var soon = feedback.Headers{Reset: "X-RateLimit-Reset", Per: time.Second}.Penalty

// burstRefused is the penalty of all refusals that no other row knows.
func burstRefused() feedback.Penalty {
	return tablerow.WithoutDenials(feedback.First(
		refused(feedback.For(feedback.NotRefused), "jira-quota-global-based", "jira-quota-tenant-based", "jira-per-issue-on-write"),
		feedback.When{Status: []int{429}}.Penalty(soon),
		tablerow.Outage(),
	))
}
