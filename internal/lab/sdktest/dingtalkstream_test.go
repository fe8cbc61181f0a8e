package sdktest

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/open-dingtalk/dingtalk-stream-sdk-go/chatbot"
	streamclient "github.com/open-dingtalk/dingtalk-stream-sdk-go/client"
	"github.com/stretchr/testify/require"

	"github.com/fleetthrottle/throttle"
	"github.com/fleetthrottle/throttle/memstore"
	"github.com/fleetthrottle/throttle/presets/dingtalk"
	"github.com/fleetthrottle/throttle/retry"
)

func recipeDingTalkStream(store throttle.Store, base http.RoundTripper) (*streamclient.StreamClient, *http.Client) {
	transport := throttle.Must(throttle.New(throttle.Config{
		MaxWait:  time.Hour, // a job waits for the end of a ban, a user for seconds
		Store:    store,
		Policies: dingtalkPolicies(),
		Base:     base, // leave it out in a program
	}))
	http.DefaultTransport = transport // the SDK takes no client: it registers, and replies, through this one
	sdk := streamclient.NewStreamClient(
		streamclient.WithAppCredential(streamclient.NewAppCredentialConfig("ding-client-id", "secret")),
	)
	return sdk, retry.NewClient(transport).StandardClient() // the client is for dingtalkReply
}

// dingtalkPolicies are those of the preset, with a number for the replies to a session.
// DingTalk has published none: this is that of a custom robot.
func dingtalkPolicies() []throttle.Policy {
	rows := dingtalk.Policies(dingtalk.Options{App: "ding-client-id"})
	for i := range rows {
		if rows[i].Name == "dingtalk-session" {
			rows[i].Limit = throttle.PerMinute(20)
		}
	}
	return rows
}

// dingtalkReply answers a message, at the SessionWebhook that came with it.
func dingtalkReply(ctx context.Context, client *http.Client, webhook, text string) error {
	body, err := json.Marshal(map[string]any{"msgtype": "text", "text": map[string]string{"content": text}})
	if err != nil {
		return err
	}
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, webhook, bytes.NewReader(body))
	if err != nil {
		return err
	}
	r.Header.Set("Content-Type", "application/json")
	resp, err := client.Do(r)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	answer := struct {
		Code    int    `json:"errcode"`
		Message string `json:"errmsg"`
	}{Code: -1} // a ban has no code
	if err := json.NewDecoder(resp.Body).Decode(&answer); err != nil {
		return err
	}
	if answer.Code != 0 {
		return fmt.Errorf("DingTalk refused: %d %s", answer.Code, answer.Message)
	}
	return nil
}

// dingtalkStreamPlatform counts replies to a session by the minute.
func dingtalkStreamPlatform() platform {
	session := func(c *call) string { return c.URL.Query().Get("session") }
	refused := func(body string) func(*call, time.Duration) reply {
		return func(*call, time.Duration) reply { return ok(body) }
	}
	return platform{
		limits: func(c *call) []limit {
			limits := []limit{{budget: c.URL.Path, n: 20, per: time.Second, cost: 1}}
			if session(c) != "" {
				limits = append(limits, limit{budget: session(c), n: 20, per: time.Minute, cost: 1})
			}
			return limits
		},
		scopes: func(c *call) []string { return []string{"address", session(c)} },
		refusals: []refusal{
			{name: "130101", closes: session, lasts: 10 * time.Minute, reply: refused(`{"errcode":130101,"errmsg":"send too fast, exceed 20 times per minute"}`)},
			{name: "the ban", closes: always("address"), lasts: 5 * time.Minute, reply: refused(dingtalkBan)},
		},
		answer: func(c *call) reply {
			if c.URL.Path == "/v1.0/gateway/connections/open" {
				return ok(`{"endpoint":"wss://wss-open-connection.dingtalk.com:443/connect","ticket":"t"}`)
			}
			var message struct{ Text struct{ Content string } }
			if json.Unmarshal(c.body, &message) != nil || c.Host != "oapi.dingtalk.com" {
				return ok(`{"errcode":300001,"errmsg":"session 不存在"}`)
			}
			c.do(message.Text.Content)
			return ok(`{"errcode":0,"errmsg":"ok"}`)
		},
	}
}

// TestDingTalkStream runs beside no other test: the SDK uses the process's transport.
func TestDingTalkStream(t *testing.T) {
	defer func(usual http.RoundTripper) { http.DefaultTransport = usual }(http.DefaultTransport)
	playAlone(t, dingtalkStreamPlatform(), func(t *testing.T, u *upstream) {
		store, bases := memstore.New(), clients(u.base)
		made := 0
		replies := clients(func() *http.Client {
			sdk, client := recipeDingTalkStream(store, bases[made])
			made++
			endpoint, err := sdk.GetConnectionEndpoint(t.Context())
			require.NoError(t, err)
			require.Equal(t, "t", endpoint.Ticket)
			return client
		})
		u.mu.Lock()
		require.Equal(t, programs, u.budget("/v1.0/gateway/connections/open").total)
		u.mu.Unlock()

		webhook := func(i int) string {
			return fmt.Sprint("https://oapi.dingtalk.com/robot/sendBySession?session=session-", i%10)
		}
		send := func(w, i int) error {
			return dingtalkReply(t.Context(), replies[w%programs], webhook(i), fmt.Sprint("reply-", i))
		}
		u.calls(0, 610, 24, send)
		u.requireUsed("session-0", 3*time.Minute)

		u.refuse(100)
		u.calls(610, 590, 24, send)
		for i := range 1200 {
			u.requireOnce(fmt.Sprint("reply-", i))
		}
	})
}

// TestDingTalkStream_ItsReplier: the SDK's own replier is held, but gives up after 5 seconds,
// and takes a refusal for a success. So a recipe that used it would lose replies.
func TestDingTalkStream_ItsReplier(t *testing.T) {
	defer func(usual http.RoundTripper) { http.DefaultTransport = usual }(http.DefaultTransport)
	synctest.Test(t, func(t *testing.T) {
		u := newUpstream(t, dingtalkStreamPlatform())
		defer u.stop()
		recipeDingTalkStream(memstore.New(), u.base())
		reply := func(session, text string) error {
			webhook := "https://oapi.dingtalk.com/robot/sendBySession?session=" + session
			return chatbot.NewChatbotReplier().SimpleReplyText(t.Context(), webhook, []byte(text))
		}
		for i := range 20 {
			require.NoError(t, reply("busy", fmt.Sprint("reply-", i)))
			u.requireOnce(fmt.Sprint("reply-", i))
		}
		begin := time.Now()
		require.ErrorIs(t, reply("busy", "late"), throttle.ErrLimited)
		require.Equal(t, begin, time.Now())

		u.refuse(1)
		require.NoError(t, reply("refused", "lost"))
		require.Zero(t, u.effects["lost"])
		require.Empty(t, u.over)
	})
}
