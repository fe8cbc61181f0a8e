package feedback_test

import (
	"compress/gzip"
	"compress/zlib"
	"fmt"
	"io"
	"math/big"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fleetthrottle/throttle"
	"github.com/fleetthrottle/throttle/feedback"
	"github.com/fleetthrottle/throttle/internal/lab/soak"
	"github.com/fleetthrottle/throttle/memstore"
	"github.com/fleetthrottle/throttle/store"
)

// toldBy returns the limit that an answer tells, as text.
func toldBy(a throttle.Answer) string {
	q, _ := a.Left()
	return q.Told.String()
}

// TestTold: the limit is read in each form, and nothing else is taken for a limit.
func TestTold(t *testing.T) {
	const none = "no limit"
	for _, c := range []struct {
		want   string
		fields []string // names and values, by turns
	}{
		{"100/m", []string{"RateLimit-Policy", `"default";q=100;w=60`}},
		{"100/m", []string{"RateLimit-Policy", `"default";q=100;w=60`, "RateLimit", `"default";r=40;t=12`}},
		{"100/m", []string{"RateLimit-Policy", `100;w=60`}},
		{"100/1m12s", []string{"RateLimit-Policy", `100;w=60, 5000;w=3600`}},
		{"100/1m12s", []string{"RateLimit-Policy", `"a";q=100;w=60`, "RateLimit-Policy", `"b";q=5000;w=3600`}},
		{"10/36s", []string{"RateLimit-Policy", `"burst";q=10;w=1, "hour";q=1000;w=3600`}},
		{"10/s", []string{"RateLimit-Policy", `"burst";q=10;w=1, "day";q=1000;w=86400`}},
		{"100/m", []string{"RateLimit-Policy", `"a";q=100;w=60;qu="requests"`}},
		{"100/m", []string{"RateLimit-Policy", `"bytes";q=9;w=60;qu="content-bytes", "a";q=100;w=60`}},
		{none, []string{"RateLimit-Policy", `"bytes";q=9;w=60;qu="content-bytes"`}},
		{none, []string{"RateLimit-Policy", `"a";q=0;w=60`}},
		{none, []string{"RateLimit-Policy", `"a";q=-5;w=60`}},
		{none, []string{"RateLimit-Policy", `"a";q=100;w=0`}},
		{none, []string{"RateLimit-Policy", `"a";q=100;w=-60`}},
		{none, []string{"RateLimit-Policy", `"a";q=100`}},
		{none, []string{"RateLimit-Policy", `"a";q=1.5;w=60`}},
		{none, []string{"RateLimit-Policy", `"a";q=100;w=86400`}},
		{none, []string{"RateLimit-Policy", `"a";q=999999999999999;w=60`}},
		{none, []string{"RateLimit-Policy", `"a";q=100;w=60;`}},
		{"1000000000/m", []string{"RateLimit-Policy", `"a";q=1000000000;w=60`}},
		{"100/m", []string{"RateLimit-Limit", `100, 100;w=60`}},
		{"100/m", []string{"RateLimit-Limit", `100`, "RateLimit-Reset", "31"}},
		{"30/m", []string{"X-RateLimit-Limit", "30", "X-RateLimit-Reset", "58"}},
		{"30/10s", []string{"X-RateLimit-Limit", "30", "X-RateLimit-Reset", "8"}},
		{"5000/h", []string{"x-ratelimit-limit", "5000", "x-ratelimit-reset", "3598"}},
		{"900/15m", []string{"x-rate-limit-limit", "900", "x-rate-limit-reset", "850"}},
		{none, []string{"X-RateLimit-Limit", "30"}},
		{none, []string{"X-RateLimit-Limit", "30", "X-RateLimit-Reset", "86000"}},
		{none, []string{"X-RateLimit-Limit", "30", "X-RateLimit-Reset", "0"}},
		{none, []string{"X-RateLimit-Limit", "-30", "X-RateLimit-Reset", "58"}},
		{none, []string{"X-RateLimit-Limit", "0", "X-RateLimit-Reset", "58"}},
		{none, []string{"X-RateLimit-Limit", "lots", "X-RateLimit-Reset", "58"}},
		{none, []string{"X-RateLimit-Remaining", "30", "X-RateLimit-Reset", "58"}},
		{"30/m", []string{"X-RateLimit-Limit", "30", "X-RateLimit-Limit", "30", "X-RateLimit-Reset", "58"}},
		{"20/m", []string{"X-RateLimit-Limit", "30", "X-RateLimit-Limit", "20", "X-RateLimit-Reset", "58"}},
		{"30/m", []string{"X-RateLimit-Limit", "30;w=60", "X-RateLimit-Reset", "3"}},
		{"20/24s", []string{"X-RateLimit-Limit", "20:1,100:120"}},
		{"60/m", []string{"X-RateLimit-Limit-Minute", "60"}},
		{"5/s", []string{"X-RateLimit-Limit-Second", "5", "X-RateLimit-Limit-Minute", "300"}},
		{"100/m", []string{"RateLimit-Policy", `"a";q=100;w=60`, "X-RateLimit-Limit", "7", "X-RateLimit-Reset", "58"}},
		{none, []string{"RateLimit-Policy", `"a";q=100;w=60`, "Age", "30"}},
	} {
		header := []string{"Content-Type", "application/json"}
		resp := answer(200, "{}", header...)
		for i := 0; i < len(c.fields); i += 2 {
			resp.Header.Add(c.fields[i], c.fields[i+1])
		}
		require.Equal(t, c.want, toldBy(feedback.Told{}.Answer(resp)), "%v", c.fields)
	}
	require.Equal(t, none, toldBy(feedback.Told{}.Answer(nil)))
	require.Equal(t, none, toldBy(feedback.Told{}.Answer(answer(401, "", "RateLimit-Policy", `"a";q=100;w=60`))))
}

