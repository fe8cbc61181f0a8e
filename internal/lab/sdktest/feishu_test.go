package sdktest

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	lark "github.com/larksuite/oapi-sdk-go/v3"
	larkim "github.com/larksuite/oapi-sdk-go/v3/service/im/v1"
	"github.com/stretchr/testify/require"

	"github.com/fleetthrottle/throttle"
	"github.com/fleetthrottle/throttle/memstore"
	"github.com/fleetthrottle/throttle/presets/feishu"
	"github.com/fleetthrottle/throttle/retry"
)

func recipeFeishu(store throttle.Store, base http.RoundTripper) *lark.Client {
	transport := throttle.Must(throttle.New(throttle.Config{
		Store: store,
		Policies: feishu.Policies(feishu.Options{
			App: "cli_app", // if several apps share the store
		}),
		Base: base, // leave it out in a program
	}))
	return lark.NewClient("cli_app", "secret", lark.WithHttpClient(retry.NewClient(transport).StandardClient()))
}

// feishuPlatform counts APIs by the second and by the minute, and messages to each chat.
func feishuPlatform() platform {
	const tooFast = `{"code":99991400,"msg":"request trigger frequency limit"}`
	api := func(c *call) string {
		return c.Method + " " + strings.TrimPrefix(c.URL.Path, "/open-apis/")
	}
	refused := func(status int) func(*call, time.Duration) reply {
		return func(_ *call, left time.Duration) reply {
			return reply{status, map[string]string{"x-ogw-ratelimit-limit": "100", "x-ogw-ratelimit-reset": seconds(left)}, tooFast}
		}
	}
	return platform{
		limits: func(c *call) []limit {
			limits := []limit{
				{budget: api(c) + " second", n: 50, per: time.Second, cost: 1},
				{budget: api(c) + " minute", n: 1000, per: time.Minute, cost: 1},
			}
			var message struct {
				To string `json:"receive_id"`
			}
			if json.Unmarshal(c.body, &message) == nil && message.To != "" {
				limits = append(limits, limit{budget: message.To, n: 5, per: time.Second, cost: 1})
			}
			return limits
		},
		scopes: func(c *call) []string { return []string{api(c)} },
		refusals: []refusal{
			{name: "429", closes: api, lasts: 52 * time.Second, reply: refused(429)},
			{name: "an old API's 400", closes: api, lasts: 3 * time.Second, reply: refused(400)},
		},
		answer: func(c *call) reply {
			if strings.Contains(c.URL.Path, "/auth/v3/") {
				return ok(`{"code":0,"msg":"ok","tenant_access_token":"t-token","expire":7200}`)
			}
			var message struct{ UUID string }
			if json.Unmarshal(c.body, &message) != nil || c.Header.Get("Authorization") != "Bearer t-token" {
				return reply{status: 400, body: `{"code":99992402,"msg":"field validation failed"}`}
			}
			c.do(message.UUID)
			return ok(`{"code":0,"msg":"success","data":{"message_id":"om_` + message.UUID + `"}}`)
		},
	}
}

func TestFeishu(t *testing.T) {
	play(t, feishuPlatform(), func(t *testing.T, u *upstream) {
		store := memstore.New()
		apps := clients(func() *lark.Client { return recipeFeishu(store, u.base()) })
		send := func(w, i int) error {
			id := fmt.Sprint("message-", i)
			resp, err := apps[w%programs].Im.V1.Message.Create(t.Context(), larkim.NewCreateMessageReqBuilder().
				ReceiveIdType("chat_id").
				Body(larkim.NewCreateMessageReqBodyBuilder().
					ReceiveId(fmt.Sprint("oc_", i%100)).MsgType("text").Content(`{"text":"hello"}`).Uuid(id).Build()).
				Build())
			switch {
			case err != nil:
				return err
			case !resp.Success():
				return resp.CodeError
			}
			require.Equal(t, "om_"+id, *resp.Data.MessageId)
			return nil
		}
		u.calls(0, 1051, 24, send)
		u.requireUsed("POST im/v1/messages minute", time.Minute+time.Second)

		u.refuse(75)
		u.calls(1051, 449, 24, send)
		for i := range 1500 {
			u.requireOnce(fmt.Sprint("message-", i))
		}
	})
}
