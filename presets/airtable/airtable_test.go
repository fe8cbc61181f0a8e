package airtable_test

import (
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fleetthrottle/throttle/presets/airtable"
	"github.com/fleetthrottle/throttle/presets/internal/presettest"
)

const tasks = "https://api.airtable.com/v0/appXyz/Tasks"

func usual(status int) presettest.Case {
	return presettest.Case{Request: tasks, Status: status, Header: presettest.JSON()}
}

func TestRefusals(t *testing.T) {
	presettest.Run(t, airtable.Policies(airtable.Options{}), usual(429), []presettest.Case{
		presettest.Recorded(t, "refused.http").As("a base", "airtable-base 30s"),
		{Name: "no base", Request: "https://api.airtable.com/v0/meta/whoami", Answers: `{"errors":[{"error":"RATE_LIMIT_REACHED"}]}`, Closes: "airtable-user 30s"},
		{Name: "Retry-After", Header: presettest.JSON("Retry-After", "7"), Closes: "airtable-base 7s"},
		{Name: "a gateway's page", Header: presettest.Header{"Content-Type": "text/html"}, Answers: "<html>", Closes: "airtable-base 30s"},
	})
}

func TestNoRefusals(t *testing.T) {
	presettest.Run(t, airtable.Policies(airtable.Options{}), usual(200), []presettest.Case{
		{Name: "a month is used up", NoRefusal: true, Status: 429, Answers: `{"errors":[{"error":"PUBLIC_API_BILLING_LIMIT_EXCEEDED","message":"…"}]}`},
		{Name: "in the other form", NoRefusal: true, Status: 429, Answers: `{"error":{"type":"PUBLIC_API_BILLING_LIMIT_EXCEEDED"}}`},
		{Name: "a record that quotes a refusal", Answers: `{"errors":[{"error":"RATE_LIMIT_REACHED"}]}`},
		{Name: "not allowed", Status: 403, Answers: `{"error":{"type":"INVALID_PERMISSIONS_OR_MODEL_NOT_FOUND"}}`},
		{Name: "one backend is away", Status: 503, Header: presettest.JSON("Retry-After", "9")},
		{Name: "another host", Request: "https://content.airtable.com/v0/appXyz", Status: 429},
	})
}

func TestSharedBudgets(t *testing.T) {
	with := func(path, token string) *http.Request {
		r := presettest.Request(t, "https://api.airtable.com/v0/"+path, "")
		r.Header.Set("Authorization", token)
		return r
	}
	for _, c := range []struct {
		name, row string
		options   airtable.Options
		other     *http.Request
		same      bool
	}{
		{"a base's users", "airtable-base", airtable.Options{}, with("appXyz/Notes/rec1", "y"), true},
		{"a base's schema", "airtable-base", airtable.Options{}, with("meta/bases/appXyz/tables", "x"), true},
		{"another base", "airtable-base", airtable.Options{}, with("appAbc/Tasks", "x"), false},
		{"a user's bases", "airtable-user", airtable.Options{}, with("appAbc/Tasks", "x"), true},
		{"another user", "airtable-user", airtable.Options{}, with("appXyz/Tasks", "y"), false},
		{"a user with two tokens", "airtable-user", airtable.Options{User: "ada"}, with("appXyz/Tasks", "y"), true},
	} {
		require.Equal(t, c.same, presettest.Shared(t, airtable.Policies(c.options), c.row, with("appXyz/Tasks", "x"), c.other), c.name)
	}
	require.Zero(t, presettest.Cost(t, airtable.Policies(airtable.Options{}), "airtable-base", with("meta/whoami", "x")))
}
