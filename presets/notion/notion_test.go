package notion_test

import (
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fleetthrottle/throttle"
	"github.com/fleetthrottle/throttle/presets/internal/presettest"
	"github.com/fleetthrottle/throttle/presets/notion"
)

const query = "POST https://api.notion.com/v1/databases/d9824bdc84454327be8b5b47500af6ce/query"

type header = presettest.Header

// limited is the body of a 429 with a reason.
func limited(reason string) string {
	return `{"object":"error","status":429,"code":"rate_limited","message":"You have been rate limited.",` +
		`"additional_data":{"rate_limit_reason":"` + reason + `"}}`
}

func TestRefusals(t *testing.T) {
	json := presettest.JSON()
	after := func(seconds string) header { return presettest.JSON("Retry-After", seconds) }
	presettest.Run(t, notion.Policies(notion.Options{}), presettest.Case{Request: query, Status: 429, Header: json}, []presettest.Case{
		{Name: "the connection", Header: after("42"), Answers: limited("public_api_request_rate_limit"), Closes: "notion-connection 42s"},
		{Name: "the workspace", Header: after("300"), Answers: limited("public_api_space_request_rate_limit"), Closes: "notion-workspace 5m"},
		{Name: "the endpoint", Header: after("5"), Answers: limited("public_api_endpoint_rate_limit"), Closes: "notion-endpoint 5s"},
		{Name: "blocked", Header: after("7"), Answers: limited("public_api_request_blocked"), Closes: "notion-connection 7s"},
		{Name: "blocked, no Retry-After", Answers: limited("public_api_request_blocked"), Closes: "notion-connection 1h"},
		{Name: "a new reason", Header: after("9"), Answers: limited("public_api_moon_phase"), Closes: "notion-connection 9s"},
		{Name: "no reason", Header: after("3"),
			Answers: `{"object":"error","status":429,"code":"rate_limited","message":"You have been rate limited."}`, Closes: "notion-connection 3s"},
		{Name: "no Retry-After", Answers: limited("public_api_request_rate_limit"), Closes: "notion-connection 1m"},
		{Name: "the workspace, no Retry-After", Answers: limited("public_api_space_request_rate_limit"), Closes: "notion-workspace 1m"},
		{Name: "overload", Status: 529, Header: after("20"),
			Answers: `{"object":"error","status":529,"code":"service_overload","message":"Notion is overloaded."}`, Closes: "notion-connection 20s"},
	})
}

func TestNoRefusals(t *testing.T) {
	json := header{"Content-Type": "application/json; charset=utf-8"}
	presettest.Run(t, notion.Policies(notion.Options{}), presettest.Case{Request: query, Header: json}, []presettest.Case{
		{Name: "an answer that quotes a refusal", Answers: limited("public_api_request_blocked")},
		{Name: "not shared with the connection", Status: 403,
			Answers: `{"object":"error","status":403,"code":"restricted_resource","message":"Insufficient permissions."}`},
		{Name: "no such token", Status: 401, Answers: `{"object":"error","status":401,"code":"unauthorized","message":"API token is invalid."}`},
		{Name: "too long", Status: 400, Answers: `{"object":"error","status":400,"code":"validation_error","message":"body failed validation"}`},
		{Name: "overload, nobody knows for how long", Status: 529, Answers: `{"code":"service_overload"}`},
		{Name: "a gateway's page", Status: 502, Header: header{"Content-Type": "text/html", "Retry-After": "9"}, Answers: "<html>"},
		{Name: "another host", Request: "https://www.notion.com/", Status: 429, Header: header{"Retry-After": "9"}},
	})
}

func TestSharedBudgets(t *testing.T) {
	with := func(method, path, token string) *http.Request {
		r := presettest.Request(t, method+" https://api.notion.com"+path)
		r.Header.Set("Authorization", "Bearer "+token)
		r.Header.Set("X-Workspace", "acme")
		return r
	}
	one := with("GET", "/v1/blocks/c02fc1d3db8b45c5a222/children", "a")
	shared := notion.Options{Workspace: "acme"}
	told := notion.Options{Caller: presettest.Headers("X-Connection", "X-Workspace")}
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
		{name: "a workspace of which the caller says", policy: "notion-workspace", options: told, other: with("GET", "/v1/pages", "b"), same: true},
		{name: "connections of which the caller says nothing", policy: "notion-connection", options: told, other: with("GET", "/v1/pages", "b")},
		{name: "a named connection", policy: "notion-connection", options: notion.Options{Connection: "c"}, other: with("GET", "/v1/pages", "b"), same: true},
		{name: "an endpoint", policy: "notion-endpoint", other: with("GET", "/v1/blocks/b55c9c91384d452b81db/children", "a"), same: true},
		{name: "another method", policy: "notion-endpoint", other: with("PATCH", "/v1/blocks/c02fc1d3db8b45c5a222/children", "a")},
		{name: "another endpoint", policy: "notion-endpoint", other: with("GET", "/v1/blocks/c02fc1d3db8b45c5a222", "a")},
		{name: "another's endpoint", policy: "notion-endpoint", other: with("GET", "/v1/blocks/c02fc1d3db8b45c5a222/children", "b")},
	} {
		require.Equal(t, c.same, presettest.Shared(t, notion.Policies(c.options), c.policy, one, c.other), c.name)
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
