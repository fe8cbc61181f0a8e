package openai_test

import (
	"io"
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

// TestLongBodies: no more than 64 KB are read, and those from a copy.
func TestLongBodies(t *testing.T) {
	picture := strings.Repeat("A", 20<<20)
	for body, want := range map[string]struct {
		model  string
		tokens int
	}{
		`{"model":"m","max_tokens":9000000,"input":"` + picture + `"}`: {"m", 9_000_000},
		`{"input":"` + picture + `","model":"m","max_tokens":9000000}`: {"", 5_242_891},
	} {
		var read int
		r := presettest.Request(t, chat, unreadable{t})
		r.Header.Set("Content-Type", "application/json")
		r.ContentLength = int64(len(body))
		r.GetBody = func() (io.ReadCloser, error) {
			read = 0
			return counted{strings.NewReader(body), &read}, nil
		}
		policies := openai.Policies(openai.Options{})
		require.Equal(t, want.tokens, presettest.Costs(t, policies, r)["openai-tokens"])
		require.LessOrEqual(t, read, 64<<10)

		same := presettest.Request(t, chat, strings.NewReader(`{"model":"`+want.model+`"}`))
		same.Header = r.Header
		require.Equal(t, presettest.Budget(t, policies, "openai-tokens", same), presettest.Budget(t, policies, "openai-tokens", r))
	}
}

// unreadable is a body that is the base's.
type unreadable struct{ *testing.T }

func (u unreadable) Read([]byte) (int, error) {
	u.Error("the body was read")
	return 0, io.EOF
}

type counted struct {
	io.Reader
	n *int
}

func (c counted) Read(p []byte) (int, error) {
	n, err := c.Reader.Read(p)
	*c.n += n
	return n, err
}

func (c counted) Close() error { return nil }

// TestWithoutACopy: a body that can be read but once costs what its length says,
// and one token at least.
func TestWithoutACopy(t *testing.T) {
	r := presettest.Request(t, chat, strings.NewReader(`{"max_tokens":300}`))
	r.Header.Set("Content-Type", "application/json")
	r.GetBody = nil
	policies := openai.Policies(openai.Options{})
	require.Equal(t, 4, presettest.Costs(t, policies, r)["openai-tokens"])
	r.ContentLength = -1
	require.Equal(t, 1, presettest.Costs(t, policies, r)["openai-tokens"])
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
