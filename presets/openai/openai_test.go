package openai_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fleetthrottle/throttle"
	"github.com/fleetthrottle/throttle/memstore"
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

func Example() {
	transport := throttle.Must(throttle.New(throttle.Config{MaxWait: throttle.Forever, Store: memstore.New(), Policies: openai.Policies(openai.Options{Requests: 500, Tokens: 30_000})}))
	body := strings.NewReader(`{"model":"gpt-4o","max_tokens":200,"messages":[]}`)
	r, err := http.NewRequest(http.MethodPost, "https://api.openai.com/v1/chat/completions", body) // with GetBody
	if err != nil {
		panic(err)
	}
	r.Header.Set("Content-Type", "application/json")
	for _, c := range transport.Explain(r) {
		fmt.Println(c.Budget.Policy, c.Limit, "costs", c.Cost)
	}
	// Output:
	// openai-requests 500/m costs 1
	// openai-tokens 30000/m costs 200
}