// TestTold_Sentences: the text of a refusal tells a limit where it says that the number is a limit.
func TestTold_Sentences(t *testing.T) {
	for text, want := range map[string]string{
		"Rate limit of 60 requests per minute exceeded.":             "60/m",
		`{"error":"the limit is 5 requests per second, slow down"}`:  "5/s",
		"max. 10 calls / 30 seconds":                                 "no limit",
		"maximum 10 calls / 30 seconds":                              "10/30s",
		"Limit: 3 / min. Please try again in 20s.":                   "3/m",
		"You made 120 requests per minute":                           "no limit",
		"limit reached, try again in 30 seconds":                     "no limit",
		"limit of 90000 tokens per minute":                           "no limit",
		"quota: 100 requests per hour; limit 10 requests per second": "10/6m",
		"limit of 0 requests per minute":                             "no limit",
	} {
		resp := answer(429, text, "Content-Type", "text/plain")
		if strings.HasPrefix(text, "{") {
			resp.Header.Set("Content-Type", "application/json")
		}
		require.Equal(t, want, toldBy(feedback.Told{}.Answer(resp)), text)

		resp = answer(200, text, "Content-Type", "text/plain")
		require.Equal(t, "no limit", toldBy(feedback.Told{}.Answer(resp)), text)
	}
}

// TestTold_All: what a RateLimit and a Headers read stays as it is beside the limit, and the
// parts of an answer are combined.
func TestTold_All(t *testing.T) {
	resp := answer(429, "", "RateLimit-Policy", `"a";q=100;w=60`, "RateLimit", `"a";r=0;t=12`)
	a := feedback.Told{}.Answer(resp)
	require.Equal(t, "refused, closes for 12s, 0 left for 12s, the limit is 100/m", a.String())

	only := feedback.Told{}.Answer(answer(200, "", "RateLimit-Policy", `"a";q=100;w=60`))
	require.Equal(t, "the limit is 100/m", only.String())

	both := feedback.All(feedback.Told{}.Answer, func(*http.Response) throttle.Answer {
		return throttle.Answer{}.WithLeft(throttle.Quota{Left: 3, Reset: time.Second, Told: throttle.PerMinute(50)})
	})(resp)
	q, _ := both.Left()
	require.Equal(t, throttle.Quota{Left: 0, Reset: 12 * time.Second, Told: throttle.PerMinute(50)}, q)
}

