package slack_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fleetthrottle/throttle"
	"github.com/fleetthrottle/throttle/presets/internal/presettest"
	"github.com/fleetthrottle/throttle/presets/slack"
)

type header = presettest.Header

const (
	users   = "https://slack.com/api/users.list"
	user    = "https://slack.com/api/users.info?user=U1"
	history = "https://slack.com/api/conversations.history?channel=C1"
	replies = "https://slack.com/api/conversations.replies?channel=C1"
	message = "POST https://slack.com/api/chat.postMessage"

	ratelimited = `{"ok":false,"error":"ratelimited"}`
)

func TestRefusals(t *testing.T) {
	presettest.Run(t, slack.Policies(slack.Options{}), presettest.Case{Request: users}, []presettest.Case{
		{Name: "429", Status: 429, Header: header{"Retry-After": "30"}, Answers: ratelimited, Closes: "slack-tier-2 30s"},
		{Name: "429 that does not say", Status: 429, Closes: "slack-tier-2 1m"},
		{Name: "an old method", Answers: ratelimited, Closes: "slack-tier-2 1m"},
		{Name: "an old method that says when", Answers: ratelimited, Header: header{"Retry-After": "10"}, Closes: "slack-tier-2 10s"},
		{Name: "history", Request: history, Status: 429, Header: header{"Retry-After": "30"}, Closes: "slack-tier-3 30s"},
		{Name: "a message", Request: message, Status: 429, Header: header{"Retry-After": "1"}, Answers: ratelimited, Closes: "slack-message 1s"},
	})
}

func TestNoRefusals(t *testing.T) {
	presettest.Run(t, slack.Policies(slack.Options{}), presettest.Case{Request: users}, []presettest.Case{
		{Name: "success", Answers: `{"ok":true,"members":[]}`},
		{Name: "a token that is wrong", Answers: `{"ok":false,"error":"invalid_auth"}`},
		{Name: "no permission", Answers: `{"ok":false,"error":"missing_scope","needed":"users:read"}`},
		{Name: "too much text", Request: message, Answers: `{"ok":false,"error":"msg_too_long"}`},
		{Name: "a message about it", Request: history, Answers: `{"ok":true,"messages":[{"text":"ratelimited","error":"ratelimited"}]}`},
		{Name: "an outage", Status: 503, Header: header{"Content-Type": "text/html", "Retry-After": "60"}, Answers: "<html>ratelimited</html>"},
	})
}

func TestBodiesAreLeftAlone(t *testing.T) {
	policies := slack.Policies(slack.Options{})
	require.LessOrEqual(t, presettest.LookedAt(t, policies, users, 200, header{"Content-Type": "application/json"}, `{"ok":true,"members":[`), 1<<10)
	require.Zero(t, presettest.LookedAt(t, policies, users, 200, header{"Content-Type": "application/octet-stream"}, ratelimited))
}

func TestTiers(t *testing.T) {
	for _, c := range []struct {
		name    string
		options slack.Options
		want    map[string]string // the only row of each request
	}{
		{"as they are", slack.Options{}, map[string]string{
			users: "slack-tier-2", user: "slack-tier-2", history: "slack-tier-3", replies: "slack-tier-3", message: "slack-message",
		}},
		{"listed", slack.Options{Tier: slack.Tier1, Methods: map[string]slack.Tier{
			"users.info": slack.Tier4, "chat.postMessage": slack.Tier3,
		}}, map[string]string{
			users: "slack-tier-1", user: "slack-tier-4", history: "slack-tier-3", replies: "slack-tier-3", message: "slack-message",
		}},
		{"sold outside the Marketplace", slack.Options{OutsideMarketplace: true}, map[string]string{
			users: "slack-tier-2", history: "slack-tier-1", replies: "slack-tier-1",
		}},
	} {
		for line, row := range c.want {
			require.Equal(t, row, presettest.Rows(t, slack.Policies(c.options), presettest.Request(t, line)), "%s: %s", c.name, line)
		}
	}
}

func TestBudgets(t *testing.T) {
	policies := slack.Policies(slack.Options{
		Caller:  presettest.Headers("App", "Workspace"),
		Channel: throttle.Header("Channel"),
	})
	require.Equal(t, "slack-tier-2 Workspace App", presettest.Splits(t, policies, users, "Workspace", "App", "Channel"))
	require.Equal(t, "slack-message Workspace App Channel", presettest.Splits(t, policies, message, "Workspace", "App", "Channel"))

	for other, same := range map[string]bool{users + "?cursor=x": true, user: false} {
		require.Equal(t, same, presettest.Shared(t, policies, "slack-tier-2", presettest.Request(t, users), presettest.Request(t, other)), other)
	}
}
