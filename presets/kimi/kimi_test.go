package kimi_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fleetthrottle/throttle"
	"github.com/fleetthrottle/throttle/presets/internal/presettest"
	"github.com/fleetthrottle/throttle/presets/kimi"
)

const (
	chat  = "POST https://api.moonshot.cn/v1/chat/completions"
	short = `{"model":"kimi-k2.6","max_tokens":300}`
)

// limited is the body of a 429.
func limited(kind, message string) string {
	return `{"error":{"message":"` + message + `","type":"` + kind + `"}}`
}

func usual(status int) presettest.Case {
	return presettest.Case{Request: chat, Sends: presettest.JSON(), Body: short, Status: status, Header: presettest.JSON()}
}

func TestRefusals(t *testing.T) {
	presettest.Run(t, kimi.Policies(kimi.Options{Tier: kimi.Tier1}), usual(429), []presettest.Case{
		presettest.Recorded(t, "concurrency.http").As("in flight", "kimi-concurrency 1s"),
		presettest.Recorded(t, "requests.http").As("requests", "kimi-requests 1s"),
		presettest.Recorded(t, "tokens.http").As("tokens", "kimi-tokens 1s"),
		presettest.Recorded(t, "day.http").As("tokens of a day", "kimi-day 1h"),
		{Name: "it says for how long", Answers: limited("rate_limit_reached_error", "request reached organization max RPM: 3, please try again after 21 seconds"),
			Closes: "kimi-requests 21s"},
		{Name: "Retry-After is nearer to the truth", Header: presettest.JSON("Retry-After", "5"),
			Answers: limited("rate_limit_reached_error", "request reached max organization concurrency: 3, please try again after 1 seconds"), Closes: "kimi-concurrency 5s"},
		{Name: "overload", Answers: limited("engine_overloaded_error", "The engine is currently overloaded, please try again later"), Closes: "kimi-requests 1s"},
		{Name: "a gateway's page", Header: presettest.Header{"Content-Type": "text/html"}, Answers: "<html>", Closes: "kimi-requests 1s"},
	})
}

func TestNoRefusals(t *testing.T) {
	presettest.Run(t, kimi.Policies(kimi.Options{Tier: kimi.Tier1}), usual(200), []presettest.Case{
		{Name: "no money", NoRefusal: true, Status: 429, Answers: limited("exceeded_current_quota_error",
			"Your account is suspended due to insufficient balance, please recharge your account or check your plan and billing details")},
		{Name: "an answer that quotes a refusal", Answers: limited("rate_limit_reached_error", "concurrency, please try again after 1 seconds")},
		{Name: "no such key", Status: 401, Answers: limited("invalid_authentication_error", "Invalid Authentication")},
		{Name: "not allowed", Status: 403, Answers: limited("permission_denied_error", "concurrency")},
		{Name: "overload, for a while, says one backend", Status: 503, Header: presettest.JSON("Retry-After", "30")},
		{Name: "another host", Request: "POST https://www.moonshot.cn/", Status: 429},
	})
}

func TestWhatIsLeft(t *testing.T) {
	presettest.Run(t, kimi.Policies(kimi.Options{Tier: kimi.Tier1}), usual(200), []presettest.Case{
		{Name: "some", Header: presettest.JSON("X-RateLimit-Limit", "200", "X-RateLimit-Remaining", "7", "X-RateLimit-Reset", "12"), Left: "kimi-requests 7 12s"},
		{Name: "unreadable", Header: presettest.JSON("X-RateLimit-Remaining", "many", "X-RateLimit-Reset", "soon")},
	})
}

