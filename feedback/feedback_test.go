package feedback_test

import (
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fleetthrottle/throttle"
	"github.com/fleetthrottle/throttle/feedback"
	"github.com/fleetthrottle/throttle/memstore"
)

// TestPartsTogether: what several parts say of the request and of the budget, put together.
func TestPartsTogether(t *testing.T) {
	closes := throttle.Refused
	var (
		nothing throttle.Answer
		other   = closes(0)
		not     = throttle.Answer{Verdict: throttle.VerdictNotRefused}
		partly  = throttle.Answer{Verdict: throttle.VerdictPartly}
		paused  = throttle.Answer{Verdict: throttle.VerdictNotRefused, Close: 4}
		silent  = throttle.Answer{Close: 6}
	)
	for _, c := range []struct {
		name       string
		said       []throttle.Answer
		first, all throttle.Answer
	}{
		{"nobody", nil, nothing, nothing},
		{"nothing", []throttle.Answer{nothing, nothing}, nothing, nothing},
		{"the second", []throttle.Answer{nothing, closes(3), closes(5)}, closes(3), closes(5)},
		{"the longer one is first", []throttle.Answer{closes(5), closes(3)}, closes(5), closes(5)},
		{"no, and nobody else is asked", []throttle.Answer{nothing, not, closes(5)}, not, closes(5)},
		{"no comes late", []throttle.Answer{closes(5), not}, closes(5), closes(5)},
		{"no and nothing", []throttle.Answer{not, nothing}, not, not},
		{"of another budget", []throttle.Answer{other, closes(5)}, other, closes(5)},
		{"of another budget, and no", []throttle.Answer{other, not}, other, not},
		{"no, and of another budget", []throttle.Answer{not, other}, not, not},
		{"partly, and for how long", []throttle.Answer{partly, closes(5)}, partly, throttle.Answer{Verdict: throttle.VerdictPartly, Close: 5}},
		{"for how long, and partly", []throttle.Answer{closes(5), partly}, closes(5), throttle.Answer{Verdict: throttle.VerdictPartly, Close: 5}},
		{"no, but closed", []throttle.Answer{nothing, closes(3), paused}, closes(3), paused},
		{"closed without a verdict", []throttle.Answer{nothing, silent, closes(3)}, silent, silent},
	} {
		t.Run(c.name, func(t *testing.T) {
			var rs []feedback.Reader
			for _, a := range c.said {
				rs = append(rs, func(*http.Response) throttle.Answer { return a })
			}
			require.Equal(t, c.first, feedback.First(rs...)(answer(200, "")))
			require.Equal(t, c.all, feedback.All(rs...)(answer(200, "")))
		})
	}
}

// TestFirstAsksNobodyElse once somebody has a verdict; but what is left says nothing of the request.
func TestFirstAsksNobodyElse(t *testing.T) {
	asked := 0
	ask := func(*http.Response) throttle.Answer { asked++; return throttle.Refused(time.Second) }
	require.Equal(t, feedback.NotRefused(nil), feedback.First(feedback.NotRefused, ask)(answer(200, "")))
	require.Equal(t, throttle.Refused(0), feedback.First(feedback.For(0), ask)(answer(200, "")))
	require.Zero(t, asked)
	require.Equal(t, throttle.Refused(time.Second), feedback.First(ask, ask)(answer(200, "")))
	require.Equal(t, 1, asked)

	fields := []string{"X-RateLimit-Remaining", "5", "X-RateLimit-Reset", "30"}
	left := feedback.First(common.Answer, throttle.RetryAfter)(answer(429, "", fields...))
	require.Equal(t, throttle.Refused(time.Second).WithLeft(throttle.Quota{Left: 5, Reset: 30 * time.Second}), left)
}

