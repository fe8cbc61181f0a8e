package openai_test

import (
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fleetthrottle/throttle/presets/internal/presettest"
	"github.com/fleetthrottle/throttle/presets/openai"
)

func TestTokens(t *testing.T) {
	for _, c := range []struct {
		name, body string
		want       int
	}{
		{"by max_tokens", `{"model":"gpt-4o","max_tokens":300}`, 300},
		{"by its newer names", `{"max_completion_tokens":301,"max_output_tokens":302}`, 302},
		{"times n", `{"max_tokens":100,"n":3}`, 300},
		{"by length", `{"input":"` + strings.Repeat("word ", 200) + `"}`, 253},
		{"by the larger of both", `{"max_tokens":7,"input":"` + strings.Repeat("word ", 200) + `"}`, 256},
		{"at most the limit", `{"max_tokens":1000000}`, 30_000},
		{"nonsense", `{"max_tokens":-5,"n":-1,"max_output_tokens":1e99}`, 12},
		{"absurd", `{"max_tokens":9223372036854775807,"n":9223372036854775807}`, 30_000},
	} {
		t.Run(c.name, func(t *testing.T) {
			policies := openai.Policies(openai.Options{Tokens: 30_000})
			r := presettest.Request(t, chat, strings.NewReader(c.body))
			r.Header.Set("Content-Type", "application/json")
			require.Equal(t, c.want, presettest.Costs(t, policies, r)["openai-tokens"])
		})
	}
}

func TestUploadsHaveNoTokens(t *testing.T) {
	r := presettest.Request(t, "POST https://api.openai.com/v1/audio/transcriptions", strings.NewReader(strings.Repeat("x", 4000)))
	r.Header.Set("Content-Type", "multipart/form-data; boundary=b")
	require.Equal(t, map[string]int{"openai-requests": 1}, presettest.Costs(t, openai.Policies(openai.Options{}), r))
}

func TestUsage(t *testing.T) {
	json := header{"Content-Type": "application/json"}
	used := func(tokens string) string {
		return `{"id":"chatcmpl-1","object":"chat.completion","choices":[{"message":{"content":"usage"}}],` +
			`"usage":{"prompt_tokens":9,"completion_tokens":12,"total_tokens":` + tokens + `}}`
	}
	long := `{"model":"gpt-4o","messages":"` + strings.Repeat("x", 370) + `"}` // 100 tokens
	presettest.Run(t, openai.Policies(openai.Options{Tokens: 30_000}), []presettest.Case{
		{
			Name: "more", Request: chat, Sends: sent, Body: long,
			Header: json, Answers: used("2100"), Costs: map[string]int{"openai-tokens": 2100},
		},
		{
			Name: "less than estimated", Request: chat, Sends: sent, Body: long,
			Header: json, Answers: used("21"), Costs: map[string]int{"openai-tokens": 21},
		},
		{
			Name: "less than reserved", Request: chat, Sends: sent, Body: `{"max_tokens":300}`,
			Header: json, Answers: used("21"),
		},
		{
			Name: "a stream does not say", Request: chat, Sends: sent, Body: `{"stream":true,"max_tokens":300}`,
			Header: header{"Content-Type": "text/event-stream"}, Answers: "data: " + used("2100"),
		},
		{
			Name: "a refusal costs what was estimated", Request: chat, Sends: sent, Body: `{"max_tokens":300}`,
			Status: 400, Header: json, Answers: `{"error":{"type":"invalid_request_error","code":null}}`,
		},
	})
}

func TestOwnEstimate(t *testing.T) {
	policies := openai.Policies(openai.Options{Tokens: 100, Cost: func(*http.Request) int { return 101 }})
	require.Equal(t, 100, presettest.Costs(t, policies, presettest.Request(t, chat, nil))["openai-tokens"])
}
