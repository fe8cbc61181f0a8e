package openai_test

import (
	"bytes"
	"io"
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

const short = `{"model":"gpt-4o","max_tokens":300}`

// limited is the body of a 429.
func limited(kind, code, message string) string {
	return `{"error":{"message":"` + message + `","type":"` + kind + `","param":null,"code":"` + code + `"}}`
}

const tokens = "Rate limit reached for 10KTPM-200RPM in organization org-x on tokens per min. Limit: 10000 / min. " +
	"Please try again in 6ms. Contact us through our help center at help.openai.com if you continue to have issues."

func TestRefusals(t *testing.T) {
	json := header{"Content-Type": "application/json"}
	presettest.Run(t, openai.Policies(openai.Options{}), presettest.Case{Request: chat, Sends: sent, Body: short, Status: 429, Header: json}, []presettest.Case{
		{Name: "requests", Answers: limited("requests", "rate_limit_exceeded", "Rate limit reached. Please try again in 41.724s. Visit"),
			Closes: "openai-requests 41.724s"},
		{Name: "tokens", Answers: limited("tokens", "rate_limit_exceeded", tokens), Closes: "openai-tokens 6ms"},
		{Name: "minutes", Answers: limited("requests", "rate_limit_exceeded", "Please try again in 7m12s."), Closes: "openai-requests 7m12s"},
		{Name: "Retry-After is nearer to the truth", Header: header{"Content-Type": "application/json", "Retry-After": "3"},
			Answers: limited("tokens", "rate_limit_exceeded", "Please try again in 2.1s."), Closes: "openai-tokens 3s"},
		{Name: "tokens, nobody knows for how long", Answers: limited("tokens", "rate_limit_exceeded", "Rate limit reached."),
			Closes: "openai-tokens 1s"},
		{Name: "neither does a gateway say", Header: header{"Content-Type": "text/html"}, Answers: "<html>429 Too Many Requests</html>",
			Closes: "openai-requests 1s"},
		{Name: "overload, for a while, says one backend", Status: 503, Header: header{"Content-Type": "application/json", "Retry-After": "30"}},
	})
}

func TestNoRefusals(t *testing.T) {
	json := header{"Content-Type": "application/json"}
	presettest.Run(t, openai.Policies(openai.Options{}), presettest.Case{Request: chat, Sends: sent, Body: short, Header: json}, []presettest.Case{
		{Name: "no money", NoRefusal: true, Status: 429,
			Answers: limited("insufficient_quota", "insufficient_quota", "You exceeded your current quota, please check your plan and billing details.")},
		{Name: "no money, without a code", NoRefusal: true, Status: 429,
			Answers: `{"error":{"message":"You exceeded your current quota","type":"insufficient_quota","code":null}}`},
		{Name: "no such key", Status: 401,
			Header:  header{"Content-Type": "application/json", "x-ratelimit-remaining-requests": "0", "x-ratelimit-reset-requests": "1s"},
			Answers: limited("invalid_request_error", "invalid_api_key", "Incorrect API key provided.")},
		{Name: "not allowed", Status: 403, Answers: limited("requests", "rate_limit_exceeded", "Please try again in 20s.")},
		{Name: "an answer that quotes a refusal", Answers: limited("tokens", "rate_limit_exceeded", "Please try again in 20s.")},
		{Name: "overload", Status: 503, Answers: limited("server_error", "", "")},
	})
}

func TestWhatIsLeft(t *testing.T) {
	said := func(limit, remaining, reset string) header {
		return header{"x-ratelimit-limit-requests": limit, "x-ratelimit-remaining-requests": remaining, "x-ratelimit-reset-requests": reset}
	}
	both := said("60", "30", "30s")
	both["x-ratelimit-limit-tokens"], both["x-ratelimit-remaining-tokens"], both["x-ratelimit-reset-tokens"] = "150000", "30000", "48s"
	presettest.Run(t, openai.Policies(openai.Options{}), presettest.Case{Request: chat, Sends: sent, Body: short}, []presettest.Case{
		{Name: "a twentieth", Header: said("60", "3", "57s"), Left: "openai-requests 3 3s"},
		{Name: "nothing", Header: said("60", "0", "1m0s"), Left: "openai-requests 0 1s"},
		{Name: "most", Header: said("60", "59", "1s"), Left: "openai-requests 59 1s"},
		{Name: "of a day", Header: said("200", "199", "7m12s"), Left: "openai-requests 199 7m12s"},
		{Name: "milliseconds", Header: said("5000", "4999", "12ms"), Left: "openai-requests 4999 12ms"},
		{Name: "a limit that is not told", Header: said("", "3", "6m0s"), Left: "openai-requests 3 6m"},
		{Name: "a limit that cannot be so much", Header: said("2", "3", "1s"), Left: "openai-requests 3 1s"},
		{Name: "of both", Header: both, Left: "openai-requests 30 30s, openai-tokens 30000 12s"},
		{Name: "all", Header: said("60", "60", "0s")},
		{Name: "unreadable", Header: said("60", "many", "soon")},
	})
}

// TestP1_CallersThatStartTogether: no minute has more than a tenth above the limit, the first ones included, though the callers reserve no tokens.
func TestP1_CallersThatStartTogether(t *testing.T) {
	presettest.CallersThatStartTogether(t, chat, func(limit int) []throttle.Policy {
		return openai.Policies(openai.Options{Tokens: limit})
	})
}

// TestLearns: when 64 answers have told, an answer is expected to be as long as these.
func TestLearns(t *testing.T) {
	presettest.Learns(t, chat, "openai-tokens", openai.Policies(openai.Options{Requests: 10_000, Tokens: 5_000_000}))
}

func TestTokens(t *testing.T) {
	for _, c := range []struct {
		name, body string
		want       int
	}{
		{"by max_tokens", `{"model":"gpt-4o","max_tokens":300}`, 300},
		{"by its newer names", `{"max_completion_tokens":301,"max_output_tokens":302}`, 302},
		{"times n", `{"max_tokens":100,"n":3}`, 300},
		{"by length", `{"input":"` + strings.Repeat("word ", 200) + `"}`, 1753},
		{"by the larger of both", `{"max_tokens":7,"input":"` + strings.Repeat("word ", 200) + `"}`, 256},
		{"at most the limit", `{"max_tokens":1000000}`, 30_000},
		{"nonsense", `{"max_tokens":-5,"n":-1,"max_output_tokens":1e99}`, 1512},
		{"absurd", `{"max_tokens":9223372036854775807,"n":9223372036854775807}`, 30_000},
	} {
		require.Equal(t, c.want, presettest.Cost(t, openai.Policies(openai.Options{Tokens: 30_000}), "openai-tokens", ask(t, c.body)), c.name)
	}

	huge := ask(t, `{}`)
	huge.ContentLength = 1 << 34 // as many tokens as no int of 32 bits holds
	require.Equal(t, 30_000, presettest.Cost(t, openai.Policies(openai.Options{Tokens: 30_000}), "openai-tokens", huge))
}

// TestLongBodies: the model and the tokens are found wherever they stand in 32 MB, and
// no more than that is read, from a copy.
func TestLongBodies(t *testing.T) {
	picture, pictures := strings.Repeat("A", 20<<20), strings.Repeat("A", 40<<20)
	talk := strings.Repeat(`{"role":"user","content":[{"text":"a \"quoted\" \\\\"}]},`, 20_000)
	for name, c := range map[string]struct {
		body   string
		model  string
		tokens int
	}{
		"in front":            {`{"model":"m","max_tokens":9000000,"input":"` + picture + `"}`, "m", 9_000_000},
		"behind a picture":    {`{"input":"` + picture + `","model":"m","max_tokens":9000000}`, "m", 9_000_000},
		"behind the messages": {`{"messages":[` + talk + `{}], "model" : "m" ,"max_tokens":9000000}`, "m", 9_000_000},
		"behind 32 MB":        {`{"input":"` + pictures + `","model":"m","max_tokens":9000000}`, "", 10_487_271},
	} {
		t.Run(name, func(t *testing.T) {
			var read int
			r := ask(t, "")
			r.Body = io.NopCloser(unreadable{t})
			r.ContentLength = int64(len(c.body))
			r.GetBody = func() (io.ReadCloser, error) {
				read = 0
				return counted{strings.NewReader(c.body), &read}, nil
			}
			policies := openai.Policies(openai.Options{})
			require.Equal(t, c.tokens, presettest.Cost(t, policies, "openai-tokens", r))
			require.LessOrEqual(t, read, 32<<20)

			require.True(t, presettest.Shared(t, policies, "openai-tokens", r, ask(t, `{"model":"`+c.model+`"}`)))
		})
	}
}

// TestEscapesAtTheEndOfABuffer: wherever backslashes and quotes are cut apart, what
// stands behind them is found.
func TestEscapesAtTheEndOfABuffer(t *testing.T) {
	policies := openai.Policies(openai.Options{})
	for _, text := range []string{`\\`, `\"`, `\\\"`, `\\\\`} {
		for fill := 32<<10 - 20; fill < 32<<10; fill++ {
			body := `{"a":"` + strings.Repeat("x", fill) + text + `","model":"\"","n":2,"max_tokens":50000}`
			r := ask(t, body)
			require.Equal(t, 100_000, presettest.Cost(t, policies, "openai-tokens", r), "%s at %d", text, fill)
		}
	}
}

// TestTheOneBody: an SDK's GetBody rewinds the body and returns it. It arrives whole.
func TestTheOneBody(t *testing.T) {
	const body = `{"messages":[{"role":"user","content":"hello"}],"model":"gpt-4o","max_tokens":300}`
	one := bytes.NewReader([]byte(body))
	r := ask(t, "")
	r.GetBody = func() (io.ReadCloser, error) {
		_, err := one.Seek(0, io.SeekStart)
		return io.NopCloser(one), err
	}
	r.Body, r.ContentLength = io.NopCloser(one), int64(len(body))
	arrived := ""
	tr, err := throttle.New(throttle.Config{MaxWait: throttle.Forever, Store: memstore.New(), Policies: openai.Policies(openai.Options{}),
		Base: presettest.RoundTripper(func(r *http.Request) (*http.Response, error) {
			b, err := io.ReadAll(r.Body)
			arrived = string(b)
			const usage = `{"usage":{"total_tokens":21}}`
			return &http.Response{StatusCode: 200, Header: http.Header{"Content-Type": {"application/json"}},
				Body: io.NopCloser(strings.NewReader(usage)), ContentLength: int64(len(usage))}, err
		})})
	require.NoError(t, err)
	resp, err := tr.RoundTrip(r)
	require.NoError(t, err)
	require.NoError(t, resp.Body.Close())
	require.Equal(t, body, arrived)
}

// unreadable is a body that is the base's.
type unreadable struct{ *testing.T }

func (u unreadable) Read([]byte) (int, error) {
	u.Error("the body was read")
	return 0, io.EOF
}

type counted struct {
	io.Reader
	n *int
}

func (c counted) Read(p []byte) (int, error) {
	n, err := c.Reader.Read(p)
	*c.n += n
	return n, err
}

func (c counted) Close() error { return nil }

// TestWithoutACopy: a body that can be read but once costs what its length says, and one token at
// least, and the first guess of its answer.
func TestWithoutACopy(t *testing.T) {
	r := ask(t, `{"max_tokens":300}`)
	r.GetBody = nil
	policies := openai.Policies(openai.Options{})
	require.Equal(t, 1504, presettest.Cost(t, policies, "openai-tokens", r))
	r.ContentLength = -1
	require.Equal(t, 1501, presettest.Cost(t, policies, "openai-tokens", r))
}

func TestUploadsHaveNoTokens(t *testing.T) {
	r := presettest.Request(t, "POST https://api.openai.com/v1/audio/transcriptions", strings.Repeat("x", 4000))
	r.Header.Set("Content-Type", "multipart/form-data; boundary=b")
	require.Equal(t, "openai-requests 1", presettest.Costs(t, openai.Policies(openai.Options{}), r))
}

func TestUsage(t *testing.T) {
	json := header{"Content-Type": "application/json"}
	used := func(tokens string) string {
		return `{"id":"chatcmpl-1","object":"chat.completion","choices":[{"message":{"content":"usage"}}],` +
			`"usage":{"prompt_tokens":9,"completion_tokens":12,"total_tokens":` + tokens + `}}`
	}
	stream := header{"Content-Type": "text/event-stream"}
	long := `{"model":"gpt-4o","messages":"` + strings.Repeat("x", 370) + `"}` // 100 tokens
	presettest.Run(t, openai.Policies(openai.Options{Tokens: 30_000}), presettest.Case{Request: chat, Sends: sent, Body: `{"max_tokens":300}`, Header: json}, []presettest.Case{
		{Name: "more", Body: long, Answers: used("2100"), Costs: "openai-tokens 2100"},
		{Name: "less than estimated", Body: long, Answers: used("21"), Costs: "openai-tokens 21"},
		{Name: "less than reserved", Answers: used("21")},
		{Name: "in a stream", Body: long, Header: stream, Answers: "data: {\"choices\":[],\"usage\":null}\n\ndata: " + used("2100") + "\n\ndata: [DONE]\n\n", Costs: "openai-tokens 2100"},
		{Name: "in a stream, less than reserved", Body: `{"stream":true,"max_tokens":300}`, Header: stream, Answers: "data: " + used("21") + "\n\ndata: [DONE]\n\n"},
		{Name: "in a stream of the Responses API", Body: long, Header: stream, Answers: "event: response.completed\ndata: {\"response\":{\"usage\":{\"total_tokens\":2100}}}\n\n", Costs: "openai-tokens 2100"},
		{Name: "a stream does not say", Body: long, Header: stream, Answers: "data: {\"choices\":[]}\n\ndata: [DONE]\n\n"},
		{Name: "a long stream does not say", Body: long, Header: stream, Answers: strings.Repeat("data: {\"choices\":[]}\n\n", 1700), Costs: "openai-tokens 1700"},
		{Name: "behind 64 KB", Body: long, Header: json, Answers: `{"data":"` + strings.Repeat("x", 100_000) + `",` + used("2100")[1:], Costs: "openai-tokens 2100"},
		{Name: "a refusal costs what was estimated", Status: 400, Answers: `{"error":{"type":"invalid_request_error","code":null}}`},
	})
}

func TestOwnEstimate(t *testing.T) {
	policies := openai.Policies(openai.Options{Tokens: 100, Cost: func(*http.Request) int { return 101 }})
	require.Equal(t, 100, presettest.Cost(t, policies, "openai-tokens", presettest.Request(t, chat)))
}

// TestEstimateLearns: a request that reserves nothing for its answer is expected to be answered as the 64
// before it, for each model; one that reserves tokens costs those.
func TestEstimateLearns(t *testing.T) {
	policies := openai.Policies(openai.Options{Tokens: 30_000})
	long := func(model string) string {
		return `{"model":"` + model + `","messages":"` + strings.Repeat("x", 376) + `"}`
	} // 100 tokens
	cost := func(body string) int {
		r := ask(t, body)
		r.Header.Set("Authorization", sent["Authorization"])
		return presettest.Cost(t, policies, "openai-tokens", r)
	}
	for range 64 {
		require.Equal(t, 1600, cost(long("a")))
		presettest.Run(t, policies, presettest.Case{Request: chat, Sends: sent, Header: header{"Content-Type": "text/event-stream"}}, []presettest.Case{
			{Body: long("a"), Answers: `data: {"usage":{"total_tokens":750}}` + "\n\n", Costs: "openai-tokens 750"},
			{Body: `{"model":"a","max_tokens":300}`, Answers: `data: {"usage":{"total_tokens":9}}` + "\n\n"},
		})
	}
	require.Equal(t, 750, cost(long("a")))
	require.Equal(t, 1600, cost(long("b")))
	require.Equal(t, 300, cost(`{"model":"a","max_tokens":300}`))
	require.Equal(t, "openai-requests 1", presettest.Costs(t, policies, presettest.Request(t, "https://api.openai.com/v1/models")))
}

// TestEstimateLearnsOfUntoldStreams: where no stream tells its usage, their events count.
func TestEstimateLearnsOfUntoldStreams(t *testing.T) {
	policies := openai.Policies(openai.Options{Tokens: 30_000})
	const body = `{"model":"a","stream":true}`
	cost := func() int {
		r := ask(t, body)
		r.Header.Set("Authorization", sent["Authorization"])
		return presettest.Cost(t, policies, "openai-tokens", r)
	}
	require.Equal(t, 1506, cost())
	for range 64 {
		presettest.Run(t, policies, presettest.Case{Request: chat, Sends: sent, Header: header{"Content-Type": "text/event-stream"}}, []presettest.Case{
			{Body: body, Answers: strings.Repeat("data: {\"choices\":[]}\n\n", 200)},
		})
	}
	require.Equal(t, 206, cost())
}

// TestEmbeddingsWriteNothing: they cost what is sent.
func TestEmbeddingsWriteNothing(t *testing.T) {
	r := presettest.Request(t, "POST https://api.openai.com/v1/embeddings", `{"model":"e","input":"hello"}`)
	r.Header.Set("Content-Type", "application/json")
	require.Equal(t, 7, presettest.Cost(t, openai.Policies(openai.Options{}), "openai-tokens", r))
}

func TestStreamsCutAtEachByte(t *testing.T) {
	r := ask(t, `{"model":"a","messages":"`+strings.Repeat("x", 4000)+`"}`)
	for _, stream := range []string{
		"data: {\"choices\":[{\"delta\":{\"content\":\"{\\\"usage\\\":{\\\"total_tokens\\\":7}}\"}}],\"usage\":null}\n\ndata: {\"choices\":[],\"usage\":{\"prompt_tokens\":9,\"total_tokens\":2100}}\n\ndata: [DONE]\n\n",
		"event: response.created\ndata: {\"response\":{\"usage\":null}}\n\nevent: response.completed\ndata: {\"response\":{\"output\":[],\"usage\":{\"input_tokens\":9,\"total_tokens\":2100}}}\n\n",
	} {
		presettest.CutStreams(t, openai.Policies(openai.Options{}), "openai-tokens", r, stream, 2100)
	}
}
