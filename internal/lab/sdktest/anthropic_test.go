package sdktest

import (
	"encoding/json"
	"fmt"
	"net/http"
	"testing"
	"time"

	anthropicapi "github.com/anthropics/anthropic-sdk-go"
	"github.com/anthropics/anthropic-sdk-go/option"
	"github.com/stretchr/testify/require"

	"github.com/fleetthrottle/throttle"
	"github.com/fleetthrottle/throttle/memstore"
	"github.com/fleetthrottle/throttle/presets/anthropic"
	"github.com/fleetthrottle/throttle/retry"
)

func recipeAnthropic(store throttle.Store, base http.RoundTripper) anthropicapi.Client {
	transport := throttle.Must(throttle.New(throttle.Config{
		Store: store,
		Policies: anthropic.Policies(anthropic.Options{
			Requests: 500, InputTokens: 300_000, OutputTokens: 30_000, // a minute, as the Console says
		}),
		Base: base, // leave it out in a program
	}))
	return anthropicapi.NewClient(
		option.WithAPIKey("sk-ant-key"),
		option.WithHTTPClient(retry.NewClient(transport).StandardClient()),
		option.WithMaxRetries(0), // the SDK repeats a refusal too, and each repeat five times
	)
}

// anthropicPlatform counts requests and tokens by the minute.
func anthropicPlatform() platform {
	const model = "claude-sonnet-4-5"
	exceeds := func(what string) func(*call, time.Duration) reply {
		return func(_ *call, left time.Duration) reply {
			return reply{429, map[string]string{"Retry-After": seconds(left)}, `{"type":"error","error":{"type":"rate_limit_error",` +
				`"message":"This request would exceed the rate limit for your organization of ` + what + ` per minute."},"request_id":"req_1"}`}
		}
	}
	return platform{
		limits: func(c *call) []limit {
			return []limit{
				{budget: "requests", n: 500, per: time.Minute, cost: 1},
				{budget: "output tokens", n: 30_000, per: time.Minute, cost: prompt(c).Max},
			}
		},
		scopes: func(*call) []string { return []string{model} },
		refusals: []refusal{
			{name: "requests", closes: always(model), lasts: 12500 * time.Millisecond, reply: exceeds("500 requests")},
			{name: "output tokens", closes: always(model), lasts: 6 * time.Second, reply: exceeds("30,000 output tokens")},
		},
		answer: func(c *call) reply {
			q := prompt(c)
			text := q.Messages[0].Content[0].Text
			c.do(text)
			return ok(fmt.Sprintf(`{"id":"msg_1","type":"message","role":"assistant","model":%q,"content":[{"type":"text","text":%q}],`+
				`"stop_reason":"end_turn","usage":{"input_tokens":10,"output_tokens":%d}}`, model, text, q.Max))
		},
	}
}

type prompted struct {
	Max      int `json:"max_tokens"`
	Messages []struct{ Content []struct{ Text string } }
}

func prompt(c *call) (q prompted) {
	if json.Unmarshal(c.body, &q) != nil || len(q.Messages) == 0 || len(q.Messages[0].Content) == 0 {
		c.u.t.Errorf("no prompt: %s", c.body)
	}
	return q
}

func TestAnthropic(t *testing.T) {
	play(t, anthropicPlatform(), func(t *testing.T, u *upstream) {
		store := memstore.New()
		apps := clients(func() anthropicapi.Client { return recipeAnthropic(store, u.base()) })
		ask := func(w, i int) error {
			text := fmt.Sprint("question ", i)
			answer, err := apps[w%programs].Messages.New(t.Context(), anthropicapi.MessageNewParams{
				Model: "claude-sonnet-4-5", MaxTokens: 100,
				Messages: []anthropicapi.MessageParam{anthropicapi.NewUserMessage(anthropicapi.NewTextBlock(text))},
			})
			if err == nil {
				require.Equal(t, text, answer.Content[0].Text)
			}
			return err
		}
		u.calls(0, 301, 24, ask)
		u.requireUsed("output tokens", time.Minute)

		u.refuse(35)
		u.calls(301, 249, 24, ask)
		for i := range 550 {
			u.requireOnce(fmt.Sprint("question ", i))
		}
	})
}

// TestAnthropicOverloaded: nobody knows what an upstream in trouble has done, so a 529 is
// not repeated, but the next call waits for a second.
func TestAnthropicOverloaded(t *testing.T) {
	p := anthropicPlatform()
	p.refusals = nil
	p.answer = func(c *call) reply {
		c.do("asked")
		return reply{529, nil, `{"type":"error","error":{"type":"overloaded_error","message":"Overloaded"}}`}
	}
	play(t, p, func(t *testing.T, u *upstream) {
		app := recipeAnthropic(memstore.New(), u.base())
		begin := time.Now()
		for range 3 {
			_, err := app.Messages.New(t.Context(), questionForClaude)
			var refused *anthropicapi.Error
			require.ErrorAs(t, err, &refused)
			require.Equal(t, 529, refused.StatusCode)
		}
		require.GreaterOrEqual(t, time.Since(begin), 2*time.Second)
		require.Equal(t, 3, u.effects["asked"])
	})
}

var questionForClaude = anthropicapi.MessageNewParams{
	Model: "claude-sonnet-4-5", MaxTokens: 100,
	Messages: []anthropicapi.MessageParam{anthropicapi.NewUserMessage(anthropicapi.NewTextBlock("question"))},
}

// TestAnthropicMoney: a 429 that no wait helps against is not repeated, and closes
// nothing.
func TestAnthropicMoney(t *testing.T) {
	p := anthropicPlatform()
	p.refusals = nil
	p.answer = func(c *call) reply {
		c.do("asked")
		return reply{429, nil, `{"type":"error","error":{"type":"rate_limit_error","message":"You have reached your API usage limits.","details":{"error_code":"enforced_spend_limit_reached"}}}`}
	}
	play(t, p, func(t *testing.T, u *upstream) {
		app := recipeAnthropic(memstore.New(), u.base())
		begin := time.Now()
		for range 3 {
			_, err := app.Messages.New(t.Context(), questionForClaude)
			var refused *anthropicapi.Error
			require.ErrorAs(t, err, &refused)
			require.Equal(t, 429, refused.StatusCode)
		}
		require.Less(t, time.Since(begin), time.Second)
		require.Equal(t, 3, u.effects["asked"])
	})
}
