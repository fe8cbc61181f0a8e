package dashscope_test

import (
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fleetthrottle/throttle"
	"github.com/fleetthrottle/throttle/presets/dashscope"
	"github.com/fleetthrottle/throttle/presets/internal/presettest"
)

const (
	chat  = "POST https://dashscope.aliyuncs.com/compatible-mode/v1/chat/completions"
	short = `{"model":"qwen-plus","max_tokens":300}`
)

func usual(status int) presettest.Case {
	return presettest.Case{Request: chat, Sends: presettest.JSON(), Body: short, Status: status, Header: presettest.JSON()}
}

func TestRefusals(t *testing.T) {
	presettest.Run(t, dashscope.Policies(dashscope.Options{}), usual(429), []presettest.Case{
		presettest.Recorded(t, "requests.http").As("requests", "dashscope-requests 1m"),
		presettest.Recorded(t, "requests-compatible.http").As("requests, in OpenAI's form", "dashscope-requests 1m"),
		presettest.Recorded(t, "tokens.http").As("tokens", "dashscope-tokens 1m"),
		presettest.Recorded(t, "tokens-compatible.http").As("tokens, in OpenAI's form", "dashscope-tokens 1m"),
		presettest.Recorded(t, "burst.http").As("too suddenly", "dashscope-requests 1s"),
		{Name: "both forms at once", Answers: `{"error":{"type":"insufficient_quota","code":"Throttling.AllocationQuota"}}`, Closes: "dashscope-tokens 1m"},
		{Name: "a code that nobody knows", Answers: `{"code":"Throttling","message":"Requests throttling triggered."}`, Closes: "dashscope-requests 1s"},
		{Name: "Retry-After is nearer to the truth", Header: presettest.JSON("Retry-After", "9"), Answers: `{"code":"Throttling.RateQuota"}`, Closes: "dashscope-requests 9s"},
		{Name: "a gateway's page", Header: presettest.Header{"Content-Type": "text/html"}, Answers: "<html>", Closes: "dashscope-requests 1s"},
	})
}

func TestNoRefusals(t *testing.T) {
	presettest.Run(t, dashscope.Policies(dashscope.Options{}), usual(200), []presettest.Case{
		{Name: "a bill is overdue", NoRefusal: true, Status: 429, Answers: `{"code":"PostpaidBillOverdue","message":"The postpaid bill is overdue."}`},
		{Name: "another one", NoRefusal: true, Status: 429, Answers: `{"error":{"code":"PrepaidBillOverdue"}}`},
		{Name: "nothing bought", NoRefusal: true, Status: 429, Answers: `{"code":"CommodityNotPurchased","message":"Commodity has not purchased yet."}`},
		{Name: "no money", Status: 400, Answers: `{"code":"Arrearage"}`},
		{Name: "an answer that quotes a refusal", Answers: `{"code":"Throttling.RateQuota"}`},
		{Name: "no such key", Status: 401, Answers: `{"code":"InvalidApiKey"}`},
		{Name: "the free tier is spent", Status: 403, Answers: `{"code":"AllocationQuota.FreeTierOnly"}`},
		{Name: "overload", Status: 503},
		{Name: "another product", Request: "POST https://oss-cn-beijing.aliyuncs.com/", Status: 429},
	})
}