// TestTold_OneWindowKeepsAll: of any windows the result is one that keeps each of them, and as many
// starts at once as the smallest number allows. The oracle tries the definition: however starts fall
// into one window after another, a told window touches as many of those as begin in it.
func TestTold_OneWindowKeepsAll(t *testing.T) {
	soak.WithoutRace(t)
	rng := rand.New(rand.NewPCG(1, 1))
	for range soak.Seeds(500_000, 50_000) {
		var fields []string
		type window struct{ n, seconds int64 }
		var told []window
		for range 1 + rng.IntN(3) {
			w := window{rng.Int64N(1<<rng.IntN(32)) - 1, rng.Int64N(1<<rng.IntN(14)) - 1}
			fields = append(fields, fmt.Sprintf("%d;w=%d", w.n, w.seconds))
			if w.n >= 1 && w.n <= 1<<30 && w.seconds >= 1 && w.seconds <= 3600 {
				told = append(told, w)
			}
		}

		resp := &http.Response{StatusCode: 200, Header: http.Header{"Ratelimit-Policy": {strings.Join(fields, ", ")}}}
		q, _ := feedback.Told{}.Answer(resp).Left()
		if len(told) == 0 {
			require.Zero(t, q.Told, "%v", fields)
			continue
		}

		n, per := int64(q.Told.N()), int64(q.Told.Per())
		least := told[0].n
		for _, w := range told {
			least = min(least, w.n)
			length := w.seconds * int64(time.Second)
			windows := new(big.Int).SetInt64((length + per - 1) / per)
			require.LessOrEqual(t, windows.Mul(windows, big.NewInt(n)).Cmp(big.NewInt(w.n)), 0, "%v in %v", q.Told, fields)
		}
		require.Equal(t, least, n, "%v", fields)
		require.NoError(t, q.Told.Validate(0))
	}
}

// FuzzTold: whatever fields and a body say, the limit is none or one that a store keeps, and a
// repeated field changes nothing.
func FuzzTold(f *testing.F) {
	f.Add(429, `"a";q=100;w=60`, "100, 100;w=60", "30", "58", "limit of 60 requests per minute")
	f.Add(200, `100;w=60, 5000;w=3600`, "", "20:1,100:120", "", "")
	f.Add(200, `"a";q=-1;w=99999999999`, "1e9", "-1", "1e99", "limit 0/s")
	f.Fuzz(func(t *testing.T, status int, policy, limit, plain, reset, body string) {
		if status < 200 || status > 599 {
			return
		}
		read := func(times int) throttle.Limit {
			resp := answer(status, body, "Content-Type", "text/plain")
			for range times {
				resp.Header.Add("RateLimit-Policy", policy)
			}
			resp.Header.Add("RateLimit-Limit", limit)
			resp.Header.Add("X-RateLimit-Limit", plain)
			resp.Header.Add("X-RateLimit-Reset", reset)
			q, _ := feedback.Told{}.Answer(resp).Left()
			return q.Told
		}

		told := read(1)
		if told == (throttle.Limit{}) {
			return
		}
		require.NoError(t, told.Validate(0))
		require.True(t, 1 <= told.N() && told.N() <= 1<<30 && store.MinTold <= told.Per() && told.Per() <= store.MaxTold, "%v", told)
		require.Equal(t, store.KindSlidingWindow, told.Kind())
		if policy != "" {
			require.Equal(t, told, read(2))
		}
	})
}

