package jira_test

import (
	"testing"
	"time"

	"github.com/fleetthrottle/throttle"
	"github.com/fleetthrottle/throttle/presets/internal/presettest"
	"github.com/fleetthrottle/throttle/presets/jira"
)

// reset is the time that the source prints, and date what makes it 30 seconds.
const (
	reset = "2026-01-01T01:01:01Z"
	date  = "Thu, 01 Jan 2026 01:00:31 GMT"
)

func TestRefusals(t *testing.T) {
	presettest.Run(t, jira.Policies(jira.Options{}), []presettest.Case{
		{
			Name: "the app's quota", Request: write, Status: 429,
			Header: header{"RateLimit-Reason": "jira-quota-global-based", "Retry-After": "1847", "X-RateLimit-Reset": reset, "Date": date},
			Closes: closes{"jira-quota": 1847 * time.Second},
		},
		{
			Name: "the app's quota, as the source prints it", Request: write, Status: 429,
			Header: header{"RateLimit-Reason": "jira-quota-global-based", "Retry-After": "1", "X-RateLimit-Reset": reset, "Date": date},
			Closes: closes{"jira-quota": time.Second},
		},
		{
			Name: "a tenant's quota, with the reset alone", Request: write, Status: 429,
			Header: header{"RateLimit-Reason": "jira-quota-tenant-based", "X-RateLimit-Reset": reset, "Date": date},
			Closes: closes{"jira-quota": 31 * time.Second},
		},
		{
			Name: "a quota, without both", Request: write, Status: 429,
			Header: header{"RateLimit-Reason": "jira-quota-tenant-based", "Date": "Thu, 01 Jan 2026 01:40:00 GMT"},
			Closes: closes{"jira-quota": 20 * time.Minute},
		},
		{
			Name: "burst", Request: write, Status: 429,
			Header: header{"RateLimit-Reason": "jira-burst-based", "Retry-After": "1", "X-RateLimit-Reset": reset, "Date": date},
			Closes: closes{"jira-burst-PUT": time.Second},
		},
		{
			Name: "burst of reads", Request: site + "issue/ABC-1", Status: 429,
			Header: header{"RateLimit-Reason": "jira-burst-based", "Retry-After": "3"},
			Closes: closes{"jira-burst-GET": 3 * time.Second},
		},
		{
			Name: "burst, without both", Request: "DELETE " + site + "issue/ABC-1", Status: 429,
			Header: header{"RateLimit-Reason": "jira-burst-based"},
			Closes: closes{"jira-burst-DELETE": time.Second},
		},
		{
			Name: "no reason", Request: "POST " + site + "search", Status: 429,
			Header: header{"Retry-After": "2"},
			Closes: closes{"jira-burst-POST": 2 * time.Second},
		},
		{
			Name: "one issue", Request: write, Status: 429,
			Header: header{"RateLimit-Reason": "jira-per-issue-on-write", "Retry-After": "2"},
			Closes: closes{"jira-issue-2s": 2 * time.Second, "jira-issue-30s": 2 * time.Second},
		},
		{
			Name: "away, for a while, says one backend", Request: write, Status: 503,
			Header: header{"Retry-After": "7"},
		},
	})
}

func TestNoRefusals(t *testing.T) {
	presettest.Run(t, jira.Policies(jira.Options{}), []presettest.Case{
		{Name: "written", Request: write, Status: 204},
		{
			Name: "a quota that is back", Request: write, Status: 429,
			Header: header{"RateLimit-Reason": "jira-quota-global-based", "Retry-After": "0"},
		},
		{
			Name: "near the limit", Request: write, Status: 204,
			Header: header{"X-RateLimit-NearLimit": "true", "X-RateLimit-Reset": reset, "RateLimit-Reason": "jira-burst-based", "Date": date},
		},
		{
			Name: "a reason to be careful", Request: write, Status: 204,
			Header: header{"RateLimit-Reason": "jira-quota-global-based", "Retry-After": "9"},
		},
		{
			Name: "not allowed", Request: write, Status: 403,
			Header:  header{"Content-Type": "application/json", "X-RateLimit-Reset": reset, "Date": date},
			Answers: `{"errorMessages":["You do not have permission to edit issues in this project."],"errors":{}}`,
		},
		{Name: "unknown caller", Request: write, Status: 401, Header: header{"Beta-RateLimit": `"global-app-quota";r=0;t=600`}},
		{Name: "away", Request: write, Status: 503, Header: header{"Content-Type": "text/html"}, Answers: "<html>"},
		{Name: "moved", Request: write, Status: 301, Header: header{"Retry-After": "9"}},
		{Name: "another product", Request: "https://acme.atlassian.net/wiki/rest/api/content", Status: 429, Header: header{"Retry-After": "9"}},
	})
}

func TestWhatIsLeft(t *testing.T) {
	policy := `"global-app-quota";q=65000;w=3600`
	presettest.Run(t, jira.Policies(jira.Options{}), []presettest.Case{
		{
			Name: "much", Request: write, Status: 204,
			Header: header{"Beta-RateLimit-Policy": policy, "Beta-RateLimit": `"global-app-quota";r=11000;t=600`},
			Left:   map[string]throttle.Quota{"jira-quota": {Left: 11000, Reset: 10 * time.Minute}},
		},
		{
			Name: "far from the limit it is not said", Request: write, Status: 204,
			Header: header{"Beta-RateLimit-Policy": policy, "Beta-RateLimit": `"global-app-quota";t=600`},
		},
	})
}
