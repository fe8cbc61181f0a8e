package notion_test

import (
	"fmt"
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fleetthrottle/throttle"
	"github.com/fleetthrottle/throttle/memstore"
	"github.com/fleetthrottle/throttle/presets/internal/presettest"
	"github.com/fleetthrottle/throttle/presets/notion"
)

const query = "POST https://api.notion.com/v1/databases/d9824bdc84454327be8b5b47500af6ce/query"

type (
	header = presettest.Header
	closes = map[string]time.Duration
)

// limited is the body of a 429 with a reason.
func limited(reason string) string {
	return `{"object":"error","status":429,"code":"rate_limited","message":"You have been rate limited.",` +
		`"additional_data":{"rate_limit_reason":"` + reason + `"}}`
}

func TestRefusals(t *testing.T) {
	json := header{"Content-Type": "application/json; charset=utf-8"}
	after := func(seconds string) header {
		return header{"Content-Type": json["Content-Type"], "Retry-After": seconds}
	}
	presettest.Run(t, notion.Policies(notion.Options{}), []presettest.Case{
		{
			Name: "the connection", Request: query, Status: 429,
			Header: after("42"), Answers: limited("public_api_request_rate_limit"),
			Closes: closes{"notion-connection": 42 * time.Second},
		},
		{
			Name: "the workspace", Request: query, Status: 429,
			Header: after("300"), Answers: limited("public_api_space_request_rate_limit"),
			Closes: closes{"notion-workspace": 5 * time.Minute},
		},
		{
			Name: "the endpoint", Request: query, Status: 429,
			Header: after("5"), Answers: limited("public_api_endpoint_rate_limit"),
			Closes: closes{"notion-endpoint": 5 * time.Second},
		},
		{
			Name: "blocked", Request: query, Status: 429,
			Header: after("7"), Answers: limited("public_api_request_blocked"),
			Closes: closes{"notion-connection": 7 * time.Second},
		},
		{
			Name: "blocked, no Retry-After", Request: query, Status: 429,
			Header: json, Answers: limited("public_api_request_blocked"),
			Closes: closes{"notion-connection": time.Hour},
		},
		{
			Name: "a new reason", Request: query, Status: 429,
			Header: after("9"), Answers: limited("public_api_moon_phase"),
			Closes: closes{"notion-connection": 9 * time.Second},
		},
		{
			Name: "no reason", Request: query, Status: 429, Header: after("3"),
			Answers: `{"object":"error","status":429,"code":"rate_limited","message":"You have been rate limited."}`,
			Closes:  closes{"notion-connection": 3 * time.Second},
		},
		{
			Name: "no Retry-After", Request: query, Status: 429,
			Header: json, Answers: limited("public_api_request_rate_limit"),
			Closes: closes{"notion-connection": time.Minute},
		},
		{
			Name: "the workspace, no Retry-After", Request: query, Status: 429,
			Header: json, Answers: limited("public_api_space_request_rate_limit"),
			Closes: closes{"notion-workspace": time.Minute},
		},
		{
			Name: "overload", Request: query, Status: 529, Header: after("20"),
			Answers: `{"object":"error","status":529,"code":"service_overload","message":"Notion is overloaded."}`,
			Closes:  closes{"notion-connection": 20 * time.Second},
		},
	})
}

