package discord_test

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fleetthrottle/throttle"
	"github.com/fleetthrottle/throttle/memstore"
	"github.com/fleetthrottle/throttle/presets/discord"
	"github.com/fleetthrottle/throttle/presets/internal/presettest"
)

type header = presettest.Header

const (
	messages = "POST https://discord.com/api/v10/channels/41771983423143937/messages"

	limited = `{"message":"You are being rate limited.","retry_after":64.57,"global":false}`
	global  = `{"message":"You are being rate limited.","retry_after":1.5,"global":true}`
)

func TestRefusals(t *testing.T) {
	route := func(d string) string { return "discord-route " + d }
	bot := func(d string) string { return "discord-global " + d }
	presettest.Run(t, discord.Policies(discord.Options{}), presettest.Case{Request: messages, Status: 429}, []presettest.Case{
		{Name: "a route", Answers: limited, Closes: route("1m4.57s"),
			Header: presettest.JSON("Retry-After", "65", "X-RateLimit-Limit", "10", "X-RateLimit-Remaining", "0", "X-RateLimit-Reset", "946684864.57", "X-RateLimit-Reset-After", "64.57", "X-RateLimit-Bucket", "abcd1234", "X-RateLimit-Scope", "user"),
			Left:   "discord-route 0 1m4.57s"},
		{Name: "a resource that others use too", Answers: limited, Header: presettest.JSON("Retry-After", "65", "X-RateLimit-Scope", "shared"),
			Closes: route("1m4.57s"), Costs: "discord-refused 0"},
		{Name: "a route, by the header", Header: presettest.JSON("Retry-After", "65"), Closes: route("1m5s")},
		{Name: "a route, not said for how long", Header: presettest.JSON(), Closes: route("1s")},
		{Name: "no type", Answers: limited, Closes: route("1m4.57s")},
		{Name: "the bot", Answers: global, Closes: bot("1.5s"),
			Header: presettest.JSON("Retry-After", "2", "X-RateLimit-Global", "true", "X-RateLimit-Scope", "global")},
		{Name: "the bot, by the header", Closes: bot("2s"), Header: presettest.JSON("Retry-After", "2", "X-RateLimit-Global", "true")},
		{Name: "the bot, by its scope", Closes: bot("2s"), Header: presettest.JSON("Retry-After", "2", "X-RateLimit-Scope", "global")},
		{Name: "the bot, by the body", Answers: global, Header: presettest.JSON(), Closes: bot("1.5s")},
		{Name: "an interaction", Request: "POST https://discord.com/api/v10/interactions/1/tok/callback", Answers: limited, Header: presettest.JSON(), Closes: route("1m4.57s")},
		{Name: "an interaction, as if the bot were refused", Request: "POST https://discord.com/api/v10/interactions/1/tok/callback", Answers: global,
			Header: presettest.JSON("Retry-After", "2", "X-RateLimit-Global", "true"), Closes: route("1.5s")},
		{Name: "a webhook", Request: "POST https://discord.com/api/v10/webhooks/7/tok", Answers: limited, Header: presettest.JSON(), Closes: route("1m4.57s")},
		{Name: "all webhooks", Request: "POST https://discord.com/api/v10/webhooks/7/tok", Answers: global,
			Header: presettest.JSON("Retry-After", "2", "X-RateLimit-Global", "true"), Closes: "discord-webhook 1.5s"},
		{Name: "a follow-up, as if all webhooks were refused", Request: "POST https://discord.com/api/v10/webhooks/7/aW50ZXJhY3Rpb246MTIz", Answers: global,
			Header: presettest.JSON("Retry-After", "2", "X-RateLimit-Global", "true"), Closes: route("1.5s")},
		{Name: "the address, by an interaction", Request: "POST https://discord.com/api/v10/interactions/1/tok/callback", Answers: "error code: 1015",
			Header: header{"Content-Type": "text/plain", "Retry-After": "3600"}, Closes: "discord-refused 1h"},
		{Name: "the address", Answers: "<html>Access denied</html>",
			Header: header{"Content-Type": "text/html; charset=UTF-8", "Retry-After": "3600"}, Closes: "discord-refused 1h"},
		{Name: "the address, not said for how long", Answers: "error code: 1015", Header: header{"Content-Type": "text/plain"},
			Closes: "discord-refused 10m"},
	})
}