// TestWhatIsLeftAndTheCostTogether: the least counts of what is left, and the first of the costs.
func TestWhatIsLeftAndTheCostTogether(t *testing.T) {
	says := func(n int, reset time.Duration) feedback.Reader {
		return func(*http.Response) throttle.Answer { return throttle.Answer{}.WithLeft(*left(n, reset)) }
	}
	silent := func(*http.Response) throttle.Answer { return throttle.Answer{} }
	for _, c := range []struct {
		name  string
		parts []feedback.Reader
		want  *throttle.Quota
	}{
		{"nobody", nil, nil},
		{"silence", []feedback.Reader{silent, silent}, nil},
		{"one speaks", []feedback.Reader{silent, says(7, time.Hour)}, left(7, time.Hour)},
		{"less", []feedback.Reader{says(7, time.Hour), says(3, time.Second), silent}, left(3, time.Second)},
		{"more", []feedback.Reader{says(3, time.Second), says(7, time.Hour)}, left(3, time.Second)},
		{"the same for longer", []feedback.Reader{says(3, time.Second), says(3, time.Hour)}, left(3, time.Hour)},
		{"the same for less long", []feedback.Reader{says(3, time.Hour), says(3, time.Second)}, left(3, time.Hour)},
		{"nothing", []feedback.Reader{says(0, 1), says(-1, 1)}, left(-1, 1)},
	} {
		t.Run(c.name, func(t *testing.T) {
			requireQuota(t, c.want, feedback.All(c.parts...), answer(200, ""))
			requireQuota(t, c.want, feedback.First(c.parts...), answer(200, ""))
		})
	}

	costs := func(n int) feedback.Reader {
		return func(*http.Response) throttle.Answer { return throttle.Answer{}.WithCost(n) }
	}
	want := throttle.Refused(time.Second).WithCost(0).WithLeft(*left(3, time.Second))
	require.Equal(t, want, feedback.All(says(3, time.Second), costs(0), feedback.For(time.Second), costs(7))(answer(429, "")))
	require.Equal(t, want, feedback.First(says(3, time.Second), costs(0), feedback.For(time.Second), costs(7))(answer(429, "")))
}

// TestActed: a refusal that closes the budget was acted on, and no other answer.
func TestActed(t *testing.T) {
	partly := func(r feedback.Reader) throttle.Answer { return feedback.Acted(r, feedback.Succeeded)(answer(200, "")) }
	require.Equal(t, throttle.Answer{Verdict: throttle.VerdictPartly, Close: time.Second}, partly(feedback.For(time.Second)))
	require.Equal(t, throttle.Refused(0), partly(feedback.For(0)))
	require.Equal(t, feedback.NotRefused(nil), partly(feedback.NotRefused))
	require.Equal(t, throttle.Refused(time.Second), feedback.Acted(feedback.For(time.Second), feedback.Succeeded)(answer(429, "")))
}

func TestPartly(t *testing.T) {
	for body, want := range map[string]bool{
		`{"data":{"a":{"id":1},"b":null},"errors":[{}]}`:              true,
		`{"errors":[{"data":null}],"data":{"a":1}}`:                   true,
		`{"data":{"a":"` + strings.Repeat("x", 100_000) + `"}}`:       true,
		`{"data":null,"errors":[{"extensions":{"data":1}}]}`:          false,
		`{"errors":[{"message":"no"}]}`:                               false,
		`{"errors":["` + strings.Repeat("x", 100_000) + `"],"data":1`: false,
		`{"data":`: false,
		`{"data"`:  false,
		`{`:        false,
		`[]`:       false,
		`data`:     false,
		``:         false,
	} {
		resp := jsonAnswer(200, body)
		require.Equal(t, want, feedback.Partly(resp), "%.60s", body)
		requireBody(t, body, resp)
	}
}

func TestSucceeded(t *testing.T) {
	for status, want := range map[int]bool{200: true, 204: true, 304: true, 400: false, 429: false, 503: false} {
		require.Equal(t, want, feedback.Succeeded(answer(status, "")), "%d", status)
	}
}

// minutes is an upstream that allows 100 in each minute, from 20 seconds past the
// full one, and says what is left but not for how long.
type minutes struct {
	window int64
	used   int
	total  int
}

func (u *minutes) RoundTrip(r *http.Request) (*http.Response, error) {
	if w := (time.Now().Unix() + 40) / 60; w != u.window {
		u.window, u.used = w, 0
	}
	u.used++
	u.total++
	left := strconv.Itoa(100 - u.used)
	resp := answer(200, "", "N", left, "RateLimit", `"m";r=`+left, "RateLimit-Policy", `"m";q=100;w=60`)
	resp.Request = r
	return resp, nil
}

