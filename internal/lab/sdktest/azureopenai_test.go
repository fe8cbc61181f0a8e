package sdktest

import (
	"fmt"
	"net/http"
	"testing"
	"time"

	openaiapi "github.com/openai/openai-go/v3"
	"github.com/openai/openai-go/v3/azure"
	"github.com/openai/openai-go/v3/option"
	"github.com/stretchr/testify/require"

	"github.com/fleetthrottle/throttle"
	"github.com/fleetthrottle/throttle/memstore"
	"github.com/fleetthrottle/throttle/presets/azureopenai"
	"github.com/fleetthrottle/throttle/retry"
)

func recipeAzureOpenAI(store throttle.Store, base http.RoundTripper) openaiapi.Client {
	transport := throttle.Must(throttle.New(throttle.Config{
		Store: store,
		Policies: azureopenai.Policies(azureopenai.Options{
			Requests: 600, Tokens: 100_000, // a minute, as the deployment has them
		}),
		Base: base, // leave it out in a program
	}))
	return openaiapi.NewClient(
		azure.WithEndpoint("https://acme.openai.azure.com", "2024-10-21"),
		azure.WithAPIKey("key"),
		option.WithHTTPClient(retry.NewClient(transport).StandardClient()),
		option.WithMaxRetries(0), // the SDK repeats a refusal too, and each repeat five times
	)
}

// azurePlatform counts requests by the second, and tokens by the minute.
func azurePlatform() platform {
	const deployment = "/openai/deployments/gpt-4o/chat/completions"
	exceeded := func(what string, stated bool) func(*call, time.Duration) reply {
		return func(_ *call, left time.Duration) reply {
			a := reply{status: 429}
			then := fmt.Sprintf(" Please retry after %s seconds.", seconds(left))
			if stated {
				then, a.header = "", map[string]string{"retry-after-ms": fmt.Sprint(left.Milliseconds() + 1)}
			}
			a.body = `{"error":{"code":"429","message":"Requests to the ChatCompletions_Create Operation under Azure OpenAI API version 2024-10-21 have exceeded ` +
				what + ` rate limit of your current OpenAI S0 pricing tier.` + then + `"}}`
			return a
		}
	}
	return platform{
		limits: func(c *call) []limit {
			return []limit{
				{budget: "requests", n: 10, per: time.Second, cost: 1},
				{budget: "tokens", n: 100_000, per: time.Minute, cost: len(c.body)/4 + question(c).Max},
			}
		},
		scopes: func(*call) []string { return []string{deployment} },
		refusals: []refusal{
			{name: "requests, printed", closes: always(deployment), lasts: 9 * time.Second, reply: exceeded("call", false)},
			{name: "tokens, printed", closes: always(deployment), lasts: 21 * time.Second, reply: exceeded("token", false)},
			{name: "tokens, in milliseconds", closes: always(deployment), lasts: 2500 * time.Millisecond, reply: exceeded("token", true)},
		},
		answer: func(c *call) reply {
			if c.URL.Path != deployment || c.Header.Get("Api-Key") != "key" {
				return reply{status: 404, body: `{"error":{"code":"DeploymentNotFound"}}`}
			}
			text := question(c).Messages[0].Content
			c.do(text)
			return ok(fmt.Sprintf(`{"id":"1","object":"chat.completion","choices":[{"index":0,"message":{"role":"assistant","content":%q}}],"usage":{"total_tokens":50}}`, text))
		},
	}
}

func TestAzureOpenAI(t *testing.T) {
	play(t, azurePlatform(), func(t *testing.T, u *upstream) {
		store := memstore.New()
		apps := clients(func() openaiapi.Client { return recipeAzureOpenAI(store, u.base()) })
		ask := func(w, i int) error {
			text := fmt.Sprint("question ", i)
			answer, err := apps[w%programs].Chat.Completions.New(t.Context(), openaiapi.ChatCompletionNewParams{
				Model:               "gpt-4o", // the deployment's name
				Messages:            []openaiapi.ChatCompletionMessageParamUnion{openaiapi.UserMessage(text)},
				MaxCompletionTokens: openaiapi.Int(100),
			})
			if err == nil {
				require.Equal(t, text, answer.Choices[0].Message.Content)
			}
			return err
		}
		u.calls(0, 301, 24, ask)
		u.requireUsed("requests", 30*time.Second)

		u.refuse(35)
		u.calls(301, 249, 24, ask)
		for i := range 550 {
			u.requireOnce(fmt.Sprint("question ", i))
		}
	})
}