// TestTheBotsLimitHoldsTheBot: while hundreds of edits wait for the bot's limit, and after a global
// refusal, what is sent with a token in its path goes on.
func TestTheBotsLimitHoldsTheBot(t *testing.T) {
	const api = "https://discord.com/api/v10"
	followUp := api + "/webhooks/7/aW50ZXJhY3Rpb246MTIz"
	for _, c := range []struct {
		line string
		held bool
	}{
		{"POST " + api + "/interactions/1/tok/callback", false},
		{"POST https://discord.com/api/interactions/1/tok/callback", false},
		{"POST " + followUp, false},
		{"PATCH " + followUp + "/messages/@original", false},
		{"GET " + followUp + "/messages/5", false},
		{"POST " + api + "/webhooks/7/tok", false},
		{"POST " + api + "/channels/9999/messages", true},
		{"GET " + api + "/webhooks/7", true},
		{"GET " + api + "/interactions/1", true},
		{"GET " + api + "/users/@me", true},
	} {
		for _, refused := range []bool{false, true} {
			t.Run(fmt.Sprint(c.line, " refused ", refused), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					upstream := presettest.RoundTripper(func(r *http.Request) (*http.Response, error) {
						resp := &http.Response{StatusCode: http.StatusOK, Header: make(http.Header), Body: http.NoBody, Request: r}
						if refused && strings.HasSuffix(r.URL.Path, "/pins") {
							resp.StatusCode = http.StatusTooManyRequests
							resp.Header = http.Header{"Content-Type": {"application/json"}, "Retry-After": {"20"}, "X-Ratelimit-Global": {"true"}}
						}
						return resp, nil
					})
					transport, err := throttle.New(throttle.Config{MaxWait: throttle.Forever, Store: memstore.New(), Policies: discord.Policies(discord.Options{Bot: "one"}), Base: upstream})
					require.NoError(t, err)
					send := func(ctx context.Context, line string) error {
						resp, err := transport.RoundTrip(presettest.Request(t, line).WithContext(ctx))
						if err == nil {
							require.NoError(t, resp.Body.Close())
						}
						return err
					}

					edits, cancel := context.WithCancel(t.Context())
					defer synctest.Wait()
					defer cancel()
					if refused {
						require.NoError(t, send(edits, "GET "+api+"/channels/0/pins"))
					} else {
						for i := range 500 {
							go send(edits, fmt.Sprintf("PATCH %s/channels/%d/messages/1", api, i))
						}
						synctest.Wait()
					}

					soon, done := context.WithTimeout(t.Context(), 3*time.Second)
					defer done()
					begin := time.Now()
					err = send(soon, c.line)
					if c.held {
						require.ErrorIs(t, err, throttle.ErrLimited)
						return
					}
					require.NoError(t, err)
					require.Zero(t, time.Since(begin))
				})
			})
		}
	}
}

func TestNoRefusals(t *testing.T) {
	const back = "discord-refused 0"
	presettest.Run(t, discord.Policies(discord.Options{}), presettest.Case{Request: messages, Header: presettest.JSON()}, []presettest.Case{
		{Name: "success", Answers: `{"id":"1"}`, Costs: back,
			Header: presettest.JSON("X-RateLimit-Limit", "5", "X-RateLimit-Remaining", "4", "X-RateLimit-Reset", "946684801", "X-RateLimit-Reset-After", "1.0"),
			Left:   "discord-route 4 1s"},
		{Name: "a message about it", Answers: limited, Costs: back},
		{Name: "no permission", Status: 403, Answers: `{"message":"Missing Permissions","code":50013}`},
		{Name: "a token that is wrong", Status: 401, Answers: `{"message":"401: Unauthorized","code":0}`},
		{Name: "a form that is wrong", Status: 400, Answers: `{"message":"Invalid Form Body","code":50035,"retry_after":5}`, Costs: back},
		{Name: "an outage", Status: 502, Answers: "<html>Bad gateway</html>", Header: header{"Content-Type": "text/html", "Retry-After": "60"},
			Costs: back},
	})
}

func TestRoutes(t *testing.T) {
	const api = "https://discord.com/api/"
	for _, c := range []struct {
		name, one, two string
		same           bool
	}{
		{"messages of a channel", api + "v10/channels/1/messages/2", api + "v10/channels/1/messages/3", true},
		{"versions", api + "v10/channels/1/messages", api + "channels/1/messages", true},
		{"members of a guild", api + "v10/guilds/1/members/2", api + "v10/guilds/1/members/3", true},
		{"emojis", api + "v10/channels/1/messages/2/reactions/%F0%9F%94%A5/@me", api + "v10/channels/1/messages/2/reactions/a:1/@me", true},
		{"invites", api + "v10/invites/discord-developers", api + "v10/invites/0vCdhLbwjZZTWZLD", true},
		{"templates", api + "v10/guilds/templates/hgM48av5Q69A", api + "v10/guilds/templates/boostlevel", true},
		{"users", api + "v10/users/1", api + "v10/users/2", true},
		{"channels", api + "v10/channels/1/messages", api + "v10/channels/2/messages", false},
		{"guilds", api + "v10/guilds/1/members", api + "v10/guilds/2/members", false},
		{"webhooks", api + "v10/webhooks/1/a", api + "v10/webhooks/2/a", false},
		{"methods", "POST " + api + "v10/channels/1/messages", "GET " + api + "v10/channels/1/messages", false},
		{"what is in a channel", api + "v10/channels/1/messages", api + "v10/channels/1/pins", false},
	} {
		one, two := presettest.Request(t, c.one), presettest.Request(t, c.two)
		require.Equal(t, c.same, presettest.Shared(t, discord.Policies(discord.Options{}), "discord-route", one, two), c.name)
	}
}

func TestLimits(t *testing.T) {
	require.Equal(t, "discord-global 500/s, discord-webhook 50/s, discord-route 500/s, discord-refused 10000/10m",
		presettest.Limits(discord.Policies(discord.Options{PerSecond: 500})))
}

func TestBudgets(t *testing.T) {
	require.Equal(t, "discord-global Authorization, discord-route Authorization",
		presettest.Splits(t, discord.Policies(discord.Options{}), messages, "Authorization"))
	require.Equal(t, "discord-global Bot, discord-route Bot",
		presettest.Splits(t, discord.Policies(discord.Options{Caller: throttle.Header("Bot")}), messages, "Bot"))
	require.Empty(t, presettest.Splits(t, discord.Policies(discord.Options{Bot: "one"}), messages, "Authorization"))

	here, there := discord.Policies(discord.Options{Address: "here"}), discord.Policies(discord.Options{Address: "there"})
	r := presettest.Request(t, messages)
	require.NotEqual(t, presettest.Budget(t, here, "discord-refused", r), presettest.Budget(t, there, "discord-refused", r))
}
