package azureopenai_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fleetthrottle/throttle"
	"github.com/fleetthrottle/throttle/presets/azureopenai"
	"github.com/fleetthrottle/throttle/presets/internal/presettest"
)

const (
	chat   = "POST https://acme.openai.azure.com/openai/deployments/gpt-4o/chat/completions?api-version=2024-10-21"
	chatV1 = "POST https://acme.openai.azure.com/openai/v1/chat/completions"
)

var (
	sends = presettest.Header{"Content-Type": "application/json", "Api-Key": "secret"}
	told  = azureopenai.Policies(azureopenai.Options{Requests: 600, Tokens: 100_000})
)

func exceeded(what, then string) string {
	return `{"error":{"code":"429","message":"Requests to the ChatCompletions_Create Operation under Azure OpenAI API version 2024-10-21 have exceeded ` +
		what + ` rate limit of your current OpenAI S0 pricing tier.` + then + ` Please go here: https://aka.ms/oai/quotaincrease if you would like to further increase the default rate limit."}}`
}

func TestRefusals(t *testing.T) {
	presettest.Run(t, told, presettest.Case{Request: chat, Sends: sends, Body: `{"max_tokens":5}`, Status: 429, Header: presettest.JSON()}, []presettest.Case{
		{Name: "tokens, stated", Header: presettest.JSON("Retry-After", "37"), Answers: exceeded("token", ""), Closes: "azureopenai-tokens 37s"},
		{Name: "tokens, in milliseconds", Header: presettest.JSON("Retry-After-Ms", "2500"), Answers: exceeded("token", ""), Closes: "azureopenai-tokens 2.5s"},
		{Name: "tokens, printed beside what cannot be read", Header: presettest.JSON("Retry-After-Ms", "soon"), Answers: exceeded("token", " Please retry after 41 seconds."),
			Closes: "azureopenai-tokens 41s"},
		{Name: "tokens, printed", Answers: exceeded("token", " Please retry after 41 seconds."), Closes: "azureopenai-tokens 41s"},
		{Name: "tokens, for a day", Answers: exceeded("token", " Please retry after 86400 seconds."), Closes: "azureopenai-tokens 24h"},
		{Name: "tokens, nobody says how long", Answers: exceeded("token", ""), Closes: "azureopenai-tokens 1m"},
		{Name: "requests, stated", Header: presettest.JSON("Retry-After", "9"), Answers: exceeded("call", ""), Closes: "azureopenai-requests 9s"},
		{Name: "requests, printed", Answers: exceeded("call", " Please retry after 1 second."), Closes: "azureopenai-requests 1s"},
		{Name: "requests, nobody says how long", Answers: exceeded("call", ""), Closes: "azureopenai-requests 10s"},
		{Name: "no body", Header: presettest.Header{"Retry-After": "2"}, Closes: "azureopenai-requests 2s"},
		{Name: "high demand", Answers: `{"error":{"code":"429","message":"The system is currently experiencing high demand."}}`, Closes: "azureopenai-requests 10s"},
	})
}

func TestNoRefusals(t *testing.T) {
	presettest.Run(t, told, presettest.Case{Request: chat, Sends: sends, Body: `{"max_tokens":5}`, Header: presettest.JSON()}, []presettest.Case{
		{Name: "success", Answers: `{"choices":[{"message":{"content":"You have exceeded token rate limit"}}]}`},
		{Name: "filtered", Status: 400, Answers: `{"error":{"code":"content_filter","message":"The response was filtered"}}`},
		{Name: "a quota of a gateway", Status: 403, Answers: `{"statusCode":403,"message":"Out of call volume quota."}`},
		{Name: "no such deployment", Status: 404, Answers: `{"error":{"code":"DeploymentNotFound"}}`},
		{Name: "one 503", Status: 503, Header: presettest.JSON("Retry-After", "9"), Answers: `{}`},
		{Name: "fields that say nothing", Header: presettest.JSON("X-Ratelimit-Limit-Tokens", "-1", "X-Ratelimit-Remaining-Tokens", "-1", "X-Ratelimit-Reset-Tokens", "0"), Answers: `{}`},
	})
}

