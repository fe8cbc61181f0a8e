package gemini_test

import (
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fleetthrottle/throttle"
	"github.com/fleetthrottle/throttle/presets/gemini"
	"github.com/fleetthrottle/throttle/presets/internal/presettest"
)

const generate = "POST https://generativelanguage.googleapis.com/v1beta/models/gemini-2.5-flash:generateContent"

// exceeded is the body of a 429 that names its quota.
func exceeded(quota, more string) string {
	return `{"error":{"code":429,"message":"You exceeded your current quota.","status":"RESOURCE_EXHAUSTED","details":[` +
		`{"@type":"type.googleapis.com/google.rpc.QuotaFailure","violations":[{"quotaId":"` + quota + `"}]}` + more + `]}}`
}

// said is the body of a 429 whose message ends so, with one detail.
func said(message, detail string) string {
	return `{"error":{"code":429,"message":"You exceeded your current quota.\n* Quota exceeded for metric: generativelanguage.googleapis.com/generate_content_free_tier_requests, limit: 20, model: gemini-2.5-flash\n` +
		message + `","status":"RESOURCE_EXHAUSTED","details":[` + detail + `]}}`
}

const delay = `,{"@type":"type.googleapis.com/google.rpc.RetryInfo","retryDelay":"34.07s"}`

func TestRefusals(t *testing.T) {
	json := presettest.JSON()
	presettest.Run(t, gemini.Policies(gemini.Options{}), presettest.Case{Request: generate, Sends: json, Body: `{"contents":[]}`, Status: 429, Header: json}, []presettest.Case{
		presettest.Recorded(t, "tokens.http").As("tokens", "gemini-tokens 26s"),
		presettest.Recorded(t, "bare.http").As("no details", "gemini-requests 1s"),
		presettest.Recorded(t, "list.http").As("in a list", "gemini-requests 1s"),
		{Name: "requests", Answers: exceeded("GenerateRequestsPerMinutePerProjectPerModel-FreeTier", delay), Closes: "gemini-requests 34.07s"},
		{Name: "requests in a list", Answers: "[" + exceeded("GenerateRequestsPerMinutePerProjectPerModel", delay) + "]", Closes: "gemini-requests 34.07s"},
		{Name: "tokens, nobody knows for how long", Answers: exceeded("GenerateContentInputTokensPerModelPerMinute", ""), Closes: "gemini-tokens 1m"},
		{Name: "a day", Answers: exceeded("GenerateRequestsPerDayPerProjectPerModel-FreeTier", `,{"retryDelay":"7h58m"}`), Closes: "gemini-day 7h58m"},
		{Name: "a day, until midnight in the Pacific zone", Answers: exceeded("GenerateRequestsPerDayPerProjectPerModel", ""), Closes: "gemini-day 8h"},
		{Name: "a day's tokens", Answers: exceeded("GenerateContentInputTokensPerModelPerDay", delay), Closes: "gemini-day 34.07s"},
		{Name: "Retry-After is nearer to the truth", Header: presettest.JSON("Retry-After", "7"), Answers: exceeded("GenerateRequestsPerDayPerProjectPerModel", delay), Closes: "gemini-day 7s"},
		{Name: "the message and the metadata say for how long", Answers: said("Please retry in 39.237s.", `{"@type":"type.googleapis.com/google.rpc.ErrorInfo","reason":"RATE_LIMIT_EXCEEDED","metadata":{"quotaResetDelay":"39.237s"}}`),
			Closes: "gemini-requests 39.237s"},
		{Name: "the metadata alone", Answers: said("", `{"metadata":{"quotaResetDelay":"39.237s"}}`), Closes: "gemini-requests 39.237s"},
		{Name: "the message alone", Answers: said("Please retry in 39.237s.", ""), Closes: "gemini-requests 39.237s"},
		{Name: "the message alone, in a list", Answers: "[" + said("Please retry in 39.237s.", "") + "]", Closes: "gemini-requests 39.237s"},
		{Name: "the message, with minutes", Answers: said("Please retry in 2m3.5s.", ""), Closes: "gemini-requests 2m3.5s"},
		{Name: "the message, with less than a second", Answers: said("Please retry in 812.5ms.", ""), Closes: "gemini-requests 812.5ms"},
		{Name: "RetryInfo is nearer to the truth", Answers: said("Please retry in 39.237s.", `{"retryDelay":"34.07s"}`), Closes: "gemini-requests 34.07s"},
		{Name: "RetryInfo that is over", Answers: said("Please retry in 0s.", `{"retryDelay":"0s"}`), Closes: "gemini-requests 1s"},
		{Name: "a message that only names a limit", Answers: said("limit: 20 requests in 1 minute", ""), Closes: "gemini-requests 1s"},
		{Name: "a gateway's page", Header: presettest.Header{"Content-Type": "text/html"}, Answers: "<html>", Closes: "gemini-requests 1s"},
	})
}

func TestNoRefusals(t *testing.T) {
	presettest.Run(t, gemini.Policies(gemini.Options{}), presettest.Case{Request: generate, Header: presettest.JSON()}, []presettest.Case{
		{Name: "an answer that quotes a refusal", Answers: exceeded("GenerateRequestsPerDayPerProjectPerModel", delay)},
		{Name: "no money", Status: 402, Answers: `{"error":{"code":402,"status":"RESOURCE_EXHAUSTED"}}`},
		{Name: "no such key", Status: 400, Answers: `{"error":{"code":400,"message":"API key not valid.","status":"INVALID_ARGUMENT"}}`},
		{Name: "not allowed", Status: 403, Answers: `{"error":{"code":403,"status":"PERMISSION_DENIED"}}`},
		{Name: "overload", Status: 503, Answers: `{"error":{"code":503,"message":"The model is overloaded.","status":"UNAVAILABLE"}}`},
		{Name: "another host", Request: "POST https://aiplatform.googleapis.com/v1/x", Status: 429},
	})
}

