package jira_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fleetthrottle/throttle/presets/internal/presettest"
	"github.com/fleetthrottle/throttle/presets/jira"
)

const (
	site  = "https://acme.atlassian.net/rest/api/3/"
	write = "PUT " + site + "issue/ABC-1"
)

type header = presettest.Header

func TestSharedBudgets(t *testing.T) {
	for _, c := range []struct {
		policy, a, b string
		options      jira.Options
		same         bool
	}{
		{policy: "jira-quota", a: site + "issue/A-1", b: "https://other.atlassian.net/rest/agile/1.0/board", same: true},
		{policy: "jira-quota", a: site + "issue/A-1", b: "https://other.atlassian.net/rest/api/3/issue/A-1", options: jira.Options{PerTenant: true}},
		{policy: "jira-quota", a: site + "issue/A-1", b: "https://ACME.atlassian.net/rest/api/3/user", options: jira.Options{PerTenant: true}, same: true},
		{policy: "jira-burst-GET", a: site + "issue/A-1", b: site + "issue/B-2", same: true},
		{policy: "jira-burst-GET", a: site + "issue/A-1", b: site + "issue/A-1/comment"},
		{policy: "jira-burst-GET", a: site + "myself", b: "https://other.atlassian.net/rest/api/3/myself"},
		{policy: "jira-issue-2s", a: write, b: "POST " + site + "issue/ABC-1/comment", same: true},
		{policy: "jira-issue-2s", a: write, b: "PUT " + site + "issue/ABC-2"},
	} {
		a, b := presettest.Request(t, c.a), presettest.Request(t, c.b)
		require.Equal(t, c.same, presettest.Shared(t, jira.Policies(c.options), c.policy, a, b), "%+v", c)
	}
}

func TestRows(t *testing.T) {
	for request, want := range map[string]string{
		"GET " + site + "issue/ABC-1":          "jira-quota, jira-burst-GET",
		"POST " + site + "issue":               "jira-quota, jira-burst-POST",
		"POST " + site + "issue/bulk":          "jira-quota, jira-burst-POST",
		"DELETE " + site + "issue/10002":       "jira-quota, jira-burst-DELETE, jira-issue-2s, jira-issue-30s",
		"PUT " + site + "issue/ABC-1/assignee": "jira-quota, jira-burst-PUT, jira-issue-2s, jira-issue-30s",
	} {
		require.Equal(t, want, presettest.Rows(t, jira.Policies(jira.Options{}), presettest.Request(t, request)), request)
	}
	gateway := jira.Policies(jira.Options{Host: jira.Gateway, Quota: jira.Tier2(300), PerTenant: true})
	const there = "https://api.atlassian.com/ex/jira/11223344-a1b2-3b33-c444-def123456789/rest/api/3/issue/ABC-1"
	require.Equal(t, "jira-quota, jira-burst-GET", presettest.Rows(t, gateway, presettest.Request(t, there)))
	require.Equal(t, 103_000, gateway[0].Limit.N())
	require.Equal(t, 500_000, jira.Tier2(1_000_000))
}

// reset is the time that the source prints, and date what makes it 30 seconds.
const (
	reset = "2026-01-01T01:01:01Z"
	date  = "Thu, 01 Jan 2026 01:00:31 GMT"
)

