package slack_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fleetthrottle/throttle"
	"github.com/fleetthrottle/throttle/presets/internal/presettest"
	"github.com/fleetthrottle/throttle/presets/slack"
)

type (
	closes = map[string]time.Duration
	header = presettest.Header
)

const (
	users   = "https://slack.com/api/users.list"
	user    = "https://slack.com/api/users.info?user=U1"
	history = "https://slack.com/api/conversations.history?channel=C1"
	replies = "https://slack.com/api/conversations.replies?channel=C1"
	message = "POST https://slack.com/api/chat.postMessage"

	ratelimited = `{"ok":false,"error":"ratelimited"}`
)

func TestRefusals(t *testing.T) {
	presettest.Run(t, slack.Policies(slack.Options{}), []presettest.Case{
		{
			Name: "429", Request: users, Status: 429, Header: header{"Retry-After": "30"}, Answers: ratelimited,
			Closes: closes{"slack-tier-2": 30 * time.Second},
		},
		{Name: "429 that does not say", Request: users, Status: 429, Closes: closes{"slack-tier-2": time.Minute}},
		{Name: "an old method", Request: users, Answers: ratelimited, Closes: closes{"slack-tier-2": time.Minute}},
		{
			Name: "an old method that says when", Request: users, Answers: ratelimited, Header: header{"Retry-After": "10"},
			Closes: closes{"slack-tier-2": 10 * time.Second},
		},
		{
			Name: "history", Request: history, Status: 429, Header: header{"Retry-After": "30"},
			Closes: closes{"slack-tier-3": 30 * time.Second},
		},
		{
			Name: "a message", Request: message, Status: 429, Header: header{"Retry-After": "1"}, Answers: ratelimited,
			Closes: closes{"slack-message": time.Second},
		},
	})
}

func TestNoRefusals(t *testing.T) {
	presettest.Run(t, slack.Policies(slack.Options{}), []presettest.Case{
		{Name: "success", Request: users, Answers: `{"ok":true,"members":[]}`},
		{Name: "a token that is wrong", Request: users, Answers: `{"ok":false,"error":"invalid_auth"}`},
		{Name: "no permission", Request: users, Answers: `{"ok":false,"error":"missing_scope","needed":"users:read"}`},
		{Name: "too much text", Request: message, Answers: `{"ok":false,"error":"msg_too_long"}`},
		{Name: "a message about it", Request: history, Answers: `{"ok":true,"messages":[{"text":"ratelimited","error":"ratelimited"}]}`},
		{Name: "an outage", Request: users, Status: 503, Header: header{"Content-Type": "text/html", "Retry-After": "60"}, Answers: "<html>ratelimited</html>"},
	})
}

func TestBodiesAreLeftAlone(t *testing.T) {
	policies := slack.Policies(slack.Options{})
	r := presettest.Request(t, users, nil)
	read := presettest.LookedAt(t, policies, r, 200, header{"Content-Type": "application/json"}, `{"ok":true,"members":[`)
	require.LessOrEqual(t, read, 1<<10)
	read = presettest.LookedAt(t, policies, r, 200, header{"Content-Type": "application/octet-stream"}, ratelimited)
	require.Zero(t, read)
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
			rows := presettest.Rows(t, slack.Policies(c.options), presettest.Request(t, line, nil))
			require.Equal(t, []string{row}, rows, "%s: %s", c.name, line)
		}
	}
}

func TestLimits(t *testing.T) {
	require.Equal(t, map[string]string{
		"slack-tier-1":  "1/m",
		"slack-tier-2":  "20/m",
		"slack-tier-3":  "50/m",
		"slack-tier-4":  "100/m",
		"slack-message": "1/s",
	}, presettest.Limits(slack.Policies(slack.Options{})))
}

func TestBudgets(t *testing.T) {
	policies := slack.Policies(slack.Options{
		Workspace: throttle.Header("Workspace"), App: throttle.Header("App"), Channel: throttle.Header("Channel"),
	})
	require.Equal(t, map[string][]string{"slack-tier-2": {"Workspace", "App"}},
		presettest.Splits(t, policies, users, "Workspace", "App", "Channel"))
	require.Equal(t, map[string][]string{"slack-message": {"Workspace", "App", "Channel"}},
		presettest.Splits(t, policies, message, "Workspace", "App", "Channel"))

	one := presettest.Budget(t, policies, "slack-tier-2", presettest.Request(t, users, nil))
	require.Equal(t, one, presettest.Budget(t, policies, "slack-tier-2", presettest.Request(t, users+"?cursor=x", nil)))
	require.NotEqual(t, one, presettest.Budget(t, policies, "slack-tier-2", presettest.Request(t, user, nil)), "methods")
}
