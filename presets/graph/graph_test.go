package graph_test

import (
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fleetthrottle/throttle/presets/graph"
	"github.com/fleetthrottle/throttle/presets/internal/presettest"
)

const mail = "https://graph.microsoft.com/v1.0/users/ada/messages"

func usual(status int) presettest.Case {
	return presettest.Case{Request: mail, Status: status, Header: presettest.JSON()}
}

func TestRefusals(t *testing.T) {
	files := presettest.Recorded(t, "files.http").As("another service", "graph-service 41s")
	files.Request = "POST https://graph.microsoft.com/v1.0/drives/b!c/items/01/children"
	presettest.Run(t, graph.Policies(graph.Options{}), usual(429), []presettest.Case{
		presettest.Recorded(t, "concurrency.http").As("a mailbox's requests in flight", "graph-mailbox-concurrency 10s"),
		files,
		{Name: "Retry-After", Header: presettest.JSON("Retry-After", "3"),
			Answers: `{"error":{"code":"ApplicationThrottled","message":"Application is over its MailboxConcurrency limit."}}`, Closes: "graph-mailbox-concurrency 3s"},
		{Name: "a mailbox's requests", Header: presettest.JSON("Retry-After", "120"),
			Answers: `{"error":{"code":"ApplicationThrottled","message":"Application is over its Rest limit."}}`, Closes: "graph-mailbox 2m"},
		{Name: "it does not say for how long", Request: "https://graph.microsoft.com/v1.0/me/onenote/pages", Answers: `{"error":{}}`, Closes: "graph-service 10s"},
		{Name: "a mailbox, of a page", Header: presettest.Header{"Content-Type": "text/html"}, Answers: "<html>", Closes: "graph-mailbox 10s"},
		{Name: "the name of a mailbox's limit, elsewhere", Request: "https://graph.microsoft.com/v1.0/users", Answers: `{"error":{"message":"MailboxConcurrency"}}`, Closes: "graph-service 10s"},
	})
}

func TestNoRefusals(t *testing.T) {
	presettest.Run(t, graph.Policies(graph.Options{}), usual(200), []presettest.Case{
		{Name: "a message that quotes a refusal", Answers: `{"error":{"message":"MailboxConcurrency"}}`},
		{Name: "not allowed", Status: 403, Answers: `{"error":{"code":"ErrorAccessDenied"}}`},
		{Name: "one backend is away", Status: 503, Header: presettest.JSON("Retry-After", "9")},
		{Name: "another host", Request: "https://login.microsoftonline.com/", Status: 429},
	})
}

func TestCost(t *testing.T) {
	for _, c := range []struct {
		request               string
		mailbox, upload, unit int
	}{
		{request: "GET https://graph.microsoft.com/v1.0/me/messages", mailbox: 1},
		{request: "GET https://graph.microsoft.com/beta/groups/g/conversations", mailbox: 1},
		{request: "GET https://graph.microsoft.com/v1.0/me/mailFolders/inbox/messages/x", mailbox: 1},
		{request: "POST https://graph.microsoft.com/v1.0/users/ada/sendMail", mailbox: 1, upload: 5},
		{request: "GET https://graph.microsoft.com/v1.0/users/ada/sendMail", mailbox: 1},
		{request: "GET https://graph.microsoft.com/v1.0/me", unit: 1},
		{request: "GET https://graph.microsoft.com/v1.0/me/drive/root", unit: 1},
		{request: "PUT https://graph.microsoft.com/v1.0/me/drive/root:/x:/content", unit: 1},
		{request: "GET https://graph.microsoft.com/v1.0/teams/t/channels", unit: 1},
		{request: "POST https://graph.microsoft.com/v1.0/$batch", unit: 1},
		{request: "GET https://graph.microsoft.com/", unit: 1},
	} {
		r, rows := presettest.Request(t, c.request, "hello"), graph.Policies(graph.Options{})
		require.Equal(t, c.mailbox, presettest.Cost(t, rows, "graph-mailbox", r), c.request)
		require.Equal(t, c.mailbox, presettest.Cost(t, rows, "graph-mailbox-concurrency", r), c.request)
		require.Equal(t, c.upload, presettest.Cost(t, rows, "graph-mailbox-upload", r), c.request)
		require.Equal(t, c.unit, presettest.Cost(t, rows, "graph-service", r), c.request)
	}
	huge := presettest.Request(t, "POST "+mail, "")
	huge.ContentLength = 1 << 40
	require.Equal(t, 150_000_000, presettest.Cost(t, graph.Policies(graph.Options{}), "graph-mailbox-upload", huge))
	huge.ContentLength = -1
	require.Zero(t, presettest.Cost(t, graph.Policies(graph.Options{}), "graph-mailbox-upload", huge))
}

func TestSharedBudgets(t *testing.T) {
	with := func(path, token string) *http.Request {
		r := presettest.Request(t, "https://graph.microsoft.com/v1.0/"+path, "")
		r.Header.Set("Authorization", token)
		return r
	}
	byToken := graph.Options{Caller: func(r *http.Request) (app, tenant string) { return "a", r.Header.Get("Authorization") }}
	for _, c := range []struct {
		name, row  string
		options    graph.Options
		one, other *http.Request
		same       bool
	}{
		{"a mailbox", "graph-mailbox", graph.Options{}, with("users/ada/messages", "x"), with("users/ADA/events", "y"), true},
		{"another mailbox", "graph-mailbox", graph.Options{}, with("users/ada/messages", "x"), with("users/bob/messages", "x"), false},
		{"somebody's own", "graph-mailbox", graph.Options{}, with("me/messages", "x"), with("me/events", "x"), true},
		{"somebody else's own", "graph-mailbox", graph.Options{}, with("me/messages", "x"), with("me/messages", "y"), false},
		{"a service", "graph-service", graph.Options{}, with("users/ada/drive", "x"), with("me/drive/root", "y"), true},
		{"another service", "graph-service", graph.Options{}, with("teams/t", "x"), with("sites/s", "x"), false},
		{"another tenant", "graph-service", byToken, with("teams/t", "x"), with("teams/t", "y"), false},
		{"another tenant of the app", "graph-app", byToken, with("teams/t", "x"), with("teams/t", "y"), true},
	} {
		require.Equal(t, c.same, presettest.Shared(t, graph.Policies(c.options), c.row, c.one, c.other), c.name)
	}
}