// TestThroughTheTransport: what an upstream says closes the budget, and what
// only looks like it does not, over a real connection.
func TestThroughTheTransport(t *testing.T) {
	release := make(chan struct{})
	mux := http.NewServeMux()
	serve := func(path, media string, write func(w http.ResponseWriter)) {
		mux.HandleFunc(path, func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", media)
			write(w)
		})
	}
	const refusal = `{"errcode":90018,"errmsg":"…"}`
	serve("/refused", "application/json;charset=UTF-8", func(w http.ResponseWriter) { fmt.Fprint(w, refusal) })
	serve("/money", "application/json", func(w http.ResponseWriter) { fmt.Fprint(w, `{"code":"money"}`) })
	serve("/compressed", "application/json", func(w http.ResponseWriter) {
		w.Header().Set("Content-Encoding", "gzip")
		z := gzip.NewWriter(w)
		fmt.Fprint(z, refusal)
		_ = z.Close() // to memory or to the client, which reads it
	})
	serve("/deflated", "application/json", func(w http.ResponseWriter) {
		w.Header().Set("Content-Encoding", "deflate")
		z := zlib.NewWriter(w)
		fmt.Fprint(z, refusal)
		_ = z.Close()
	})
	serve("/text", "text/plain; charset=utf-8", func(w http.ResponseWriter) {
		fmt.Fprint(w, refusal)
		w.(http.Flusher).Flush() // in chunks, without a length
	})
	serve("/packed", "text/plain", func(w http.ResponseWriter) {
		w.Header().Set("Content-Encoding", "gzip")
		z := gzip.NewWriter(w)
		fmt.Fprint(z, refusal)
		_ = z.Close()
		w.(http.Flusher).Flush()
	})
	serve("/untyped", "", func(w http.ResponseWriter) {
		w.Header()["Content-Type"] = nil
		fmt.Fprint(w, "\ufeff\n"+refusal)
		w.(http.Flusher).Flush()
	})
	trickle := func(first, rest string) func(http.ResponseWriter) {
		return func(w http.ResponseWriter) {
			fmt.Fprint(w, first)
			w.(http.Flusher).Flush()
			<-release
			fmt.Fprint(w, rest)
		}
	}
	serve("/silent", "text/plain", trickle("", refusal))
	serve("/trickle", "text/plain", trickle("log: ", refusal))
	serve("/lines", "text/plain", trickle(`{"n":1}`+"\n", refusal))
	serve("/ndjson", "application/x-ndjson", trickle(refusal, "\n"))
	serve("/grpc", "application/grpc", trickle(refusal, ""))
	serve("/events", "text/event-stream", func(w http.ResponseWriter) {
		fmt.Fprint(w, "data: "+refusal+"\n\n")
		w.(http.Flusher).Flush()
		<-release
	})
	serve("/pieces", "application/json", func(w http.ResponseWriter) {
		fmt.Fprint(w, `{"sub_code":"90018",`)
		w.(http.Flusher).Flush()
		<-release
		fmt.Fprint(w, `"errcode":88}`)
	})
	server := httptest.NewServer(mux)
	defer server.Close()
	defer close(release) // or a case that fails would keep the server

	for _, c := range []struct {
		name, path, want string
		closed, waits    bool
		accepts          string // set by the caller, which then gets the compressed body
	}{
		{"a code", "/refused", refusal, true, false, ""},
		{"a code that is decoded", "/compressed", refusal, true, false, ""},
		{"a code that stays packed", "/compressed", packed(refusal, gzip.NewWriter), true, false, "gzip"},
		{"a code that is deflated", "/deflated", packed(refusal, zlib.NewWriter), true, false, "deflate"},
		{"no refusal after all", "/money", `{"code":"money"}`, false, false, ""},
		{"a code in a text without a length", "/text", refusal, true, false, ""},
		{"a code in a text that is decoded", "/packed", refusal, true, false, ""},
		{"a code in a text that stays packed", "/packed", packed(refusal, gzip.NewWriter), true, false, "gzip"},
		{"a code without a type", "/untyped", "\ufeff\n" + refusal, true, false, ""},
		{"a text that has not begun is not held up", "/silent", refusal, false, true, ""},
		{"a text that trickles is not held up", "/trickle", "log: " + refusal, false, true, ""},
		{"lines are not held up", "/lines", `{"n":1}` + "\n" + refusal, false, true, ""},
		{"a stream of JSON is not held up", "/ndjson", refusal + "\n", false, true, ""},
		{"calls of gRPC are not held up", "/grpc", refusal, false, true, ""},
		{"events are not held up", "/events", "data: " + refusal + "\n\n", false, true, ""},
		{"a code is known before the end", "/pieces", `{"sub_code":"90018","errcode":88}`, true, true, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			tr, err := throttle.New(throttle.Config{
				Store: memstore.New(), MaxWait: -1,
				Policies: []throttle.Policy{{
					Name: "all", Match: "/", Limit: throttle.PerSecond(1000),
					Answer: feedback.Codes{
						Fields:     []string{"sub_code", "errcode", "code"},
						Lasts:      lasts{"90018": time.Hour},
						NotRefused: []string{"money"},
					}.Answer,
				}},
			})
			require.NoError(t, err)
			client := &http.Client{Transport: tr}
			defer client.CloseIdleConnections()

			req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, server.URL+c.path, nil)
			require.NoError(t, err)
			if c.accepts != "" {
				req.Header.Set("Accept-Encoding", c.accepts)
			}
			resp, err := client.Do(req)
			require.NoError(t, err)
			next, err := client.Get(server.URL + "/money")
			if c.closed {
				require.ErrorIs(t, err, throttle.ErrLimited)
			} else {
				require.NoError(t, err)
				require.NoError(t, next.Body.Close())
			}
			if c.waits { // and has not been answered to the end
				release <- struct{}{}
			}
			requireBody(t, c.want, resp)
			require.NoError(t, resp.Body.Close())
		})
	}
}

// packed returns a text as it is sent.
func packed[W io.WriteCloser](text string, open func(io.Writer) W) string {
	var b strings.Builder
	w := open(&b)
	fmt.Fprint(w, text)
	_ = w.Close() // to memory
	return b.String()
}