func TestTokens(t *testing.T) {
	long := `{"max_tokens":300,"messages":"` + strings.Repeat("x", 368) + `"}` // 100 tokens
	used := func(n int) string { return fmt.Sprintf(`{"usage":{"total_tokens":%d}}`, n) }
	presettest.Run(t, told, presettest.Case{Request: chat, Sends: sends, Body: long, Header: presettest.JSON()}, []presettest.Case{
		{Name: "more", Answers: used(2100), Costs: "azureopenai-tokens 2100"},
		{Name: "less is not given back", Answers: used(21)},
		{Name: "not told", Answers: `{}`},
		{Name: "more, in a stream", Header: presettest.Header{"Content-Type": "text/event-stream"}, Answers: "data: " + used(2100) + "\n\ndata: [DONE]\n\n", Costs: "azureopenai-tokens 2100"},
		{Name: "less, in a stream", Header: presettest.Header{"Content-Type": "text/event-stream"}, Answers: "data: " + used(21) + "\n\ndata: [DONE]\n\n"},
	})
	cost := func(policies []throttle.Policy, body string) int {
		r := presettest.Request(t, chat, body)
		r.Header.Set("Content-Type", "application/json")
		return presettest.Cost(t, policies, "azureopenai-tokens", r)
	}
	require.Equal(t, 400, cost(told, long))
	require.Equal(t, 910, cost(told, `{"max_tokens":300,"best_of":3,"prompt":""}`))
	require.Equal(t, 100_000, cost(told, `{"max_tokens":200000}`), "Azure refuses what is too large")
	require.Equal(t, 7, cost(azureopenai.Policies(azureopenai.Options{Cost: func(*http.Request) int { return 7 }}), long))
	require.Equal(t, "azureopenai-requests 1", presettest.Costs(t, told, presettest.Request(t, "https://acme.openai.azure.com/openai/files")))
}

func TestRows(t *testing.T) {
	require.Equal(t, "azureopenai-requests 10/s, azureopenai-tokens 100000/m", presettest.Limits(told))
	for perMinute, want := range map[int]throttle.Limit{
		6: throttle.SlidingWindow(1, 10*time.Second), 59: throttle.SlidingWindow(1, time.Minute/59), 60: throttle.PerSecond(1), 150: throttle.PerSecond(2),
	} {
		require.Equal(t, want, azureopenai.Policies(azureopenai.Options{Requests: perMinute})[0].Limit)
	}
	require.Equal(t, "azureopenai-requests unlimited, azureopenai-tokens unlimited", presettest.Limits(azureopenai.Policies(azureopenai.Options{})))
	require.Empty(t, presettest.Rows(t, told, presettest.Request(t, "POST https://api.openai.com/v1/chat/completions")))
	elsewhere := azureopenai.Policies(azureopenai.Options{Host: "*.cognitiveservices.azure.com"})
	require.Equal(t, "azureopenai-requests", presettest.Rows(t, elsewhere, presettest.Request(t, "https://acme.cognitiveservices.azure.com/openai/models")))
}

func TestBudgets(t *testing.T) {
	ask := func(line, body string) *http.Request {
		r := presettest.Request(t, line, body)
		r.Header.Set("Content-Type", "application/json")
		return r
	}
	one := ask(chat, `{}`)
	shared := func(other *http.Request) bool {
		return presettest.Shared(t, told, "azureopenai-requests", one, other)
	}
	require.True(t, shared(ask("POST https://acme.openai.azure.com/openai/deployments/gpt-4o/embeddings", `{}`)), "another operation")
	require.True(t, shared(ask(chatV1, `{"messages":[],"model":"gpt-4o"}`)), "the other kind of path")
	require.False(t, shared(ask(chatV1, `{"model":"gpt-4o-mini"}`)), "another deployment")
	require.False(t, shared(ask("POST https://acme.openai.azure.com/openai/deployments/o3/chat/completions", `{}`)), "another deployment")
	require.False(t, shared(ask("POST https://other.openai.azure.com/openai/deployments/gpt-4o/chat/completions", `{}`)), "another resource")
	all := azureopenai.Policies(azureopenai.Options{Deployment: func(*http.Request) string { return "" }})
	require.True(t, presettest.Shared(t, all, "azureopenai-requests", one, ask(chatV1, `{"model":"o3"}`)), "told so")
}

// TestP1_CallersThatStartTogether: no minute has more than a tenth above the limit, the first ones included, though the callers reserve no tokens.
func TestP1_CallersThatStartTogether(t *testing.T) {
	presettest.CallersThatStartTogether(t, chat, func(limit int) []throttle.Policy {
		return azureopenai.Policies(azureopenai.Options{Tokens: limit})
	})
}

// TestLearns: when 64 answers have told, an answer is expected to be as long as these.
func TestLearns(t *testing.T) {
	presettest.Learns(t, chat, "azureopenai-tokens", azureopenai.Policies(azureopenai.Options{Tokens: 5_000_000}))
}
