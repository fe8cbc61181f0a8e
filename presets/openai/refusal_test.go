package openai_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fleetthrottle/throttle"
	"github.com/fleetthrottle/throttle/presets/internal/presettest"
	"github.com/fleetthrottle/throttle/presets/openai"
)

type closes = map[string]time.Duration

const short = `{"model":"gpt-4o","max_tokens":300}`

// limited is the body of a 429.
func limited(kind, code, message string) string {
	return `{"error":{"message":"` + message + `","type":"` + kind + `","param":null,"code":"` + code + `"}}`
}

const tokens = "Rate limit reached for 10KTPM-200RPM in organization org-x on tokens per min. Limit: 10000 / min. " +
	"Please try again in 6ms. Contact us through our help center at help.openai.com if you continue to have issues."

func TestRefusals(t *testing.T) {
	json := header{"Content-Type": "application/json"}
	presettest.Run(t, openai.Policies(openai.Options{}), []presettest.Case{
		{
			Name: "requests", Request: chat, Sends: sent, Body: short, Status: 429, Header: json,
			Answers: limited("requests", "rate_limit_exceeded", "Rate limit reached. Please try again in 41.724s. Visit"),
			Closes:  closes{"openai-requests": 41724 * time.Millisecond},
		},
		{
			Name: "tokens", Request: chat, Sends: sent, Body: short, Status: 429, Header: json,
			Answers: limited("tokens", "rate_limit_exceeded", tokens),
			Closes:  closes{"openai-tokens": 6 * time.Millisecond},
		},
		{
			Name: "minutes", Request: chat, Sends: sent, Body: short, Status: 429, Header: json,
			Answers: limited("requests", "rate_limit_exceeded", "Please try again in 7m12s."),
			Closes:  closes{"openai-requests": 7*time.Minute + 12*time.Second},
		},
		{
			Name: "Retry-After is nearer to the truth", Request: chat, Sends: sent, Body: short, Status: 429,
			Header:  header{"Content-Type": "application/json", "Retry-After": "3"},
			Answers: limited("tokens", "rate_limit_exceeded", "Please try again in 2.1s."),
			Closes:  closes{"openai-tokens": 3 * time.Second},
		},
		{
			Name: "tokens, nobody knows for how long", Request: chat, Sends: sent, Body: short, Status: 429, Header: json,
			Answers: limited("tokens", "rate_limit_exceeded", "Rate limit reached."),
			Closes:  closes{"openai-tokens": time.Second},
		},
		{
			Name: "neither does a gateway say", Request: chat, Sends: sent, Body: short, Status: 429,
			Header: header{"Content-Type": "text/html"}, Answers: "<html>429 Too Many Requests</html>",
			Closes: closes{"openai-requests": time.Second},
		},
		{
			Name: "overload, for a while, says one backend", Request: chat, Sends: sent, Body: short, Status: 503,
			Header: header{"Content-Type": "application/json", "Retry-After": "30"},
		},
	})
}

func TestNoRefusals(t *testing.T) {
	json := header{"Content-Type": "application/json"}
	presettest.Run(t, openai.Policies(openai.Options{}), []presettest.Case{
		{
			Name: "no money", NoRefusal: true, Request: chat, Sends: sent, Body: short, Status: 429, Header: json,
			Answers: limited("insufficient_quota", "insufficient_quota",
				"You exceeded your current quota, please check your plan and billing details."),
		},
		{
			Name: "no money, without a code", NoRefusal: true, Request: chat, Sends: sent, Body: short, Status: 429, Header: json,
			Answers: `{"error":{"message":"You exceeded your current quota","type":"insufficient_quota","code":null}}`,
		},
		{
			Name: "no such key", Request: chat, Sends: sent, Body: short, Status: 401,
			Header:  header{"Content-Type": "application/json", "x-ratelimit-remaining-requests": "0", "x-ratelimit-reset-requests": "1s"},
			Answers: limited("invalid_request_error", "invalid_api_key", "Incorrect API key provided."),
		},
		{
			Name: "not allowed", Request: chat, Sends: sent, Body: short, Status: 403, Header: json,
			Answers: limited("requests", "rate_limit_exceeded", "Please try again in 20s."),
		},
		{
			Name: "an answer that quotes a refusal", Request: chat, Sends: sent, Body: short, Header: json,
			Answers: limited("tokens", "rate_limit_exceeded", "Please try again in 20s."),
		},
		{Name: "overload", Request: chat, Sends: sent, Body: short, Status: 503, Header: json, Answers: limited("server_error", "", "")},
	})
}

func TestWhatIsLeft(t *testing.T) {
	policies := openai.Policies(openai.Options{})
	said := func(limit, remaining, reset string) header {
		return header{
			"x-ratelimit-limit-requests": limit, "x-ratelimit-remaining-requests": remaining, "x-ratelimit-reset-requests": reset,
		}
	}
	for name, c := range map[string]struct {
		header header
		want   throttle.Quota
	}{
		"a twentieth":                    {said("60", "3", "57s"), throttle.Quota{Left: 3, Reset: 3 * time.Second}},
		"nothing":                        {said("60", "0", "1m0s"), throttle.Quota{Left: 0, Reset: time.Second}},
		"most":                           {said("60", "59", "1s"), throttle.Quota{Left: 59, Reset: time.Second}},
		"of a day":                       {said("200", "199", "7m12s"), throttle.Quota{Left: 199, Reset: 432 * time.Second}},
		"milliseconds":                   {said("5000", "4999", "12ms"), throttle.Quota{Left: 4999, Reset: 12 * time.Millisecond}},
		"a limit that is not told":       {said("", "3", "6m0s"), throttle.Quota{Left: 3, Reset: 6 * time.Minute}},
		"a limit that cannot be so much": {said("2", "3", "1s"), throttle.Quota{Left: 3, Reset: time.Second}},
	} {
		presettest.Run(t, policies, []presettest.Case{{
			Name: name, Request: chat, Sends: sent, Body: short,
			Header: c.header, Left: map[string]throttle.Quota{"openai-requests": c.want},
		}})
	}
	presettest.Run(t, policies, []presettest.Case{
		{
			Name: "of both", Request: chat, Sends: sent, Body: short,
			Header: header{
				"x-ratelimit-limit-requests": "60", "x-ratelimit-limit-tokens": "150000",
				"x-ratelimit-remaining-requests": "30", "x-ratelimit-remaining-tokens": "30000",
				"x-ratelimit-reset-requests": "30s", "x-ratelimit-reset-tokens": "48s",
			},
			Left: map[string]throttle.Quota{
				"openai-requests": {Left: 30, Reset: 30 * time.Second},
				"openai-tokens":   {Left: 30_000, Reset: 12 * time.Second},
			},
		},
		{Name: "all", Request: chat, Sends: sent, Body: short, Header: said("60", "60", "0s")},
		{Name: "unreadable", Request: chat, Sends: sent, Body: short, Header: said("60", "many", "soon")},
	})
}

func TestStreamsAreLeftAlone(t *testing.T) {
	r := presettest.Request(t, chat, nil)
	stream := header{"Content-Type": "text/event-stream"}
	require.Zero(t, presettest.LookedAt(t, openai.Policies(openai.Options{}), r, 200, stream, "data: "))
}
