package proxy_test

import (
	"encoding/json"
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fleetthrottle/throttle"
)

// TestFormOfRefusal: a call of a language model is refused in the form that its SDK reads, beside the members of a problem.
func TestFormOfRefusal(t *testing.T) {
	openAI := func(kind string) map[string]any {
		return map[string]any{"message": "DETAIL", "type": kind, "param": nil, "code": "rate_limit_exceeded", "policy": "POLICY"}
	}
	anthropic := func() map[string]any { return map[string]any{"type": "rate_limit_error", "message": "DETAIL"} }
	gemini := map[string]any{"code": 429.0, "message": "DETAIL", "status": "RESOURCE_EXHAUSTED"}
	const quota = "https://iana.org/assignments/http-problem-types#quota-exceeded"

	for _, c := range []struct {
		policy, path, header string
		kind                 any
		want                 map[string]any
	}{
		{"api", "/v1/chat/completions", "", quota, openAI("requests")},
		{"openai-tokens", "/openai/deployments/x/chat/completions?api-version=1", "", quota, openAI("tokens")},
		{"api", "/v1/responses", "", quota, openAI("requests")},
		{"api", "/v1/messages", "", "error", anthropic()},
		{"api", "/v1/messages/batches", "Anthropic-Version: 2023-06-01", "error", anthropic()},
		{"api", "/v1beta/models/m:streamGenerateContent?alt=sse", "", quota, gemini},
		{"api", "/v1/orders", "", quota, nil},
		{"api", "/v1/chat/completions/x", "", quota, nil},
	} {
		t.Run(c.path, func(t *testing.T) {
			s := newScene(t, func(http.ResponseWriter, *http.Request) {}, nil, throttle.Policy{Name: c.policy, Limit: throttle.SlidingWindow(1, time.Hour)})
			path := "/" + s.upstream + c.path
			var headers []string
			if c.header != "" {
				headers = []string{c.header}
			}
			resp, _ := s.get(path, headers...)
			require.Equal(t, http.StatusOK, resp.StatusCode)

			resp, body := s.get(path, headers...)
			require.Equal(t, http.StatusTooManyRequests, resp.StatusCode)
			require.NotEmpty(t, resp.Header.Get("Retry-After"))
			require.Equal(t, "1.1 throttle", resp.Header.Get("Via"))
			var p map[string]any
			require.NoError(t, json.Unmarshal([]byte(body), &p))
			require.Equal(t, c.kind, p["type"])
			require.Equal(t, c.policy, p["policy"])
			require.Contains(t, p["detail"], "MaxWait is 5s")

			for name, v := range c.want {
				switch v {
				case "DETAIL":
					c.want[name] = p["detail"]
				case "POLICY":
					c.want[name] = c.policy
				}
			}
			if c.want == nil {
				require.NotContains(t, p, "error")
				require.Equal(t, "application/problem+json", resp.Header.Get("Content-Type"))
				return
			}
			require.Equal(t, "application/json", resp.Header.Get("Content-Type"))
			require.Equal(t, c.want, p["error"])
		})
	}
}
