package feishu_test

import (
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fleetthrottle/throttle"
	"github.com/fleetthrottle/throttle/presets/feishu"
	"github.com/fleetthrottle/throttle/presets/internal/presettest"
)

type header = presettest.Header

const (
	members  = "https://open.feishu.cn/open-apis/contact/v3/users?page_size=50"
	messages = "https://open.feishu.cn/open-apis/im/v1/messages"
	hook     = "POST https://open.feishu.cn/open-apis/bot/v2/hook/6a1d"
	tooFast  = `{"code":99991400,"msg":"request trigger frequency limit"}`
)

func TestRefusals(t *testing.T) {
	presettest.Run(t, feishu.Policies(feishu.Options{PerMonth: feishu.BasicPerMonth}), presettest.Case{Request: members, Status: 429}, []presettest.Case{
		{Name: "429", Answers: tooFast, Header: header{"x-ogw-ratelimit-limit": "100", "x-ogw-ratelimit-reset": "52"},
			Closes: "feishu-api-second 52s"},
		{Name: "an old API's 400", Status: 400, Answers: tooFast, Header: header{"x-ogw-ratelimit-limit": "100", "x-ogw-ratelimit-reset": "1"},
			Closes: "feishu-api-second 1s"},
		{Name: "429 with a Retry-After", Answers: tooFast, Header: header{"x-ogw-ratelimit-reset": "0", "Retry-After": "70"}, Closes: "feishu-api-second 1m10s"},
		{Name: "an old API's 400 with a Retry-After", Status: 400, Answers: tooFast, Header: header{"Retry-After": "70"}, Closes: "feishu-api-second 1m10s"},
		{Name: "429 that is over", Answers: tooFast, Header: header{"x-ogw-ratelimit-reset": "0"}, Closes: "feishu-api-second 1s"},
		{Name: "429 that does not say", Answers: tooFast, Closes: "feishu-api-second 1m"},
		{Name: "429 that says it in a way that cannot be read", Answers: tooFast, Header: header{"x-ogw-ratelimit-reset": "soon"}, Closes: "feishu-api-second 1m"},
		{Name: "400 that says it in a way that cannot be read", Status: 400, Answers: tooFast, Header: header{"x-ogw-ratelimit-reset": "soon"}, Closes: "feishu-api-second 1m"},
		{Name: "400 that does not say", Status: 400, Answers: tooFast, Closes: "feishu-api-second 1m"},
		{Name: "one receiver", Request: "POST " + messages + "?receive_id_type=chat_id", Body: `{"receive_id":"oc_1"}`, Status: 400, Answers: `{"code":230020,"msg":"This operation triggers the frequency limit."}`,
			Closes: "feishu-message 1s"},
		{Name: "one message", Request: "PATCH " + messages + "/om_1", Status: 400, Answers: `{"code":230020}`, Closes: "feishu-one-message 1s"},
		{Name: "replies to one message", Request: "POST " + messages + "/om_1/reply", Status: 400, Header: header{"x-ogw-ratelimit-reset": "3"}, Answers: `{"code":230020}`,
			Closes: "feishu-one-message 3s"},
		{Name: "a bot", Request: hook, Answers: tooFast, Header: header{"x-ogw-ratelimit-limit": "5", "x-ogw-ratelimit-reset": "1"},
			Closes: "feishu-bot-second 1s"},
		{Name: "all bots", Request: hook, Answers: `{"code":11232,"msg":"frequency limited"}`, Closes: "feishu-bot-second 1m", Status: 200},
	})
}

func TestNoRefusals(t *testing.T) {
	presettest.Run(t, feishu.Policies(feishu.Options{PerMonth: feishu.BasicPerMonth}), presettest.Case{Request: members}, []presettest.Case{
		{Name: "success", Answers: `{"code":0,"msg":"success","data":{"items":[]}}`},
		{Name: "success that tells of the limit", Answers: `{"code":0,"msg":"success"}`,
			Header: header{"x-ogw-ratelimit-limit": "100", "x-ogw-ratelimit-reset": "52"}},
		{Name: "400 of another kind", Status: 400, Answers: `{"code":99992402,"msg":"field validation failed"}`,
			Header: header{"x-ogw-ratelimit-limit": "100", "x-ogw-ratelimit-reset": "52"}},
		{Name: "the code somewhere else", Status: 400, Answers: `{"code":1,"msg":"99991400","data":{"code":99991400}}`},
		{Name: "a token that is wrong", Status: 401, Answers: `{"code":99991663,"msg":"Invalid access token"}`},
		{Name: "no permission", Status: 403, Answers: `{"code":99991672,"msg":"Access denied"}`},
		{Name: "a gateway's page", Status: 502, Header: header{"Content-Type": "text/html"}, Answers: "<html>99991400</html>"},
		{Name: "the bots' code from an API", Answers: `{"code":11232,"msg":"frequency limited"}`},
		{Name: "a bot that is not there", Request: hook, Status: 400,
			Answers: `{"code":19001,"msg":"param invalid: incoming webhook access token invalid"}`},
	})
}

