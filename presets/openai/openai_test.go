package openai_test

import (
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fleetthrottle/throttle"
	"github.com/fleetthrottle/throttle/presets/internal/presettest"
	"github.com/fleetthrottle/throttle/presets/openai"
)

const chat = "POST https://api.openai.com/v1/chat/completions"

type header = presettest.Header

// sent is the header of a request.
var sent = header{"Content-Type": "application/json", "Authorization": "Bearer sk-a"}

// ask returns a request for a completion.
func ask(t *testing.T, body string) *http.Request {
	t.Helper()
	r := presettest.Request(t, chat, body)
	r.Header.Set("Content-Type", "application/json")
	return r
}

func TestRows(t *testing.T) {
	policies := openai.Policies(openai.Options{Requests: 500, Tokens: 30_000})
	require.Equal(t, throttle.PerMinute(500), policies[0].Limit)
	require.Equal(t, throttle.PerMinute(30_000), policies[1].Limit)
	require.Equal(t, "openai-requests, openai-tokens", presettest.Rows(t, policies, ask(t, `{"max_tokens":5}`)))
	require.Equal(t, "openai-requests", presettest.Rows(t, policies, presettest.Request(t, "https://api.openai.com/v1/models")))
	require.Empty(t, presettest.Rows(t, policies, presettest.Request(t, "https://chatgpt.com/v1/models")))

	even := openai.Policies(openai.Options{Requests: 60, Tokens: 30_000, Even: true})
	require.Equal(t, throttle.PerSecond(1), even[0].Limit)
	require.Equal(t, throttle.LeakyBucket(30_000, time.Minute), even[1].Limit)

	elsewhere := openai.Policies(openai.Options{Host: "llm.example.com"})
	require.Equal(t, "openai-requests", presettest.Rows(t, elsewhere, presettest.Request(t, "https://llm.example.com/v1/models")))
}

func TestSharedBudgets(t *testing.T) {
	with := func(key, body string) *http.Request {
		r := presettest.Request(t, chat, body)
		r.Header.Set("Content-Type", "application/json; charset=utf-8")
		r.Header.Set("Authorization", "Bearer "+key)
		return r
	}
	oneShot := with("sk-a", `{"model":"gpt-4o"}`)
	oneShot.GetBody = nil
	one := with("sk-a", `{"messages":[{"model":"no"}],"model":"gpt-4o","stream":false,"n":null,"max_tokens":"many"}`)
	all := openai.Options{
		Project: "one",
		Model:   func(*http.Request) string { return "" },
	}
	for _, c := range []struct {
		name    string
		options openai.Options
		other   *http.Request
		same    bool
	}{
		{name: "a model", other: with("sk-a", `{"model":"gpt-4o"}`), same: true},
		{name: "another model", other: with("sk-a", `{"model":"gpt-4.1"}`)},
		{name: "another project", other: with("sk-b", `{"model":"gpt-4o"}`)},
		{name: "no model", other: with("sk-a", `{}`)},
		{name: "no object", other: with("sk-a", `["model","gpt-4o"]`)},
		{name: "cut off before", other: with("sk-a", `{"model":"gpt-4o`)},
		{name: "cut off after", other: with("sk-a", `{"model":"gpt-4o"`), same: true},
		{name: "malformed after", other: with("sk-a", `{"model":"gpt-4o","messages":]`), same: true},
		{name: "a body that can be read but once", other: oneShot},
		{name: "told so", options: all, other: with("sk-b", `{"model":"gpt-4.1"}`), same: true},
	} {
		require.Equal(t, c.same, presettest.Shared(t, openai.Policies(c.options), "openai-requests", one, c.other), c.name)
	}
}

const short = `{"model":"gpt-4o","max_tokens":300}`

// limited is the body of a 429.
func limited(kind, code, message string) string {
	return `{"error":{"message":"` + message + `","type":"` + kind + `","param":null,"code":"` + code + `"}}`
}

const tokens = "Rate limit reached for 10KTPM-200RPM in organization org-x on tokens per min. Limit: 10000 / min. " +
	"Please try again in 6ms. Contact us through our help center at help.openai.com if you continue to have issues."