// TestUsage: what was sent is as the usage says, and max_tokens counts whatever was written; without max_tokens all of the usage counts.
func TestUsage(t *testing.T) {
	events := presettest.Header{"Content-Type": "text/event-stream"}
	const used = `"usage":{"prompt_tokens":1019,"completion_tokens":13,"total_tokens":1032}`
	last := `data: {"choices":[{"index":0,"delta":{},"finish_reason":"stop",` + used + "}]}\n\ndata: [DONE]\n\n"
	policies := kimi.Policies(kimi.Options{Tier: kimi.Tier0})
	const both, whole = "kimi-tokens 1319, kimi-day 1319", "kimi-tokens 1032, kimi-day 1032"
	presettest.Run(t, policies, usual(200), []presettest.Case{
		{Name: "an answer", Answers: `{"choices":[],` + used + "}", Costs: both},
		{Name: "a stream", Header: events, Answers: `data: {"choices":[{"index":0,"delta":{"content":"a"},"finish_reason":null}]}` + "\n\n" + last, Costs: both},
		{Name: "a stream that says it twice", Header: events, Answers: last + `data: {"choices":[],` + used + "}\n\n", Costs: both},
		{Name: "a stream without max_tokens", Body: `{"model":"kimi-k2.6"}`, Header: events, Answers: last, Costs: whole},
		{Name: "a stream does not say", Header: events, Answers: `data: {"choices":[]}` + "\n\n"},
		{Name: "more than a minute has", Header: events, Answers: strings.ReplaceAll(last, "1019", "900000"), Costs: "kimi-tokens 500000, kimi-day 500000"},
	})
	own := kimi.Policies(kimi.Options{Cost: func(*http.Request) int { return 7 }})
	presettest.Run(t, own, usual(200), []presettest.Case{{Name: "the program knows", Header: events, Answers: last}})
	r := presettest.Request(t, chat, short)
	r.Header.Set("Content-Type", "application/json")
	presettest.CutStreams(t, policies, "kimi-tokens", r, "data: {\"choices\":[{\"delta\":{\"content\":\"\\\"prompt_tokens\\\":7\"}}]}\n\n"+last, 1319)
}

func TestCost(t *testing.T) {
	for _, c := range []struct {
		name, media, body string
		want              int
	}{
		{"what is sent and what is asked for", "application/json", short, 300 + len(short)/4},
		{"at most a minute's", "application/json", `{"max_tokens":9000000}`, 500_000},
		{"an upload has none", "multipart/form-data", strings.Repeat("x", 4000), 0},
	} {
		r := presettest.Request(t, chat, c.body)
		r.Header.Set("Content-Type", c.media)
		for _, row := range []string{"kimi-tokens", "kimi-day"} {
			require.Equal(t, c.want, presettest.Cost(t, kimi.Policies(kimi.Options{}), row, r), c.name)
		}
	}
}

func TestTiers(t *testing.T) {
	require.Equal(t, "kimi-concurrency 1 in flight, kimi-requests 3/m, kimi-tokens 500000/m, kimi-day 1500000/24h", presettest.Limits(kimi.Policies(kimi.Options{})))
	for _, c := range []struct {
		tier                     kimi.Tier
		inFlight, minute, tokens int
	}{
		{kimi.Tier1, 50, 200, 2_000_000}, {kimi.Tier2, 100, 500, 3_000_000}, {kimi.Tier3, 200, 5_000, 3_000_000},
		{kimi.Tier4, 400, 5_000, 4_000_000}, {kimi.Tier5, 1_000, 10_000, 5_000_000},
	} {
		require.Equal(t, fmt.Sprintf("kimi-concurrency %d in flight, kimi-requests %d/m, kimi-tokens %d/m, kimi-day unlimited", c.inFlight, c.minute, c.tokens),
			presettest.Limits(kimi.Policies(kimi.Options{Tier: c.tier})))
	}
}

func TestSharedBudgets(t *testing.T) {
	with := func(host, key string) *http.Request {
		r := presettest.Request(t, "POST https://"+host+"/v1/chat/completions", `{"model":"m"}`)
		r.Header.Set("Authorization", "Bearer "+key)
		return r
	}
	one := with("api.moonshot.cn", "a")
	for _, c := range []struct {
		name    string
		options kimi.Options
		other   *http.Request
		same    bool
	}{
		{name: "an account's keys", other: with("api.moonshot.cn", "b"), same: true},
		{name: "the other host", other: with("api.moonshot.ai", "a")},
		{name: "accounts of which the caller says", options: kimi.Options{Caller: throttle.Header("Authorization")}, other: with("api.moonshot.cn", "b")},
	} {
		require.Equal(t, c.same, presettest.Shared(t, kimi.Policies(c.options), "kimi-requests", one, c.other), c.name)
	}
}

// TestP1_CallersThatStartTogether: no minute has more than a tenth above the limit, the first ones included, though the callers reserve no tokens.
func TestP1_CallersThatStartTogether(t *testing.T) {
	presettest.CallersThatStartTogether(t, chat, func(limit int) []throttle.Policy {
		return kimi.Policies(kimi.Options{Tier: kimi.Tier{InFlight: 1000, PerMinute: 10_000, Tokens: limit}})
	})
}

// TestLearns: when 64 answers have told, an answer is expected to be as long as these. Each of them counts once, though two rows count its tokens.
func TestLearns(t *testing.T) {
	presettest.Learns(t, chat, "kimi-tokens",
		kimi.Policies(kimi.Options{Tier: kimi.Tier{InFlight: 10, PerMinute: 10_000, Tokens: 5_000_000, DayTokens: 1_000_000_000}}))
}
