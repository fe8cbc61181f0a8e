package zhipu_test

import (
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fleetthrottle/throttle"
	"github.com/fleetthrottle/throttle/presets/internal/presettest"
	"github.com/fleetthrottle/throttle/presets/zhipu"
)

const (
	chat  = "POST https://open.bigmodel.cn/api/paas/v4/chat/completions"
	short = `{"model":"glm-4.7","max_tokens":300}`
)

func usual(status int) presettest.Case {
	return presettest.Case{Request: chat, Sends: presettest.JSON(), Body: short, Status: status, Header: presettest.JSON()}
}

func TestRefusals(t *testing.T) {
	presettest.Run(t, zhipu.Policies(zhipu.Options{}), usual(429), []presettest.Case{
		presettest.Recorded(t, "model.http").As("too many", "zhipu-model 1s"),
		// The bubble begins at 08:00 in Beijing; whole seconds get another one.
		presettest.Recorded(t, "plan.http").As("a plan's 5 hours", "zhipu-plan 7h0m6s"),
		{Name: "a plan's week, in English", Answers: `{"error":{"code":"1310","message":"Weekly limit exhausted. Your limit will reset at 2000-01-01 09:00:00"}}`, Closes: "zhipu-plan 1h0m1s"},
		{Name: "a plan, which does not say", Answers: `{"error":{"code":"1316","message":"…"}}`, Closes: "zhipu-plan 1h"},
		{Name: "a plan, in the past", Answers: `{"error":{"code":"1308","message":"您的限额将在 1999-12-21 15:00:05 重置。"}}`, Closes: "zhipu-plan 1h"},
		{Name: "in Anthropic's form", Answers: `{"type":"error","error":{"type":"1308","message":"reset at 2000-01-01 09:00:00"}}`, Closes: "zhipu-plan 1h0m1s"},
		{Name: "a day's calls", Answers: `{"error":{"code":"1304","message":"该API已达到日调用次数限额"}}`, Closes: "zhipu-model 1h"},
		{Name: "overload", Answers: `{"error":{"code":1305,"message":"当前API请求过多，请稍后重试"}}`, Closes: "zhipu-model 1s"},
		{Name: "a code that nobody knows", Answers: `{"error":{"code":"1399"}}`, Closes: "zhipu-model 1s"},
		{Name: "Retry-After is nearer to the truth", Header: presettest.JSON("Retry-After", "9"), Answers: `{"error":{"code":"1302"}}`, Closes: "zhipu-model 9s"},
		{Name: "a gateway's page", Header: presettest.Header{"Content-Type": "text/html"}, Answers: "<html>", Closes: "zhipu-model 1s"},
	})
}

func TestNoRefusals(t *testing.T) {
	money := presettest.Recorded(t, "money.http").As("no money", "")
	money.NoRefusal = true
	cases := []presettest.Case{
		money,
		{Name: "an answer that quotes a refusal", Answers: `{"error":{"code":"1302"}}`},
		{Name: "no such key", Status: 401, Answers: `{"error":{"code":"1002"}}`},
		{Name: "one backend is away", Status: 503, Header: presettest.JSON("Retry-After", "9")},
		{Name: "another product", Request: "POST https://chatglm.cn/", Status: 429},
	}
	for _, code := range []string{"1309", "1311", "1313", "1314", "1315"} {
		cases = append(cases, presettest.Case{Name: code, NoRefusal: true, Status: 429, Answers: `{"error":{"code":"` + code + `"}}`})
	}
	presettest.Run(t, zhipu.Policies(zhipu.Options{}), usual(200), cases)
}

func TestSharedBudgets(t *testing.T) {
	with := func(key, model string) *http.Request {
		r := presettest.Request(t, chat, `{"model":"`+model+`"}`)
		r.Header.Set("Content-Type", "application/json")
		r.Header.Set("Authorization", "Bearer "+key)
		return r
	}
	one := with("a", "glm-4.7")
	for _, c := range []struct {
		name    string
		options zhipu.Options
		row     string
		other   *http.Request
		same    bool
	}{
		{name: "an account's keys", row: "zhipu-model", other: with("b", "glm-4.7"), same: true},
		{name: "another model", row: "zhipu-model", other: with("a", "glm-4.5-air")},
		{name: "another model of the plan", row: "zhipu-plan", other: with("a", "glm-4.5-air"), same: true},
		{name: "accounts of which the caller says", row: "zhipu-model", options: zhipu.Options{Caller: throttle.Header("Authorization")}, other: with("b", "glm-4.7")},
	} {
		require.Equal(t, c.same, presettest.Shared(t, zhipu.Policies(c.options), c.row, one, c.other), c.name)
	}
}
