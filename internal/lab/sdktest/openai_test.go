package sdktest

import (
	"encoding/json"
	"fmt"
	"net/http"
	"testing"
	"time"

	openaiapi "github.com/openai/openai-go/v3"
	"github.com/openai/openai-go/v3/option"
	"github.com/stretchr/testify/require"

	"github.com/fleetthrottle/throttle"
	"github.com/fleetthrottle/throttle/memstore"
	"github.com/fleetthrottle/throttle/presets/openai"
	"github.com/fleetthrottle/throttle/retry"
)

func recipeOpenAI(store throttle.Store, base http.RoundTripper) openaiapi.Client {
	transport := throttle.Must(throttle.New(throttle.Config{
		Store: store,
		Policies: openai.Policies(openai.Options{
			Requests: 500, Tokens: 30_000, // a minute, as the account's settings say
		}),
		Base: base, // leave it out in a program
	}))
	return openaiapi.NewClient(
		option.WithAPIKey("sk-key"),
		option.WithHTTPClient(retry.NewClient(transport).StandardClient()),
		option.WithMaxRetries(0), // the SDK repeats a refusal too, and each repeat five times
	)
}

// openaiPlatform counts requests and tokens by the minute.
func openaiPlatform() platform {
	const model = "gpt-4o"
	tooMany := func(kind string, again func(time.Duration) reply) func(*call, time.Duration) reply {
		return func(_ *call, left time.Duration) reply {
			a := again(left)
			a.status = 429
			a.body = fmt.Sprintf(`{"error":{"message":"Rate limit reached for gpt-4o.%s Visit the site.","type":%q,"param":null,"code":"rate_limit_exceeded"}}`, a.body, kind)
			return a
		}
	}
	stated := func(left time.Duration) reply {
		return reply{header: map[string]string{"Retry-After": seconds(left)}}
	}
	printed := func(left time.Duration) reply {
		return reply{body: fmt.Sprintf(" Please try again in %v.", left.Round(time.Millisecond)+time.Millisecond)}
	}
	return platform{
		limits: func(c *call) []limit {
			return []limit{
				{budget: "requests", n: 500, per: time.Minute, cost: 1},
				{budget: "tokens", n: 30_000, per: time.Minute, cost: max(question(c).Max, len(c.body)/4)},
			}
		},
		scopes: func(*call) []string { return []string{model} },
		refusals: []refusal{
			{name: "requests, printed", closes: always(model), lasts: 12500 * time.Millisecond, reply: tooMany("requests", printed)},
			{name: "tokens, printed", closes: always(model), lasts: 6 * time.Second, reply: tooMany("tokens", printed)},
			{name: "tokens, stated", closes: always(model), lasts: 20 * time.Second, reply: tooMany("tokens", stated)},
		},
		answer: func(c *call) reply {
			q := question(c)
			c.do(q.Messages[0].Content)
			if q.Stream {
				chunk := fmt.Sprintf(`{"id":"1","object":"chat.completion.chunk","choices":[{"index":0,"delta":{"content":%q}}]}`, q.Messages[0].Content)
				return reply{200, map[string]string{"Content-Type": "text/event-stream"}, "data: " + chunk + "\n\ndata: [DONE]\n\n"}
			}
			return ok(fmt.Sprintf(`{"id":"1","object":"chat.completion","choices":[{"index":0,"message":{"role":"assistant","content":%q}}],`+
				`"usage":{"prompt_tokens":10,"completion_tokens":%d,"total_tokens":%d}}`, q.Messages[0].Content, q.Max-20, q.Max-10))
		},
	}
}

type asked struct {
	Max      int `json:"max_completion_tokens"`
	Stream   bool
	Messages []struct{ Content string }
}

func question(c *call) (q asked) {
	if json.Unmarshal(c.body, &q) != nil || len(q.Messages) == 0 {
		c.u.t.Errorf("no question: %s", c.body)
	}
	return q
}

func TestOpenAI(t *testing.T) {
	play(t, openaiPlatform(), func(t *testing.T, u *upstream) {
		store := memstore.New()
		apps := clients(func() openaiapi.Client { return recipeOpenAI(store, u.base()) })
		ask := func(w, i int) error {
			text := fmt.Sprint("question ", i)
			params := openaiapi.ChatCompletionNewParams{
				Model:               "gpt-4o",
				Messages:            []openaiapi.ChatCompletionMessageParamUnion{openaiapi.UserMessage(text)},
				MaxCompletionTokens: openaiapi.Int(100),
			}
			chat := apps[w%programs].Chat.Completions
			if i%10 > 0 {
				answer, err := chat.New(t.Context(), params)
				if err == nil {
					require.Equal(t, text, answer.Choices[0].Message.Content)
				}
				return err
			}
			stream, read := chat.NewStreaming(t.Context(), params), ""
			for stream.Next() {
				read += stream.Current().Choices[0].Delta.Content
			}
			require.NoError(t, stream.Close())
			require.Equal(t, text, read)
			return stream.Err()
		}
		u.calls(0, 301, 24, ask)
		u.requireUsed("tokens", time.Minute)

		u.refuse(35)
		u.calls(301, 249, 24, ask)
		for i := range 550 {
			u.requireOnce(fmt.Sprint("question ", i))
		}
	})
}

// TestOpenAIMoney: a 429 that no wait helps against is not repeated, and closes
// nothing.
func TestOpenAIMoney(t *testing.T) {
	p := openaiPlatform()
	p.refusals = nil
	p.answer = func(c *call) reply {
		c.do("asked")
		return reply{429, nil, `{"error":{"message":"You exceeded your current quota.","type":"insufficient_quota","code":"insufficient_quota"}}`}
	}
	play(t, p, func(t *testing.T, u *upstream) {
		app := recipeOpenAI(memstore.New(), u.base())
		begin := time.Now()
		for range 3 {
			_, err := app.Chat.Completions.New(t.Context(), openaiapi.ChatCompletionNewParams{
				Model:    "gpt-4o",
				Messages: []openaiapi.ChatCompletionMessageParamUnion{openaiapi.UserMessage("question")},
			})
			var refused *openaiapi.Error
			require.ErrorAs(t, err, &refused)
			require.Equal(t, "insufficient_quota", refused.Code)
		}
		require.Less(t, time.Since(begin), time.Second)
		require.Equal(t, 3, u.effects["asked"])
	})
}
