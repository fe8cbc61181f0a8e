package zendesk_test

import (
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fleetthrottle/throttle/presets/internal/presettest"
	"github.com/fleetthrottle/throttle/presets/zendesk"
)

const api = "https://acme.zendesk.com/api/v2/"

func usual(status int) presettest.Case {
	return presettest.Case{Request: "PUT " + api + "tickets/7.json", Status: status, Header: presettest.JSON()}
}

func TestRefusals(t *testing.T) {
	account := presettest.Recorded(t, "account.http").As("the plan's minute", "zendesk-account 1s")
	account.Left = "zendesk-account 0 1s"
	presettest.Run(t, zendesk.Policies(zendesk.Options{}), usual(429), []presettest.Case{
		account,
		{Name: "a ticket", Header: presettest.JSON("X-Rate-Limit-Remaining", "150", "RateLimit-Reset", "41", "Retry-After", "300"), Closes: "zendesk-endpoint 5m", Left: "zendesk-account 150 41s"},
		{Name: "a help center", Request: api + "help_center/articles", Header: presettest.JSON("Retry-After", "12"), Closes: "zendesk-help-center 12s"},
		{Name: "no word", Answers: `{"error":"APIRateLimitExceeded"}`, Closes: "zendesk-account 1m"},
	})
}

func TestNoRefusals(t *testing.T) {
	presettest.Run(t, zendesk.Policies(zendesk.Options{}), usual(200), []presettest.Case{
		{Name: "not allowed", Status: 403, Header: presettest.JSON("Retry-After", "9")},
		{Name: "a conflict", Status: 409},
		{Name: "one backend is away", Status: 503, Header: presettest.JSON("Retry-After", "9")},
		{Name: "the pages", Request: "https://acme.zendesk.com/agent/tickets/7", Status: 429},
		{Name: "another host", Request: "https://api.zopim.com/api/v2/chats", Status: 429},
	})
}

func TestWhatIsLeft(t *testing.T) {
	presettest.Run(t, zendesk.Policies(zendesk.Options{}), usual(200), []presettest.Case{
		{Name: "of the plan", Header: presettest.JSON("X-Rate-Limit", "700", "X-Rate-Limit-Remaining", "69", "RateLimit-Reset", "41"), Left: "zendesk-account 69 41s"},
		{Name: "of the help center", Request: api + "help_center/articles", Header: presettest.JSON("X-Rate-Limit-Remaining", "69", "RateLimit-Reset", "41"), Left: "zendesk-help-center 69 41s"},
		{Name: "unreadable", Header: presettest.JSON("X-Rate-Limit-Remaining", "many")},
	})
}

func TestCost(t *testing.T) {
	rows := zendesk.Policies(zendesk.Options{})
	for request, charged := range map[string][]string{
		"PUT " + api + "tickets/7":                       {"zendesk-account", "zendesk-ticket", "zendesk-updates"},
		"PUT " + api + "tickets/update_many.json?ids=1":  {"zendesk-account"},
		"GET " + api + "tickets/7":                       {"zendesk-account"},
		"GET " + api + "tickets.json?page=501":           {"zendesk-account", "zendesk-list"},
		"GET " + api + "tickets.json?page=500":           {"zendesk-account"},
		"GET " + api + "incremental/tickets/cursor.json": {"zendesk-account", "zendesk-incremental"},
		"GET " + api + "search/export.json?query=x":      {"zendesk-account", "zendesk-export"},
		"GET " + api + "help_center/articles.json":       {"zendesk-help-center"},
	} {
		want := map[string]int{"zendesk-endpoint": 1}
		for _, row := range charged {
			want[row] = 1
		}
		for _, row := range rows {
			require.Equal(t, want[row.Name], presettest.Cost(t, rows, row.Name, presettest.Request(t, request, "")), "%s: %s", request, row.Name)
		}
	}
}

func TestNumbers(t *testing.T) {
	require.Contains(t, presettest.Limits(zendesk.Policies(zendesk.Options{PerMinute: zendesk.Enterprise})), "zendesk-account 700/m, zendesk-help-center 700/m")
	require.Contains(t, presettest.Limits(zendesk.Policies(zendesk.Options{HighVolume: true})), "zendesk-account 2500/m, zendesk-help-center 2500/m")
}

func TestSharedBudgets(t *testing.T) {
	with := func(account, path, token string) *http.Request {
		r := presettest.Request(t, "PUT https://"+account+".zendesk.com/api/v2/"+path, "")
		r.Header.Set("Authorization", token)
		return r
	}
	for _, c := range []struct {
		name, row string
		options   zendesk.Options
		other     *http.Request
		same      bool
	}{
		{"an account's users", "zendesk-account", zendesk.Options{}, with("acme", "tickets/8", "y"), true},
		{"another account", "zendesk-account", zendesk.Options{}, with("other", "tickets/7", "x"), false},
		{"a ticket, in both ways", "zendesk-ticket", zendesk.Options{}, with("acme", "tickets/7.json", "x"), true},
		{"another ticket", "zendesk-ticket", zendesk.Options{}, with("acme", "tickets/8", "x"), false},
		{"another user", "zendesk-ticket", zendesk.Options{}, with("acme", "tickets/7", "y"), false},
		{"a user with two tokens", "zendesk-ticket", zendesk.Options{User: "ada"}, with("acme", "tickets/7", "y"), true},
		{"another path", "zendesk-endpoint", zendesk.Options{}, with("acme", "tickets/8", "x"), false},
	} {
		require.Equal(t, c.same, presettest.Shared(t, zendesk.Policies(c.options), c.row, with("acme", "tickets/7", "x"), c.other), c.name)
	}
}