func TestNoRefusals(t *testing.T) {
	json := header{"Content-Type": "application/json; charset=utf-8"}
	presettest.Run(t, notion.Policies(notion.Options{}), []presettest.Case{
		{Name: "an answer that quotes a refusal", Request: query, Header: json, Answers: limited("public_api_request_blocked")},
		{
			Name: "not shared with the connection", Request: query, Status: 403, Header: json,
			Answers: `{"object":"error","status":403,"code":"restricted_resource","message":"Insufficient permissions."}`,
		},
		{
			Name: "no such token", Request: query, Status: 401, Header: json,
			Answers: `{"object":"error","status":401,"code":"unauthorized","message":"API token is invalid."}`,
		},
		{
			Name: "too long", Request: query, Status: 400, Header: json,
			Answers: `{"object":"error","status":400,"code":"validation_error","message":"body failed validation"}`,
		},
		{Name: "overload, nobody knows for how long", Request: query, Status: 529, Header: json, Answers: `{"code":"service_overload"}`},
		{Name: "a gateway's page", Request: query, Status: 502, Header: header{"Content-Type": "text/html", "Retry-After": "9"}, Answers: "<html>"},
		{Name: "another host", Request: "https://www.notion.com/", Status: 429, Header: header{"Retry-After": "9"}},
	})
}

func TestStreamsAreLeftAlone(t *testing.T) {
	r := presettest.Request(t, query, nil)
	require.Zero(t, presettest.LookedAt(t, notion.Policies(notion.Options{}), r, 200, header{"Content-Type": "application/json"}, "{"))
}

func TestSharedBudgets(t *testing.T) {
	with := func(method, path, token string) *http.Request {
		r := presettest.Request(t, method+" https://api.notion.com"+path, nil)
		r.Header.Set("Authorization", "Bearer "+token)
		r.Header.Set("X-Workspace", "acme")
		return r
	}
	one := with("GET", "/v1/blocks/c02fc1d3db8b45c5a222/children", "a")
	shared := notion.Options{Workspace: throttle.Header("X-Workspace")}
	for _, c := range []struct {
		name, policy string
		options      notion.Options
		other        *http.Request
		same         bool
	}{
		{name: "a connection", policy: "notion-connection", other: with("POST", "/v1/pages", "a"), same: true},
		{name: "two connections", policy: "notion-connection", other: with("GET", "/v1/pages", "b")},
		{name: "two connections, workspace unknown", policy: "notion-workspace", other: with("GET", "/v1/pages", "b")},
		{name: "two connections, one workspace", policy: "notion-workspace", options: shared, other: with("GET", "/v1/pages", "b"), same: true},
		{name: "an endpoint", policy: "notion-endpoint", other: with("GET", "/v1/blocks/b55c9c91384d452b81db/children", "a"), same: true},
		{name: "another method", policy: "notion-endpoint", other: with("PATCH", "/v1/blocks/c02fc1d3db8b45c5a222/children", "a")},
		{name: "another endpoint", policy: "notion-endpoint", other: with("GET", "/v1/blocks/c02fc1d3db8b45c5a222", "a")},
		{name: "another's endpoint", policy: "notion-endpoint", other: with("GET", "/v1/blocks/c02fc1d3db8b45c5a222/children", "b")},
	} {
		t.Run(c.name, func(t *testing.T) {
			policies := notion.Policies(c.options)
			budget := presettest.Budget(t, policies, c.policy, one)
			require.NotEmpty(t, budget)
			require.Equal(t, c.same, budget == presettest.Budget(t, policies, c.policy, c.other))
		})
	}
}

func TestPlans(t *testing.T) {
	for _, perMinute := range []int{notion.Standard, notion.Business, notion.Enterprise} {
		limit := notion.Policies(notion.Options{PerMinute: perMinute})[0].Limit
		require.Equal(t, throttle.PerMinute(perMinute), limit)
	}
	require.Equal(t, throttle.PerMinute(180), notion.Policies(notion.Options{})[0].Limit)
	require.Equal(t, 600, notion.Business)
}

func Example() {
	transport := throttle.Must(throttle.New(throttle.Config{
		Store:    memstore.New(),
		Policies: notion.Policies(notion.Options{PerMinute: notion.Business}),
	}))
	r, err := http.NewRequest(http.MethodPost, "https://api.notion.com/v1/search", nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, c := range transport.Explain(r) {
		fmt.Println(c.Budget.Policy, c.Limit)
	}
	// Output:
	// notion-connection 600/m
	// notion-workspace unlimited
	// notion-endpoint unlimited
}
