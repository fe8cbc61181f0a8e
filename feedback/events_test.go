package feedback_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fleetthrottle/throttle"
	"github.com/fleetthrottle/throttle/feedback"
)

// stream returns the answer of a media type, whose body is not read here.
func stream(media string) *http.Response {
	return &http.Response{StatusCode: 200, Header: http.Header{"Content-Type": {media}}}
}

// metered returns what a meter says of pieces of a body.
func metered(m throttle.Meter, pieces ...string) int {
	for _, piece := range pieces {
		_, _ = m.Write([]byte(piece))
	}
	return m.Cost()
}

var tokens = feedback.Amount{Fields: []string{"usage.total_tokens", "response.usage.total_tokens"}}

// told is a stream that says what it has cost, in the forms that streams have.
var told = map[string]string{
	"chat":       "data: {\"choices\":[{\"delta\":{\"content\":\"\\\"usage\\\" total_tokens\"}}],\"usage\":null}\n\ndata: {\"choices\":[],\"usage\":{\"total_tokens\":2100}}\n\ndata: [DONE]\n\n",
	"responses":  "event: response.created\ndata: {\"response\":{\"usage\":null}}\n\nevent: response.completed\ndata: {\"response\":{\"usage\":{\"total_tokens\":2100}}}\n\n",
	"CRLF":       ": comment\r\nid: 1\r\ndata:{\"usage\":{\"total_tokens\":2100}}\r\n\r\n",
	"CR":         "data: {\"usage\":{\"total_tokens\":2100}}\r\r",
	"a mark":     "\ufeffdata: {\"usage\":{\"total_tokens\":2100}}\n\n",
	"lines":      "data: {\"usage\":\ndata: {\"total_tokens\":\ndata: 2100}}\n\n",
	"CRLF lines": "data: {\"usage\":\r\ndata: {\"total_tokens\":\r\ndata: 2100}}\r\n\r\n",
	"no end":     "data: {\"usage\":{\"total_tokens\":2100}}",
}

// TestEventsInPieces: wherever a stream is cut in two pieces the cost is the same.
func TestEventsInPieces(t *testing.T) {
	for name, body := range told {
		for at := range len(body) + 1 {
			require.Equal(t, 2100, metered(tokens.Meter(stream("text/event-stream; charset=utf-8")), body[:at], body[at:]), "%s at %d", name, at)
		}
		require.Equal(t, 2100, metered(tokens.Meter(stream("text/event-stream")), strings.Split(body, "")...), name)
	}
}

// TestEventsCutOff: a stream that ends at any byte tells its cost or nothing, and never another
// number.
func TestEventsCutOff(t *testing.T) {
	for name, body := range told {
		know := false
		for at := range len(body) + 1 {
			switch cost := metered(tokens.Meter(stream("text/event-stream")), body[:at]); {
			case cost == 2100:
				know = true
			case know || cost != -1:
				require.Failf(t, "another number", "%s cut at %d: %d", name, at, cost)
			}
		}
		require.True(t, know, name)
	}
}

func TestEvents(t *testing.T) {
	usage := func(n int) string { return fmt.Sprintf(`{"usage":{"total_tokens":%d}}`, n) }
	long := strings.Repeat("x", 1<<20)
	for _, c := range []struct {
		name, media, body string
		want              int
	}{
		{"the last counts", "text/event-stream", "data: " + usage(1) + "\n\ndata: " + usage(7) + "\n\n", 7},
		{"one below 0 does not", "text/event-stream", "data: " + usage(7) + "\n\ndata: " + usage(-1) + "\n\n", 7},
		{"it tells nothing", "text/event-stream", "data: {}\n\ndata: [DONE]\n\n", -1},
		{"an empty body", "text/event-stream", "", -1},
		{"a large event", "text/event-stream", "data: {\"text\":\"" + long[20:] + "\"}\n\ndata: " + usage(7) + "\n\n", 7},
		{"a huge event", "text/event-stream", "data: {\"text\":\"" + long + "\"}\n\ndata: " + usage(7) + "\n\n", 7},
		{"a huge event that would tell", "text/event-stream", "data: {\"text\":\"" + long + "\",\"usage\":{\"total_tokens\":7}}\n\n", -1},
		{"an event of many lines", "text/event-stream", strings.Repeat("data: "+long[:1000]+"\n", 1100) + "\ndata: " + usage(7) + "\n\n", 7},
		{"lines of JSON", "application/x-ndjson", `{"usage":null}` + "\n" + usage(7) + "\n\n", 7},
		{"lines of JSON, without the last end", "application/jsonl", usage(1) + "\n" + usage(7), 7},
		{"JSON", "application/json", `{"data":["` + long[100:] + `"],` + usage(7)[1:], 7},
		{"JSON that is too long", "application/json", `{"data":["` + long + `"],` + usage(7)[1:], -1},
		{"JSON that is cut", "application/json", usage(7)[:26], -1},
	} {
		t.Run(c.name, func(t *testing.T) {
			require.Equal(t, c.want, metered(tokens.Meter(stream(c.media)), c.body))
		})
	}
	for _, media := range []string{"", "text/plain", "application/octet-stream", "multipart/mixed"} {
		require.Nil(t, tokens.Meter(stream(media)), media)
	}
	failed := stream("text/event-stream")
	failed.StatusCode = 400
	require.Nil(t, tokens.Meter(failed))
}

// TestEventsKeepLittle: what an event of nearly a megabyte has taken is not kept for the next.
func TestEventsKeepLittle(t *testing.T) {
	seen := ""
	m := feedback.Events(stream("text/event-stream"), func(data []byte) int { seen += fmt.Sprint(len(data), " "); return len(data) })
	require.Equal(t, 2, metered(m, "data: ", strings.Repeat("x", 1_000_000), "\n\ndata: ok\n\n"))
	require.Equal(t, "1000000 2 ", seen)
}