// TestUsedAlone: a program that has a limit to itself uses nearly all of it, although
// answers do not say when there is more.
func TestUsedAlone(t *testing.T) {
	for name, left := range map[string]feedback.Reader{
		"RateLimit without t":   feedback.RateLimit{}.Left,
		"Headers without Reset": feedback.Headers{Remaining: "N", Per: time.Minute}.Left,
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				up := &minutes{}
				tr, err := throttle.New(throttle.Config{MaxWait: throttle.Forever, Store: memstore.New(), Base: up,
					Policies: []throttle.Policy{{Name: "m", Match: "/", Limit: throttle.PerMinute(100), Answer: left}}})
				require.NoError(t, err)
				for end := time.Now().Add(20 * time.Minute); time.Now().Before(end); time.Sleep(300 * time.Millisecond) {
					req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "https://api.example.com/", nil)
					require.NoError(t, err)
					resp, err := tr.RoundTrip(req)
					require.NoError(t, err)
					require.NoError(t, resp.Body.Close())
				}
				require.Greater(t, up.total, 1980)
			})
		})
	}
}

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

// date is when the answers of these tests were sent: 1767323045 seconds since
// 1970, and years away from any clock.
const date = "Fri, 02 Jan 2026 03:04:05 GMT"

// answer makes an answer of a status, a body and, in pairs, fields. It has the
// Date above unless a field says otherwise.
func answer(status int, body string, fields ...string) *http.Response {
	h := http.Header{"Date": {date}}
	for i := 0; i < len(fields); i += 2 {
		if fields[i] == "Date" {
			h.Del("Date")
		}
		h.Add(fields[i], fields[i+1])
	}
	return &http.Response{
		StatusCode:    status,
		Header:        h,
		ContentLength: int64(len(body)),
		Body:          io.NopCloser(strings.NewReader(body)),
	}
}

// jsonAnswer makes a JSON answer.
func jsonAnswer(status int, body string) *http.Response {
	return answer(status, body, "Content-Type", "application/json;charset=UTF-8")
}

// requireBody reads the whole body of an answer that somebody may have peeked at.
func requireBody(t *testing.T, want string, resp *http.Response) {
	t.Helper()
	got, err := io.ReadAll(resp.Body)
	require.NoError(t, err)
	require.Equal(t, want, string(got))
}

// left is a shorthand for an expected quota.
func left(n int, reset time.Duration) *throttle.Quota {
	return &throttle.Quota{Left: n, Reset: reset}
}

// requireQuota expects an answer to tell a quota, or none if want is nil.
func requireQuota(t *testing.T, want *throttle.Quota, read feedback.Reader, resp *http.Response) {
	t.Helper()
	q, ok := read(resp).Left()
	require.Equal(t, want != nil, ok)
	if want == nil {
		require.Zero(t, q)
		return
	}
	require.Equal(t, *want, q)
}

// no is, in tables of how long answers close a budget, what is certainly no refusal.
const no = time.Duration(-1)

// lengthOf returns for how long an answer closes the budget, or no.
func lengthOf(a throttle.Answer) time.Duration {
	if a.Verdict == throttle.VerdictNotRefused && a.Close == 0 {
		return no
	}
	return a.Close
}

// requireCloses expects an answer to close the budget for so long, as a refusal; or to be certainly none, if want
// is no.
func requireCloses(t require.TestingT, want time.Duration, got throttle.Answer, about ...any) {
	require.Equal(t, want, lengthOf(got), about...)
	if want > 0 {
		require.Equal(t, throttle.VerdictRefused, got.Verdict, about...)
	}
}

// requireCost expects an answer to tell a cost, or none if want is below 0.
func requireCost(t *testing.T, want int, got throttle.Answer) {
	t.Helper()
	cost, ok := got.Cost()
	require.Equal(t, want >= 0, ok)
	require.Equal(t, max(0, want), cost)
}

// BenchmarkCodes is the price of a look at an answer that is no refusal, which
// nearly all are: 40 KB of JSON, in the order that makes it read all.
func BenchmarkCodes(b *testing.B) {
	body := `{"errcode":0,"errmsg":"ok","result":[` +
		strings.TrimSuffix(strings.Repeat(`{"userid":"0123456789","name":"é\"","dept":[1,22,333]},`, 700), ",") + `]}`
	b.SetBytes(int64(len(body)))
	b.ReportAllocs()
	for b.Loop() {
		requireCloses(b, 0, dingtalk.Answer(jsonAnswer(200, body)))
	}
}
