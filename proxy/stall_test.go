package proxy_test

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fleetthrottle/throttle"
	"github.com/fleetthrottle/throttle/proxy"
)

// slotScene is a scene with one slot in flight, before an API that reads the body, and answers with 64 MiB or, at /quiet, with
// an event and nothing more until the test ends.
func slotScene(t *testing.T, idle time.Duration) *scene {
	quiet := make(chan bool)
	s := newNamedScene(t, false, func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		switch r.URL.Path {
		case "/large":
			_, _ = io.Copy(w, io.LimitReader(endless{}, 64<<20))
		case "/quiet":
			_, _ = io.WriteString(w, "data: 1\n\n")
			_ = http.NewResponseController(w).Flush()
			<-quiet
			_, _ = io.WriteString(w, "data: 2\n\n")
		}
	}, func(c *proxy.Config) { c.MaxWait, c.CallerIdle = time.Minute, idle }, throttle.Policy{Name: "slot", Match: "api.example.com/", Limit: throttle.Concurrency(1)})
	t.Cleanup(func() { close(quiet) })
	return s
}

// endless reads zeros without end.
type endless struct{}

func (endless) Read(p []byte) (int, error) { clear(p); return len(p), nil }

// TestStalledCallerHoldsNoSlot: a caller that stops in the middle of its body, or does not take its answer, loses its slot to the
// one that waits for the slot.
func TestStalledCallerHoldsNoSlot(t *testing.T) {
	upload := strings.Repeat("a", ahead+1)
	for name, request := range map[string]string{
		"upload":         fmt.Sprintf("POST /api.example.com/x HTTP/1.1\nHost: localhost\nContent-Length: %d\n\n%s", 3*ahead, upload),
		"upload, chunks": fmt.Sprintf("POST /api.example.com/x HTTP/1.1\nHost: localhost\nTransfer-Encoding: chunked\n\n%x\n%s\n", len(upload), upload),
		"expect":         "POST /api.example.com/x HTTP/1.1\nHost: localhost\nExpect: 100-continue\nContent-Length: 100\n\n",
		"answer":         "GET /api.example.com/large HTTP/1.1\nHost: localhost\n\n",
		"tunnel":         "CONNECT api.example.com:80 HTTP/1.1\nHost: x\n\nGET /large HTTP/1.1\nHost: api.example.com\n\n",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := slotScene(t, 50*time.Millisecond)
			w := s.dial()
			require.NoError(t, w.Conn.(*net.TCPConn).SetReadBuffer(4096))
			w.send(request)
			s.kind(throttle.Started)

			resp, _ := s.get("/api.example.com/x")
			require.Equal(t, http.StatusOK, resp.StatusCode, "the slot has come back")

			if strings.HasPrefix(name, "upload") || name == "expect" {
				resp, err := http.ReadResponse(w.from, nil)
				require.NoError(t, err)
				if resp.StatusCode == http.StatusContinue {
					resp, err = http.ReadResponse(w.from, nil)
					require.NoError(t, err)
				}
				require.Equal(t, http.StatusRequestTimeout, resp.StatusCode)
			}
		})
	}
}

// TestSilentUpstream: the silence of an API is not that of its caller: a stream goes on after a pause of any length.
func TestSilentUpstream(t *testing.T) {
	const idle = 10 * time.Millisecond
	again := make(chan bool)
	s := newNamedScene(t, false, func(w http.ResponseWriter, _ *http.Request) {
		for i := range 3 {
			_, _ = fmt.Fprintf(w, "data: %d\n\n", i)
			_ = http.NewResponseController(w).Flush()
			<-again
		}
	}, func(c *proxy.Config) { c.CallerIdle = idle }, rows...)

	resp, err := s.do(t.Context(), "GET", "/api.example.com/v1/", nil)
	require.NoError(t, err)
	defer resp.Body.Close()
	for i := range 3 {
		event := make([]byte, len("data: 0\n\n"))
		_, err := io.ReadFull(resp.Body, event)
		require.NoError(t, err)
		require.Equal(t, fmt.Sprintf("data: %d\n\n", i), string(event))
		<-time.After(5 * idle)
		again <- true
	}
	_, err = resp.Body.Read(make([]byte, 1))
	require.ErrorIs(t, err, io.EOF)
}
