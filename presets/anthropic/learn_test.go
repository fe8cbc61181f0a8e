package anthropic_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fleetthrottle/throttle"
	"github.com/fleetthrottle/throttle/presets/anthropic"
	"github.com/fleetthrottle/throttle/presets/internal/presettest"
)

// TestEstimatesLearn: after 8 answers a request is taken to need what those needed, for each model, and
// not more than max_tokens. A program's own estimate stays.
func TestEstimatesLearn(t *testing.T) {
	body := func(model string, most int) string {
		return fmt.Sprintf(`{"model":%q,"max_tokens":%d,"messages":"%s"}`, model, most, strings.Repeat("x", 9_958))
	}
	costs := func(policies []throttle.Policy, model string, most int) string {
		r := presettest.Request(t, message, body(model, most))
		r.Header.Set("Content-Type", "application/json")
		return strings.TrimPrefix(presettest.Costs(t, policies, r), "anthropic-requests 1, ")
	}
	answered := func(policies []throttle.Policy, n int) {
		presettest.Run(t, policies, presettest.Case{Request: message, Sends: sends, Body: body("a", 4000)}, []presettest.Case{
			{Header: presettest.JSON(), Answers: `{"usage":{"input_tokens":250,"output_tokens":100}}`, Costs: "anthropic-input-tokens 250, anthropic-output-tokens 100"},
			{Header: header{"Content-Type": "text/event-stream"}, Costs: "anthropic-input-tokens 250, anthropic-output-tokens 100",
				Answers: `data: {"message":{"usage":{"input_tokens":250}}}` + "\n\n" + `data: {"usage":{"output_tokens":100}}` + "\n\n"},
			{Name: "refused", Header: presettest.JSON(), Status: 400, Answers: `{}`},
			{Name: "cut", Header: header{"Content-Type": "text/event-stream"}, Answers: `data: {"message":{}}` + "\n\n"},
		}[:n])
	}
	policies := anthropic.Policies(anthropic.Options{})
	for range 4 {
		require.Equal(t, "anthropic-input-tokens 2500, anthropic-output-tokens 4000", costs(policies, "a", 4000))
		answered(policies, 4)
	}
	require.Equal(t, "anthropic-input-tokens 250, anthropic-output-tokens 100", costs(policies, "a", 4000))
	require.Equal(t, "anthropic-input-tokens 250, anthropic-output-tokens 30", costs(policies, "a", 30))
	require.Equal(t, "anthropic-input-tokens 2500, anthropic-output-tokens 4000", costs(policies, "b", 4000))

	own := anthropic.Policies(anthropic.Options{Input: func(*http.Request) int { return 70 }, Output: func(*http.Request) int { return 90 }})
	for range 4 {
		answered(own, 2)
	}
	require.Equal(t, "anthropic-input-tokens 70, anthropic-output-tokens 90", costs(own, "a", 4000))
}

func TestStreamsCutAtEachByte(t *testing.T) {
	r := presettest.Request(t, message, `{"model":"a","max_tokens":4000}`)
	r.Header.Set("Content-Type", "application/json")
	const stream = "event: message_start\ndata: {\"type\":\"message_start\",\"message\":{\"usage\":{\"input_tokens\":60,\"cache_read_input_tokens\":9,\"output_tokens\":1}}}\n\n" +
		"event: ping\ndata: {\"type\": \"ping\"}\n\nevent: content_block_delta\ndata: {\"delta\":{\"text\":\"\\\"usage\\\":{\\\"output_tokens\\\":7}\"}}\n\n" +
		"event: message_delta\ndata: {\"type\":\"message_delta\",\"usage\":{\"output_tokens\":2100}}\n\nevent: message_stop\ndata: {\"type\":\"message_stop\"}\n\n"
	presettest.CutStreams(t, anthropic.Policies(anthropic.Options{}), "anthropic-output-tokens", r, stream, 2100)
	own := anthropic.Policies(anthropic.Options{Input: func(*http.Request) int { return 4000 }})
	presettest.CutStreams(t, own, "anthropic-input-tokens", r, stream, 60)
}