func TestUsage(t *testing.T) {
	events := presettest.Header{"Content-Type": "text/event-stream"}
	presettest.Run(t, dashscope.Policies(dashscope.Options{Tokens: 5_000_000}), usual(200), []presettest.Case{
		{Name: "in OpenAI's form", Answers: `{"usage":{"prompt_tokens":9,"completion_tokens":12,"total_tokens":21}}`, Costs: "dashscope-tokens 21"},
		{Name: "its own form", Answers: `{"output":{},"usage":{"input_tokens":900,"output_tokens":100,"total_tokens":1000},"request_id":"x"}`, Costs: "dashscope-tokens 1000"},
		{Name: "a stream that was asked for its usage", Header: events, Costs: "dashscope-tokens 21",
			Answers: `data: {"choices":[{"delta":{"content":"a"}}],"usage":null}` + "\n\n" + `data: {"choices":[],"usage":{"total_tokens":21}}` + "\n\ndata: [DONE]\n\n"},
		{Name: "events of its own form, which grow", Header: events, Costs: "dashscope-tokens 1000",
			Answers: "id:1\nevent:result\n" + `data:{"output":{},"usage":{"total_tokens":901}}` + "\n\nid:2\nevent:result\n" + `data:{"output":{},"usage":{"total_tokens":1000}}` + "\n\n"},
		{Name: "a stream does not say", Header: events, Answers: `data: {"choices":[]}` + "\n\ndata: [DONE]\n\n"},
		{Name: "a long stream does not say", Header: events, Answers: strings.Repeat(`data: {"choices":[]}`+"\n\n", 400), Costs: "dashscope-tokens 400"},
	})
	r := presettest.Request(t, chat, short)
	r.Header.Set("Content-Type", "application/json")
	presettest.CutStreams(t, dashscope.Policies(dashscope.Options{}), "dashscope-tokens", r,
		"data: {\"choices\":[{\"delta\":{\"content\":\"\\\"total_tokens\\\":7\"}}],\"usage\":null}\n\ndata: {\"choices\":[],\"usage\":{\"prompt_tokens\":9,\"total_tokens\":2100}}\n\ndata: [DONE]\n\n", 2100)
	require.Zero(t, presettest.LookedAt(t, dashscope.Policies(dashscope.Options{}), chat, 200, presettest.Header{"Content-Type": "text/event-stream"}, "data: "))
}

func TestCost(t *testing.T) {
	for _, c := range []struct {
		name, media, body string
		want              int
	}{
		{"what is sent and what is asked for", "application/json", short, 300 + len(short)/4},
		{"nothing is asked for", "application/json", `{"model":"qwen-plus"}`, 1500 + 5},
		{"at most the limit", "application/json", `{"max_tokens":9000000}`, 5_000_000},
		{"an upload has none", "multipart/form-data", strings.Repeat("x", 4000), 0},
	} {
		r := presettest.Request(t, chat, c.body)
		r.Header.Set("Content-Type", c.media)
		require.Equal(t, c.want, presettest.Cost(t, dashscope.Policies(dashscope.Options{Tokens: 5_000_000}), "dashscope-tokens", r), c.name)
	}
}

// TestP1_CallersThatStartTogether: no minute has more than a tenth above the limit, the first ones included, though the callers reserve no tokens.
func TestP1_CallersThatStartTogether(t *testing.T) {
	presettest.CallersThatStartTogether(t, chat, func(limit int) []throttle.Policy {
		return dashscope.Policies(dashscope.Options{Tokens: limit})
	})
}

// TestLearns: when 64 answers have told, an answer is expected to be as long as these.
func TestLearns(t *testing.T) {
	presettest.Learns(t, chat, "dashscope-tokens", dashscope.Policies(dashscope.Options{Tokens: 5_000_000}))
}

func TestNumbers(t *testing.T) {
	require.Equal(t, "dashscope-requests 500/s, dashscope-tokens 5000000/m paced",
		presettest.Limits(dashscope.Policies(dashscope.Options{Requests: 30_000, Tokens: 5_000_000, Even: true})))
}

func TestSharedBudgets(t *testing.T) {
	with := func(key, model string) *http.Request {
		r := presettest.Request(t, chat, `{"model":"`+model+`"}`)
		r.Header.Set("Content-Type", "application/json")
		r.Header.Set("Authorization", "Bearer "+key)
		return r
	}
	one := with("a", "qwen-plus")
	for _, c := range []struct {
		name    string
		options dashscope.Options
		other   *http.Request
		same    bool
	}{
		{name: "an account's keys", other: with("b", "qwen-plus"), same: true},
		{name: "another model", other: with("a", "qwen-max")},
		{name: "accounts of which the caller says", options: dashscope.Options{Caller: throttle.Header("Authorization")}, other: with("b", "qwen-plus")},
	} {
		require.Equal(t, c.same, presettest.Shared(t, dashscope.Policies(c.options), "dashscope-requests", one, c.other), c.name)
	}
}
