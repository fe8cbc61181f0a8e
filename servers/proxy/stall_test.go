package proxy_test

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fleetthrottle/throttle"
	"github.com/fleetthrottle/throttle/servers/proxy"
)

// endless reads zeros without end.
type endless struct{}

func (endless) Read(p []byte) (int, error) { clear(p); return len(p), nil }

// TestStalledCallerHoldsNoSlot: a caller that stops in the middle of its body, or does not take its answer, loses its slot to the
// one that waits for the slot.
func TestStalledCallerHoldsNoSlot(t *testing.T) {
	slot := throttle.Policy{Name: "slot", Match: "api.example.com/", Limit: throttle.Concurrency(1)}
	upload := strings.Repeat("a", ahead+1)
	for name, request := range map[string]string{
		"upload":         fmt.Sprintf("POST /api.example.com/x HTTP/1.1\nHost: localhost\nContent-Length: %d\n\n%s", 3*ahead, upload),
		"upload, chunks": fmt.Sprintf("POST /api.example.com/x HTTP/1.1\nHost: localhost\nTransfer-Encoding: chunked\n\n%x\n%s\n", len(upload), upload),
		"expect":         "POST /api.example.com/x HTTP/1.1\nHost: localhost\nExpect: 100-continue\nContent-Length: 100\n\n",
		"answer":         "GET /api.example.com/large HTTP/1.1\nHost: localhost\n\n",
		"tunnel":         "CONNECT api.example.com:80 HTTP/1.1\nHost: x\n\nGET /large HTTP/1.1\nHost: api.example.com\n\n",
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				more := make(chan bool)
				s := newVirtualScene(t, func(w http.ResponseWriter, r *http.Request) {
					if _, err := io.Copy(io.Discard, r.Body); err != nil {
						panic(http.ErrAbortHandler) // half a body is no request
					}
					if r.URL.Path == "/large" {
						_, _ = io.WriteString(w, "x")
						_ = http.NewResponseController(w).Flush()
						<-more
						_, _ = io.Copy(w, io.LimitReader(endless{}, 64<<20))
					}
				}, func(c *proxy.Config) { c.MaxWait, c.CallerIdle = time.Minute, time.Second }, slot)
				w := s.dial()
				w.send(request)
				if name == "tunnel" {
					_, err := http.ReadResponse(w.from, &http.Request{Method: http.MethodConnect})
					require.NoError(t, err)
				}
				s.kind(throttle.EventStarted)

				// Who sends a body takes its answers all the while: net/http may write 100 Continue twice.
				statuses := make(chan int, 3)
				takes := strings.HasPrefix(name, "upload") || name == "expect"
				if takes {
					go func() {
						defer close(statuses)
						for resp, err := http.ReadResponse(w.from, nil); err == nil; resp, err = http.ReadResponse(w.from, nil) {
							statuses <- resp.StatusCode
						}
					}()
				}

				// Once the answer has begun, its rest is written by one goroutine, which a mutex does not keep from sleeping.
				if strings.Contains(request, "/large") {
					resp, err := http.ReadResponse(w.from, nil)
					require.NoError(t, err)
					_, err = io.ReadFull(resp.Body, make([]byte, 1))
					require.NoError(t, err)
					synctest.Wait()
					close(more)
				}

				resp, _ := s.get("/api.example.com/x")
				require.Equal(t, http.StatusOK, resp.StatusCode, "the slot has come back")

				if takes {
					last := 0
					for status := range statuses {
						last = status
					}
					require.Equal(t, http.StatusRequestTimeout, last)
				}
			})
		})
	}
}

// TestSilentUpstream: the silence of an API is not that of its caller: a stream goes on after a pause of any length.
func TestSilentUpstream(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newVirtualScene(t, func(w http.ResponseWriter, _ *http.Request) {
			for i := range 3 {
				_, _ = fmt.Fprintf(w, "data: %d\n\n", i)
				_ = http.NewResponseController(w).Flush()
				time.Sleep(time.Hour)
			}
		}, func(c *proxy.Config) { c.CallerIdle = time.Second }, rows...)

		resp, err := s.do(t.Context(), "GET", "/api.example.com/v1/", nil)
		require.NoError(t, err)
		defer resp.Body.Close()
		for i := range 3 {
			event := make([]byte, len("data: 0\n\n"))
			_, err := io.ReadFull(resp.Body, event)
			require.NoError(t, err)
			require.Equal(t, fmt.Sprintf("data: %d\n\n", i), string(event))
		}
		_, err = resp.Body.Read(make([]byte, 1))
		require.ErrorIs(t, err, io.EOF)
	})
}