func TestRows(t *testing.T) {
	policies := feishu.Policies(feishu.Options{
		PerMonth: 1000,
		Metered: func(r *http.Request) bool {
			return throttle.RawPath(r) != "/open-apis/auth/v3/tenant_access_token/internal"
		},
		APIs: map[string]feishu.Tier{
			"GET /open-apis/contact/v3/users/{user_id}": {PerSecond: 20, PerMinute: 600},
			"/open-apis/drive/v1/files/{file}/copy":     {PerMinute: 5},
		},
	})
	const of = "https://open.feishu.cn/open-apis/"
	const usual = "feishu-api-second, feishu-api-minute, feishu-month"
	for request, want := range map[string]string{
		of + "contact/v3/users": usual,
		of + "contact/v3/users/ou_1": "feishu-api-second GET /open-apis/contact/v3/users/{user_id}, " +
			"feishu-api-minute GET /open-apis/contact/v3/users/{user_id}, feishu-month",
		of + "contact/v3/users/ou_1/tags":                     usual,
		"DELETE " + of + "contact/v3/users/ou_1":              usual,
		"POST " + of + "drive/v1/files/f/copy":                "feishu-api-minute /open-apis/drive/v1/files/{file}/copy, feishu-month",
		"POST " + of + "auth/v3/tenant_access_token/internal": "feishu-api-second, feishu-api-minute",
		hook: "feishu-bot-second, feishu-bot-minute, feishu-month",
		"https://open.larksuite.com/open-apis/contact/v3/users": "",
	} {
		require.Equal(t, want, presettest.Rows(t, policies, presettest.Request(t, request)), request)
	}
}

func TestLimits(t *testing.T) {
	require.Equal(t, "feishu-api-minute 100/m, feishu-message 5/s, feishu-one-message unlimited, feishu-bot-second 5/s, feishu-bot-minute 100/m, feishu-month 1000000/month +08:00",
		presettest.Limits(feishu.Policies(feishu.Options{Tier: feishu.Tier{PerMinute: 100}, PerMonth: feishu.BasicPerMonth})))
}

// TestMessages: each person and each chat has a limit of its own.
func TestMessages(t *testing.T) {
	policies := feishu.Policies(feishu.Options{Caller: presettest.Headers("App", "Tenant")})
	const at = "POST https://open.feishu.cn/open-apis/im/v1/messages?receive_id_type=chat_id"
	to := func(id string) *http.Request {
		return presettest.Request(t, at, `{"msg_type":"text","receive_id":"`+id+`"}`)
	}
	require.True(t, presettest.Shared(t, policies, "feishu-message", to("oc_1"), to("oc_1")))
	require.False(t, presettest.Shared(t, policies, "feishu-message", to("oc_1"), to("ou_1")))
	another := to("oc_1")
	another.Header.Set("App", "b")
	require.True(t, presettest.Shared(t, policies, "feishu-message", to("oc_1"), another), "the bots of a chat")
	const rest = "feishu-api-second, feishu-api-minute"
	require.Equal(t, rest+", feishu-message", presettest.Rows(t, policies, to("oc_1")))
	require.Equal(t, rest, presettest.Rows(t, policies, to("")))
	require.Equal(t, rest, presettest.Rows(t, policies, presettest.Request(t, "https://open.feishu.cn/open-apis/im/v1/messages")), "a list")
}

func TestBudgets(t *testing.T) {
	policies := feishu.Policies(feishu.Options{
		Caller:   presettest.Headers("App", "Tenant"),
		PerMonth: 1000,
		APIs:     map[string]feishu.Tier{"/open-apis/im/v1/chats": {PerSecond: 5}},
	})
	require.Equal(t, "feishu-api-second App Tenant, feishu-api-minute App Tenant, feishu-month Tenant",
		presettest.Splits(t, policies, members, "App", "Tenant"))
	require.Equal(t, "feishu-api-second /open-apis/im/v1/chats App Tenant, feishu-month Tenant",
		presettest.Splits(t, policies, "https://open.feishu.cn/open-apis/im/v1/chats", "App", "Tenant"))
}

func TestAPIs(t *testing.T) {
	policies := feishu.Policies(feishu.Options{Host: "open.larksuite.com"})
	budget := func(policy, line string) string {
		return presettest.Budget(t, policies, policy, presettest.Request(t, line))
	}
	const user = "https://open.larksuite.com/open-apis/contact/v3/users/ou_1"
	one := budget("feishu-api-minute", user)
	require.Equal(t, one, budget("feishu-api-minute", user+"2"), "users")
	require.NotEqual(t, one, budget("feishu-api-minute", "DELETE "+user), "methods")
	require.NotEqual(t, one, budget("feishu-api-minute", "https://open.larksuite.com/open-apis/im/v1/chats"), "services")
	require.NotEqual(t, one, budget("feishu-api-minute", "https://open.larksuite.com/open-apis/contact/v2/users"), "versions")

	const bot = "POST https://open.larksuite.com/open-apis/bot/v2/hook/"
	require.NotEqual(t, budget("feishu-bot-minute", bot+"one"), budget("feishu-bot-minute", bot+"two"))
}

// TestBodiesAreLeftAlone: an answer with status 200 is no refusal of an API, so
// nothing is read ahead of its reader.
func TestBodiesAreLeftAlone(t *testing.T) {
	require.Zero(t, presettest.LookedAt(t, feishu.Policies(feishu.Options{}), members, 200, header{"Content-Type": "application/json"}, `{"data":"`))
}
