package jira_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fleetthrottle/throttle"
	"github.com/fleetthrottle/throttle/memstore"
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

func Example() {
	transport := throttle.Must(throttle.New(throttle.Config{MaxWait: throttle.Forever, Store: memstore.New(), Policies: jira.Policies(jira.Options{})}))
	r := httptest.NewRequest(http.MethodPut, "https://acme.atlassian.net/rest/api/3/issue/ABC-1", nil)
	for _, c := range transport.Explain(r) {
		fmt.Println(c.Budget.Policy, c.Limit)
	}
	// Output:
	// jira-quota 65000/h fixed
	// jira-burst-PUT 50/s
	// jira-issue-2s 20/2s
	// jira-issue-30s 100/30s
}