func TestRefusals(t *testing.T) {
	json := header{"Content-Type": "application/json"}
	presettest.Run(t, openai.Policies(openai.Options{}), presettest.Case{Request: chat, Sends: sent, Body: short, Status: 429, Header: json}, []presettest.Case{
		{Name: "requests", Answers: limited("requests", "rate_limit_exceeded", "Rate limit reached. Please try again in 41.724s. Visit"),
			Closes: "openai-requests 41.724s"},
		{Name: "tokens", Answers: limited("tokens", "rate_limit_exceeded", tokens), Closes: "openai-tokens 6ms"},
		{Name: "minutes", Answers: limited("requests", "rate_limit_exceeded", "Please try again in 7m12s."), Closes: "openai-requests 7m12s"},
		{Name: "Retry-After is nearer to the truth", Header: header{"Content-Type": "application/json", "Retry-After": "3"},
			Answers: limited("tokens", "rate_limit_exceeded", "Please try again in 2.1s."), Closes: "openai-tokens 3s"},
		{Name: "tokens, nobody knows for how long", Answers: limited("tokens", "rate_limit_exceeded", "Rate limit reached."),
			Closes: "openai-tokens 1s"},
		{Name: "neither does a gateway say", Header: header{"Content-Type": "text/html"}, Answers: "<html>429 Too Many Requests</html>",
			Closes: "openai-requests 1s"},
		{Name: "overload, for a while, says one backend", Status: 503, Header: header{"Content-Type": "application/json", "Retry-After": "30"}},
	})
}

func TestNoRefusals(t *testing.T) {
	json := header{"Content-Type": "application/json"}
	presettest.Run(t, openai.Policies(openai.Options{}), presettest.Case{Request: chat, Sends: sent, Body: short, Header: json}, []presettest.Case{
		{Name: "no money", NoRefusal: true, Status: 429,
			Answers: limited("insufficient_quota", "insufficient_quota", "You exceeded your current quota, please check your plan and billing details.")},
		{Name: "no money, without a code", NoRefusal: true, Status: 429,
			Answers: `{"error":{"message":"You exceeded your current quota","type":"insufficient_quota","code":null}}`},
		{Name: "no such key", Status: 401,
			Header:  header{"Content-Type": "application/json", "x-ratelimit-remaining-requests": "0", "x-ratelimit-reset-requests": "1s"},
			Answers: limited("invalid_request_error", "invalid_api_key", "Incorrect API key provided.")},
		{Name: "not allowed", Status: 403, Answers: limited("requests", "rate_limit_exceeded", "Please try again in 20s.")},
		{Name: "an answer that quotes a refusal", Answers: limited("tokens", "rate_limit_exceeded", "Please try again in 20s.")},
		{Name: "overload", Status: 503, Answers: limited("server_error", "", "")},
	})
}

func TestWhatIsLeft(t *testing.T) {
	said := func(limit, remaining, reset string) header {
		return header{"x-ratelimit-limit-requests": limit, "x-ratelimit-remaining-requests": remaining, "x-ratelimit-reset-requests": reset}
	}
	both := said("60", "30", "30s")
	both["x-ratelimit-limit-tokens"], both["x-ratelimit-remaining-tokens"], both["x-ratelimit-reset-tokens"] = "150000", "30000", "48s"
	presettest.Run(t, openai.Policies(openai.Options{}), presettest.Case{Request: chat, Sends: sent, Body: short}, []presettest.Case{
		{Name: "a twentieth", Header: said("60", "3", "57s"), Left: "openai-requests 3 3s"},
		{Name: "nothing", Header: said("60", "0", "1m0s"), Left: "openai-requests 0 1s"},
		{Name: "most", Header: said("60", "59", "1s"), Left: "openai-requests 59 1s"},
		{Name: "of a day", Header: said("200", "199", "7m12s"), Left: "openai-requests 199 7m12s"},
		{Name: "milliseconds", Header: said("5000", "4999", "12ms"), Left: "openai-requests 4999 12ms"},
		{Name: "a limit that is not told", Header: said("", "3", "6m0s"), Left: "openai-requests 3 6m"},
		{Name: "a limit that cannot be so much", Header: said("2", "3", "1s"), Left: "openai-requests 3 1s"},
		{Name: "of both", Header: both, Left: "openai-requests 30 30s, openai-tokens 30000 12s"},
		{Name: "all", Header: said("60", "60", "0s")},
		{Name: "unreadable", Header: said("60", "many", "soon")},
	})
}
