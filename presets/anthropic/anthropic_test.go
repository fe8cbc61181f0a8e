package anthropic_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fleetthrottle/throttle"
	"github.com/fleetthrottle/throttle/presets/anthropic"
	"github.com/fleetthrottle/throttle/presets/internal/presettest"
)

type header = presettest.Header

const (
	message = "POST https://api.anthropic.com/v1/messages"
	count   = "POST https://api.anthropic.com/v1/messages/count_tokens"
	batch   = "https://api.anthropic.com/v1/messages/batches/msgbatch_1"
)

var sends = header{"Content-Type": "application/json"}

// told is a table with numbers that are never met.
var (
	toldOptions = anthropic.Options{Requests: 50, InputTokens: 40_000, OutputTokens: 8_000}
	told        = anthropic.Policies(toldOptions)
)

func refused(what string) string {
	return `{"type":"error","error":{"type":"rate_limit_error","message":"This request would exceed the rate limit for your organization (0dccdde6) of ` +
		what + `. For details, refer to: https://docs.anthropic.com/en/api/rate-limits."},"request_id":"req_1"}`
}

func TestRefusals(t *testing.T) {
	const body = `{"model":"claude-sonnet-4-5","max_tokens":100,"messages":[]}`
	presettest.Run(t, told, presettest.Case{Request: message, Sends: sends, Body: body, Status: 429, Header: presettest.JSON()}, []presettest.Case{
		{Name: "requests", Header: presettest.JSON("Retry-After", "12"), Answers: refused("50 requests per minute"), Closes: "anthropic-requests 12s"},
		{Name: "input tokens", Header: presettest.JSON("Retry-After", "41"), Answers: refused("40,000 input tokens per minute"), Closes: "anthropic-input-tokens 41s"},
		{Name: "output tokens", Header: presettest.JSON("Retry-After", "7"), Answers: refused("8,000 output tokens per minute"), Closes: "anthropic-output-tokens 7s"},
		{Name: "nobody says how long", Answers: refused("8,000 output tokens per minute"), Closes: "anthropic-output-tokens 1s"},
		{Name: "acceleration", Answers: `{"type":"error","error":{"type":"rate_limit_error","message":"Rate limited"}}`, Closes: "anthropic-requests 1s"},
		{Name: "a body that is none", Header: header{"Retry-After": "3"}, Answers: "slow down", Closes: "anthropic-requests 3s"},
		{Name: "overloaded", Status: 529, Answers: `{"type":"error","error":{"type":"overloaded_error","message":"Overloaded"}}`, Closes: "anthropic-requests 1s"},
		{Name: "overloaded for longer", Status: 529, Header: presettest.JSON("Retry-After", "20"), Answers: `{"type":"error","error":{"type":"overloaded_error","message":"Overloaded"}}`,
			Closes: "anthropic-requests 20s"},
		{Name: "counting", Request: count, Header: presettest.JSON("Retry-After", "5"), Answers: refused("100 requests per minute"), Closes: "anthropic-api 5s"},
		{Name: "a batch", Request: batch, Answers: refused("50 requests per minute"), Closes: "anthropic-api 1s"},
		{Name: "a batch, overloaded", Request: batch, Status: 529, Answers: `{"type":"error","error":{"type":"overloaded_error"}}`, Closes: "anthropic-api 1s"},
	})
}

func TestNoRefusals(t *testing.T) {
	presettest.Run(t, told, presettest.Case{Request: message, Sends: sends, Body: `{"max_tokens":5}`, Header: presettest.JSON()}, []presettest.Case{
		{Name: "the month's money", Status: 429, NoRefusal: true, Answers: `{"type":"error","error":{"type":"rate_limit_error",` +
			`"message":"You have reached your API usage limits. You will regain access on 2026-09-01 at 00:00 UTC.","details":{"error_code":"enforced_spend_limit_reached"}}}`},
		{Name: "the month's money, elsewhere", Request: batch, Status: 429, NoRefusal: true,
			Answers: `{"type":"error","error":{"type":"rate_limit_error","details":{"error_code":"enforced_spend_limit_reached"}}}`},
		{Name: "an own limit on money", Status: 400, Answers: `{"type":"error","error":{"type":"invalid_request_error","message":"You have reached your specified API usage limits."}}`},
		{Name: "no money", Status: 402, Answers: `{"type":"error","error":{"type":"billing_error","message":"credit balance is too low"}}`},
		{Name: "no permission", Status: 403, Answers: `{"type":"error","error":{"type":"permission_error"}}`},
		{Name: "too long", Status: 413, Answers: `{"type":"error","error":{"type":"request_too_large"}}`},
		{Name: "an error of theirs", Status: 500, Answers: `{"type":"error","error":{"type":"api_error"}}`},
		{Name: "one 503", Status: 503, Header: presettest.JSON("Retry-After", "9"), Answers: `{}`},
		{Name: "an answer about limits", Answers: `{"content":[{"type":"text","text":"rate_limit_error: 40,000 input tokens per minute"}]}`},
	})
}