func TestRefusals(t *testing.T) {
	presettest.Run(t, jira.Policies(jira.Options{}), presettest.Case{Request: write, Status: 429}, []presettest.Case{
		{Name: "the app's quota",
			Header: header{"RateLimit-Reason": "jira-quota-global-based", "Retry-After": "1847", "X-RateLimit-Reset": reset, "Date": date},
			Closes: "jira-quota 30m47s"},
		{Name: "the app's quota, as the source prints it",
			Header: header{"RateLimit-Reason": "jira-quota-global-based", "Retry-After": "1", "X-RateLimit-Reset": reset, "Date": date},
			Closes: "jira-quota 1s"},
		{Name: "a tenant's quota, with the reset alone",
			Header: header{"RateLimit-Reason": "jira-quota-tenant-based", "X-RateLimit-Reset": reset, "Date": date}, Closes: "jira-quota 31s"},
		{Name: "a quota, without both", Header: header{"RateLimit-Reason": "jira-quota-tenant-based", "Date": "Thu, 01 Jan 2026 01:40:00 GMT"},
			Closes: "jira-quota 20m"},
		{Name: "a quota, and a reset that is cut to the minute",
			Header: header{"RateLimit-Reason": "jira-quota-global-based", "Retry-After": "1847", "X-RateLimit-Reset": "2026-01-01T01:31Z", "Date": date},
			Closes: "jira-quota 30m47s"},
		{Name: "a quota, and nothing but a reset that is cut to the minute",
			Header: header{"RateLimit-Reason": "jira-quota-tenant-based", "X-RateLimit-Reset": "2026-01-01T01:31Z", "Date": date}, Closes: "jira-quota 31m29s"},
		{Name: "a quota, and a cut minute that looks past",
			Header: header{"RateLimit-Reason": "jira-quota-global-based", "Retry-After": "5", "X-RateLimit-Reset": "2026-01-01T01:00Z", "Date": date},
			Closes: "jira-quota 5s"},
		{Name: "a burst, and a reset that is cut to the minute",
			Header: header{"RateLimit-Reason": "jira-burst-based", "Retry-After": "1", "X-RateLimit-Reset": "2026-01-01T01:00Z", "Date": date},
			Closes: "jira-burst-PUT 1s"},
		{Name: "a quota, and a reset that cannot be read",
			Header: header{"RateLimit-Reason": "jira-quota-global-based", "X-RateLimit-Reset": "soon", "Date": date}, Closes: "jira-quota 59m29s"},
		{Name: "burst", Header: header{"RateLimit-Reason": "jira-burst-based", "Retry-After": "1", "X-RateLimit-Reset": reset, "Date": date},
			Closes: "jira-burst-PUT 1s"},
		{Name: "burst, with the reset alone", Header: header{"RateLimit-Reason": "jira-burst-based", "X-RateLimit-Reset": reset, "Date": date},
			Closes: "jira-burst-PUT 31s"},
		{Name: "burst, with a reset that cannot be read", Header: header{"RateLimit-Reason": "jira-burst-based", "X-RateLimit-Reset": "soon"}, Closes: "jira-burst-PUT 1s"},
		{Name: "burst of reads", Request: site + "issue/ABC-1", Header: header{"RateLimit-Reason": "jira-burst-based", "Retry-After": "3"},
			Closes: "jira-burst-GET 3s"},
		{Name: "burst, without both", Request: "DELETE " + site + "issue/ABC-1", Header: header{"RateLimit-Reason": "jira-burst-based"},
			Closes: "jira-burst-DELETE 1s"},
		{Name: "no reason", Request: "POST " + site + "search", Header: header{"Retry-After": "2"}, Closes: "jira-burst-POST 2s"},
		{Name: "one issue", Header: header{"RateLimit-Reason": "jira-per-issue-on-write", "Retry-After": "2"},
			Closes: "jira-issue-2s 2s, jira-issue-30s 2s"},
		{Name: "a quota, of a request that has none", Sends: header{"Authorization": "Basic YTpi"}, Header: header{"RateLimit-Reason": "jira-quota-tenant-based", "Retry-After": "1847"},
			Closes: "jira-burst-PUT 30m47s"},
		{Name: "one issue, of a request that names none", Request: "POST " + site + "issue/bulk", Header: header{"RateLimit-Reason": "jira-per-issue-on-write", "Retry-After": "2"},
			Closes: "jira-burst-POST 2s"},
		{Name: "a method without a number", Request: "PATCH " + site + "project/A", Header: header{"Retry-After": "7"}, Closes: "jira-burst-PATCH 7s"},
		{Name: "away, for a while, says one backend", Status: 503, Header: header{"Retry-After": "7"}},
	})
}

func TestNoRefusals(t *testing.T) {
	presettest.Run(t, jira.Policies(jira.Options{}), presettest.Case{Request: write, Status: 204}, []presettest.Case{
		{Name: "written"},
		{Name: "a quota that is back", Status: 429, Header: header{"RateLimit-Reason": "jira-quota-global-based", "Retry-After": "0"}},
		{Name: "near the limit",
			Header: header{"X-RateLimit-NearLimit": "true", "X-RateLimit-Reset": reset, "RateLimit-Reason": "jira-burst-based", "Date": date}},
		{Name: "a reason to be careful", Header: header{"RateLimit-Reason": "jira-quota-global-based", "Retry-After": "9"}},
		{Name: "not allowed", Status: 403, Header: header{"Content-Type": "application/json", "X-RateLimit-Reset": reset, "Date": date},
			Answers: `{"errorMessages":["You do not have permission to edit issues in this project."],"errors":{}}`},
		{Name: "unknown caller", Status: 401, Header: header{"Beta-RateLimit": `"global-app-quota";r=0;t=600`}},
		{Name: "away", Status: 503, Header: header{"Content-Type": "text/html"}, Answers: "<html>"},
		{Name: "moved", Status: 301, Header: header{"Retry-After": "9"}},
		{Name: "another product", Request: "https://acme.atlassian.net/wiki/rest/api/content", Status: 429, Header: header{"Retry-After": "9"}},
	})
}

func TestWhatIsLeft(t *testing.T) {
	policy := `"global-app-quota";q=65000;w=3600`
	presettest.Run(t, jira.Policies(jira.Options{}), presettest.Case{Request: write}, []presettest.Case{
		{Name: "much", Status: 204, Header: header{"Beta-RateLimit-Policy": policy, "Beta-RateLimit": `"global-app-quota";r=11000;t=600`},
			Left: "jira-quota 11000 10m"},
		{Name: "far from the limit it is not said", Status: 204,
			Header: header{"Beta-RateLimit-Policy": policy, "Beta-RateLimit": `"global-app-quota";t=600`}},
	})
}