func TestUsage(t *testing.T) {
	policies := gemini.Policies(gemini.Options{Tokens: 250_000})
	long := `{"contents":"` + strings.Repeat("x", 386) + `"}` // 100 tokens
	events, stream := presettest.Header{"Content-Type": "text/event-stream"}, strings.Replace(generate, ":generate", ":streamGenerate", 1)
	used := `{"candidates":[],"usageMetadata":{"promptTokenCount":1290,"candidatesTokenCount":5,"totalTokenCount":1295}}`
	presettest.Run(t, policies, presettest.Case{Request: generate, Sends: presettest.JSON(), Body: long, Header: presettest.JSON()}, []presettest.Case{
		{Name: "what was sent", Answers: used, Costs: "gemini-tokens 1290"},
		{Name: "in OpenAI's form", Request: "POST https://generativelanguage.googleapis.com/v1beta/openai/chat/completions",
			Answers: `{"usage":{"prompt_tokens":90,"completion_tokens":5,"total_tokens":95}}`, Costs: "gemini-tokens 90"},
		{Name: "a stream in a list", Request: stream, Answers: `[{"candidates":[]},` + used + "]", Costs: "gemini-tokens 1290"},
		{Name: "a stream of events", Request: stream, Header: events, Costs: "gemini-tokens 1290",
			Answers: `data: {"candidates":[],"usageMetadata":{"trafficType":"ON_DEMAND"}}` + "\r\n\r\ndata: " + used + "\r\n\r\n"},
		{Name: "a stream in OpenAI's form", Request: "POST https://generativelanguage.googleapis.com/v1beta/openai/chat/completions", Header: events,
			Answers: `data: {"choices":[],"usage":{"prompt_tokens":90,"completion_tokens":5,"total_tokens":95}}` + "\n\ndata: [DONE]\n\n", Costs: "gemini-tokens 90"},
		{Name: "a stream does not say", Request: stream, Header: events, Answers: strings.Repeat(`data: {"candidates":[]}`+"\n\n", 200)},
	})
	require.Equal(t, 250_000, presettest.Cost(t, gemini.Policies(gemini.Options{Tokens: 250_000, Cost: func(*http.Request) int { return 1 << 30 }}),
		"gemini-tokens", presettest.Request(t, generate)))
}

func TestStreamsCutAtEachByte(t *testing.T) {
	r := presettest.Request(t, strings.Replace(generate, ":generate", ":streamGenerate", 1), `{"contents":"`+strings.Repeat("x", 386)+`"}`)
	r.Header.Set("Content-Type", "application/json")
	const stream = "data: {\"candidates\":[{\"content\":{\"parts\":[{\"text\":\"\\\"promptTokenCount\\\":7\"}]}}],\"usageMetadata\":{\"trafficType\":\"ON_DEMAND\"}}\r\n\r\n" +
		"data: {\"candidates\":[{\"finishReason\":\"STOP\"}],\"usageMetadata\":{\"promptTokenCount\":2100,\"candidatesTokenCount\":9}}\r\n\r\n"
	presettest.CutStreams(t, gemini.Policies(gemini.Options{}), "gemini-tokens", r, stream, 2100)
}

func TestSharedBudgets(t *testing.T) {
	with := func(path, key string, body ...string) *http.Request {
		r := presettest.Request(t, "POST https://generativelanguage.googleapis.com/v1beta/"+path, body...)
		r.Header.Set("Content-Type", "application/json")
		r.Header.Set("X-Goog-Api-Key", key)
		return r
	}
	one := with("models/gemini-2.5-flash:generateContent", "a")
	for _, c := range []struct {
		name    string
		options gemini.Options
		other   *http.Request
		same    bool
	}{
		{name: "a model", other: with("models/gemini-2.5-flash:countTokens", "a"), same: true},
		{name: "a model in the body", other: with("openai/chat/completions", "a", `{"model":"gemini-2.5-flash"}`), same: true},
		{name: "another model", other: with("models/gemini-2.5-pro:generateContent", "a")},
		{name: "another project", other: with("models/gemini-2.5-flash:generateContent", "b")},
		{name: "a project's keys", options: gemini.Options{Project: "p"}, other: with("models/gemini-2.5-flash:generateContent", "b"), same: true},
		{name: "a project of which the caller says", options: gemini.Options{Caller: throttle.Header("X-Goog-Api-Key")},
			other: with("models/gemini-2.5-flash:generateContent", "b")},
		{name: "a group of models", options: gemini.Options{Model: func(*http.Request) string { return "flash" }},
			other: with("models/gemini-2.0-flash:generateContent", "a"), same: true},
	} {
		for _, row := range []string{"gemini-requests", "gemini-tokens", "gemini-day"} {
			require.Equal(t, c.same, presettest.Shared(t, gemini.Policies(c.options), row, one, c.other), c.name)
		}
	}
}

// TestStreamsAreLeftAlone: nothing is read ahead.
func TestStreamsAreLeftAlone(t *testing.T) {
	stream := strings.Replace(generate, ":generate", ":streamGenerate", 1)
	for _, media := range []string{"text/event-stream", "application/json"} {
		require.Zero(t, presettest.LookedAt(t, gemini.Policies(gemini.Options{}), stream, 200, presettest.Header{"Content-Type": media}, "[{"))
	}
}