func TestUsage(t *testing.T) {
	long := `{"model":"claude","max_tokens":300,"messages":"` + strings.Repeat("x", 352) + `"}` // 100 tokens
	used := func(in, created, read, out int) string {
		return fmt.Sprintf(`{"type":"message","content":[{"type":"text","text":"usage"}],"usage":{"input_tokens":%d,"cache_creation_input_tokens":%d,"cache_read_input_tokens":%d,"output_tokens":%d}}`, in, created, read, out)
	}
	stream := header{"Content-Type": "text/event-stream"}
	started := "event: message_start\ndata: {\"type\":\"message_start\",\"message\":" + used(60, 1000, 5000, 1) + "}\n\n"
	const ended = "event: message_delta\ndata: {\"type\":\"message_delta\",\"usage\":{\"output_tokens\":20}}\n\n"
	presettest.Run(t, told, presettest.Case{Request: message, Sends: sends, Body: long, Header: presettest.JSON()}, []presettest.Case{
		{Name: "less", Answers: used(60, 0, 0, 20), Costs: "anthropic-input-tokens 60, anthropic-output-tokens 20"},
		{Name: "more", Answers: used(160, 0, 0, 400), Costs: "anthropic-input-tokens 160, anthropic-output-tokens 400"},
		{Name: "put into a cache", Answers: used(60, 1000, 0, 20), Costs: "anthropic-input-tokens 1060, anthropic-output-tokens 20"},
		{Name: "read from a cache", Answers: used(60, 0, 1000, 20), Costs: "anthropic-input-tokens 60, anthropic-output-tokens 20"},
		{Name: "without a word of a cache", Answers: `{"usage":{"input_tokens":60,"output_tokens":20}}`, Costs: "anthropic-input-tokens 60, anthropic-output-tokens 20"},
		{Name: "a stream", Header: stream, Answers: started + ended, Costs: "anthropic-input-tokens 1060, anthropic-output-tokens 20"},
		{Name: "a stream whose end does not know its beginning", Header: stream, Answers: started + strings.Replace(ended, "{\"output", "{\"input_tokens\":0,\"output", 1),
			Costs: "anthropic-input-tokens 1060, anthropic-output-tokens 20"},
		{Name: "a stream that is cut", Header: stream, Answers: started + ended[:60], Costs: "anthropic-input-tokens 1060"},
		{Name: "a long stream that is cut", Header: stream, Answers: started + strings.Repeat("data: {\"type\":\"content_block_delta\"}\n\n", 400), Costs: "anthropic-input-tokens 1060, anthropic-output-tokens 401"},
		{Name: "refused", Status: 400, Answers: `{"type":"error","error":{"type":"invalid_request_error"}}`},
	})
	told := anthropic.Policies(toldOptions) // which have learned nothing yet
	costs := func(line, body string) string {
		r := presettest.Request(t, line, body)
		r.Header.Set("Content-Type", "application/json")
		return presettest.Costs(t, told, r)
	}
	require.Equal(t, "anthropic-requests 1, anthropic-input-tokens 100, anthropic-output-tokens 300", costs(message, long))
	require.Equal(t, "anthropic-requests 1, anthropic-input-tokens 5, anthropic-output-tokens 8000", costs(message, `{"max_tokens":64000}`))
	require.Equal(t, "anthropic-requests 1, anthropic-input-tokens 1, anthropic-output-tokens 1", costs(message, `{}`))
	require.Equal(t, "anthropic-api 1", costs(count, long))
}

