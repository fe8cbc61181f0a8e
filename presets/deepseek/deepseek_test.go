package deepseek_test

import (
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fleetthrottle/throttle"
	"github.com/fleetthrottle/throttle/presets/deepseek"
	"github.com/fleetthrottle/throttle/presets/internal/presettest"
)

const (
	chat = "POST https://api.deepseek.com/chat/completions"
	pro  = `{"model":"deepseek-v4-pro","messages":[]}`
)

func TestRefusals(t *testing.T) {
	usual := presettest.Case{Request: chat, Sends: presettest.JSON(), Body: pro, Status: 429, Header: presettest.JSON()}
	presettest.Run(t, deepseek.Policies(deepseek.Options{}), usual, []presettest.Case{
		presettest.Recorded(t, "balance.http").As("the balance is low", "deepseek-model 1s"),
		{Name: "nothing in it", Closes: "deepseek-model 1s"},
		{Name: "Retry-After", Header: presettest.JSON("Retry-After", "4"), Closes: "deepseek-model 4s"},
		{Name: "a model that nobody knows", Body: `{"model":"deepseek-v9"}`, Closes: "deepseek-model 1s"},
	})
}

func TestNoRefusals(t *testing.T) {
	usual := presettest.Case{Request: chat, Sends: presettest.JSON(), Body: pro, Header: presettest.JSON()}
	presettest.Run(t, deepseek.Policies(deepseek.Options{}), usual, []presettest.Case{
		{Name: "no balance", Status: 402, Answers: `{"error":{"message":"Insufficient Balance","type":"unknown_error","param":null,"code":"invalid_request_error"}}`},
		{Name: "no such key", Status: 401, Answers: `{"error":{"message":"Authentication Fails"}}`},
		{Name: "overload", Status: 503},
		{Name: "an answer that quotes a refusal", Answers: `{"choices":[{"message":{"content":"Too many requests"}}]}`},
		{Name: "another host", Request: "POST https://www.deepseek.com/", Status: 429},
	})
}

func TestRowsByModel(t *testing.T) {
	for body, want := range map[string]string{
		pro:                             "deepseek-pro 1, deepseek-model 1",
		`{"model":"deepseek-flash"}`:    "deepseek-flash 1, deepseek-model 1",
		`{"model":"deepseek-v4-flash"}`: "deepseek-flash 1, deepseek-model 1",
		`{"model":"deepseek-v9"}`:       "deepseek-model 1",
		`{}`:                            "deepseek-model 1",
	} {
		r := presettest.Request(t, "POST https://api.deepseek.com/anthropic/v1/messages", body)
		r.Header.Set("Content-Type", "application/json")
		require.Equal(t, want, presettest.Costs(t, deepseek.Policies(deepseek.Options{}), r), body)
	}
	require.Equal(t, "", presettest.Rows(t, deepseek.Policies(deepseek.Options{}), presettest.Request(t, "https://api.deepseek.com/user/balance")))
}

func TestAccounts(t *testing.T) {
	with := func(account string) *http.Request {
		r := presettest.Request(t, chat, pro)
		r.Header.Set("Content-Type", "application/json")
		r.Header.Set("Authorization", "Bearer "+account)
		return r
	}
	told := deepseek.Policies(deepseek.Options{Caller: throttle.Header("Authorization")})
	for _, row := range []string{"deepseek-pro", "deepseek-model"} {
		require.True(t, presettest.Shared(t, deepseek.Policies(deepseek.Options{}), row, with("a"), with("b")))
		require.False(t, presettest.Shared(t, told, row, with("a"), with("b")))
	}
}
