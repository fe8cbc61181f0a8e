package feedback_test

import (
	"compress/gzip"
	"compress/zlib"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fleetthrottle/throttle"
	"github.com/fleetthrottle/throttle/feedback"
	"github.com/fleetthrottle/throttle/memstore"
)

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