// TestWhatIsLeft: the bucket of 50 has 20 left and is full in a minute, so 20 flow in within
// 40 s. A moment in whole seconds counts with the second that may have been cut off.
func TestWhatIsLeft(t *testing.T) {
	presettest.Run(t, told, presettest.Case{Request: message, Sends: sends, Body: `{"max_tokens":5}`}, []presettest.Case{
		{Name: "requests", Header: presettest.JSON("Anthropic-Ratelimit-Requests-Limit", "50", "Anthropic-Ratelimit-Requests-Remaining", "20",
			"Anthropic-Ratelimit-Requests-Reset", "2000-01-01T00:00:59Z"), Answers: "{}", Left: "anthropic-requests 20 40s"},
		{Name: "tokens", Header: presettest.JSON("Anthropic-Ratelimit-Input-Tokens-Limit", "40000", "Anthropic-Ratelimit-Input-Tokens-Remaining", "10000",
			"Anthropic-Ratelimit-Input-Tokens-Reset", "2000-01-01T00:00:59Z", "Anthropic-Ratelimit-Output-Tokens-Limit", "8000",
			"Anthropic-Ratelimit-Output-Tokens-Remaining", "4000", "Anthropic-Ratelimit-Output-Tokens-Reset", "2000-01-01T00:00:29Z"), Answers: "{}",
			Left: "anthropic-input-tokens 10000 20s, anthropic-output-tokens 4000 30s"},
		{Name: "a date that is none", Header: presettest.JSON("Anthropic-Ratelimit-Requests-Limit", "50", "Anthropic-Ratelimit-Requests-Remaining", "20",
			"Anthropic-Ratelimit-Requests-Reset", "soon"), Answers: "{}"},
	})
}

func TestRows(t *testing.T) {
	require.Equal(t, "anthropic-requests 50/m, anthropic-input-tokens 40000/m, anthropic-output-tokens 8000/m, anthropic-api unlimited", presettest.Limits(told))
	require.Equal(t, "anthropic-requests 1000000000/m, anthropic-input-tokens 1000000000/m, anthropic-output-tokens 1000000000/m, anthropic-api unlimited",
		presettest.Limits(anthropic.Policies(anthropic.Options{})))
	even := anthropic.Policies(anthropic.Options{Requests: 60, InputTokens: 600, OutputTokens: 60, Even: true})
	require.Equal(t, throttle.PerSecond(1), even[0].Limit)
	require.Equal(t, throttle.LeakyBucket(600, time.Minute), even[1].Limit)
	require.Equal(t, throttle.LeakyBucket(60, time.Minute), even[2].Limit)

	require.Equal(t, "anthropic-api", presettest.Rows(t, told, presettest.Request(t, "https://api.anthropic.com/v1/models")))
	require.Empty(t, presettest.Rows(t, told, presettest.Request(t, "https://claude.ai/v1/messages")))
	elsewhere := anthropic.Policies(anthropic.Options{Host: "llm.example.com"})
	require.Equal(t, "anthropic-api", presettest.Rows(t, elsewhere, presettest.Request(t, "https://llm.example.com/v1/models")))
}

func TestBudgets(t *testing.T) {
	ask := func(body string) *http.Request {
		r := presettest.Request(t, message, body)
		r.Header.Set("Content-Type", "application/json")
		r.Header.Set("X-Api-Key", body)
		return r
	}
	one := ask(`{"model":"claude-opus-4-1","max_tokens":5}`)
	require.True(t, presettest.Shared(t, told, "anthropic-requests", one, ask(`{"max_tokens":9,"model":"claude-opus-4-1"}`)), "another key of the organization")
	require.False(t, presettest.Shared(t, told, "anthropic-requests", one, ask(`{"model":"claude-opus-4-5"}`)), "another model")

	class := anthropic.Policies(anthropic.Options{Model: func(*http.Request) string { return "opus 4" }})
	require.True(t, presettest.Shared(t, class, "anthropic-output-tokens", one, ask(`{"model":"claude-opus-4-5"}`)), "models of a class")

	several := anthropic.Policies(anthropic.Options{Caller: throttle.Header("Organization")})
	require.Equal(t, "anthropic-requests Organization, anthropic-output-tokens Organization", presettest.Splits(t, several, message, "Organization"))
	a, b := anthropic.Policies(anthropic.Options{Organization: "a"}), anthropic.Policies(anthropic.Options{Organization: "b"})
	require.NotEqual(t, presettest.Budget(t, a, "anthropic-requests", one), presettest.Budget(t, b, "anthropic-requests", one))

	other := func(line string) *http.Request { return presettest.Request(t, line) }
	require.True(t, presettest.Shared(t, told, "anthropic-api", other(batch), other("https://api.anthropic.com/v1/messages/batches/msgbatch_2/results")), "the same endpoint")
	require.False(t, presettest.Shared(t, told, "anthropic-api", other(batch), other(count)), "another endpoint")
	require.False(t, presettest.Shared(t, told, "anthropic-api", other(batch), other("https://api.anthropic.com/v1/files/file_1")), "another service")
}

func TestOwnEstimates(t *testing.T) {
	policies := anthropic.Policies(anthropic.Options{InputTokens: 1000, OutputTokens: 100,
		Input: func(*http.Request) int { return 70 }, Output: func(*http.Request) int { return 101 }})
	require.Equal(t, "anthropic-requests 1, anthropic-input-tokens 70, anthropic-output-tokens 100", presettest.Costs(t, policies, presettest.Request(t, message)))
}
