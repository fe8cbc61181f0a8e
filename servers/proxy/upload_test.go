package proxy_test

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fleetthrottle/throttle/servers/proxy"
)

// ahead is how much of a body the proxy reads before a request waits.
const ahead = 1 << 20

// TestAnswerBeforeBody: an answer that comes before the end of a body reaches its caller, who may be
// slow or never send the rest; and the connection ends then.
func TestAnswerBeforeBody(t *testing.T) {
	s := newNamedScene(t, false, func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusUnauthorized)
		_, _ = io.WriteString(w, "who?")
	}, nil, at("api.example.com/v1/", 1000), at("api.example.com/none/", 1))
	s.get("/api.example.com/none/")
	begin := strings.Repeat("a", ahead+1)
	for name, request := range map[string]string{
		"length":         fmt.Sprintf("v1/ HTTP/1.1\nHost: localhost\nContent-Length: %d\n\n%s", ahead+100, begin),
		"chunks":         fmt.Sprintf("v1/ HTTP/1.1\nHost: localhost\nTransfer-Encoding: chunked\n\n%x\n%s\n5\na", len(begin), begin),
		"expect":         "v1/ HTTP/1.1\nHost: localhost\nExpect: 100-continue\nContent-Length: 100\n\n",
		"expect, no fit": "none/ HTTP/1.1\nHost: localhost\nExpect: 100-continue\nContent-Length: 100\n\n",
		"no fit":         fmt.Sprintf("none/ HTTP/1.1\nHost: localhost\nContent-Length: %d\n\n%s", ahead+100, begin),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel() // each ends after a second
			w := s.dial()
			require.NoError(t, w.SetDeadline(time.Now().Add(20*time.Second))) // else a body that is awaited would hold the test
			w.send("POST /api.example.com/" + request)
			want := http.StatusUnauthorized
			if strings.HasSuffix(name, "no fit") {
				want = http.StatusTooManyRequests
			}
			resp, err := http.ReadResponse(w.from, nil)
			require.NoError(t, err)
			if resp.StatusCode == http.StatusContinue {
				resp, err = http.ReadResponse(w.from, nil)
				require.NoError(t, err)
			}
			require.Equal(t, want, resp.StatusCode)
			_, err = io.ReadAll(resp.Body)
			require.NoError(t, err)
			_, err = w.from.ReadByte()
			require.ErrorIs(t, err, io.EOF)
		})
	}
}

// TestBodyBehindAnswer: a body that goes on behind the begin of its answer reaches the upstream, all of it.
func TestBodyBehindAnswer(t *testing.T) {
	const rest = 1000
	s := newNamedScene(t, false, func(w http.ResponseWriter, r *http.Request) {
		control := http.NewResponseController(w)
		require.NoError(t, control.EnableFullDuplex())
		require.NoError(t, control.Flush())
		body, err := io.ReadAll(r.Body)
		require.NoError(t, err)
		fmt.Fprint(w, len(body))
	}, nil, rows...)
	w := s.dial()
	require.NoError(t, w.SetDeadline(time.Now().Add(20*time.Second)))
	w.send("POST /api.example.com/v1/ HTTP/1.1\nHost: localhost\nTransfer-Encoding: chunked\n\n")
	w.send(fmt.Sprintf("%x\n%s\n", ahead+1, strings.Repeat("a", ahead+1)))
	resp, err := http.ReadResponse(w.from, nil)
	require.NoError(t, err, "the answer has begun")
	for range rest {
		w.send("1\na\n")
	}
	w.send("0\n\n")
	text, err := io.ReadAll(resp.Body)
	require.NoError(t, err)
	require.Equal(t, fmt.Sprint(ahead+1+rest), string(text))
}

// TestSlowBodyHoldsNoPlace: a caller whose body does not come takes no place among those that wait.
func TestSlowBodyHoldsNoPlace(t *testing.T) {
	s := newNamedScene(t, false, func(http.ResponseWriter, *http.Request) {}, func(c *proxy.Config) { c.Held = 1 }, rows...)
	s.dial().send("POST /api.example.com/v1/ HTTP/1.1\nHost: localhost\nContent-Length: 100\n\nabc")
	require.Eventually(t, func() bool { return s.handler.Stats().BodyBytes > 0 }, time.Minute, time.Millisecond)
	require.Zero(t, s.handler.Stats().Held)
	resp, _ := s.get("/api.example.com/v1/")
	require.Equal(t, http.StatusOK, resp.StatusCode)
}

// TestRefusedUploads: a caller that sends its whole body before it reads, on a connection that it wants closed or not, gets
// its answer, and no reset before or behind it.
func TestRefusedUploads(t *testing.T) {
	s := newNamedScene(t, false, func(w http.ResponseWriter, r *http.Request) { w.WriteHeader(http.StatusTeapot) },
		func(c *proxy.Config) { c.MaxWait = time.Millisecond }, at("api.example.com/v1/", 1000), at("api.example.com/once/", 1))
	s.get("/api.example.com/once/")

	for path, status := range map[string]int{
		"/none.example.com/":       http.StatusForbidden,
		"/api.example.com/v1/%2e.": http.StatusBadRequest,
		"/api.example.com/once/":   http.StatusTooManyRequests,
		"/api.example.com/v1/":     http.StatusTeapot,
	} {
		body := strings.Repeat("a", 3<<20)
		for _, rest := range []string{"Content-Length: 3145728\n\n" + body, "Transfer-Encoding: chunked\n\n300000\n" + body + "\n0\n\n"} {
			for _, wish := range []string{"Connection: close\n", ""} {
				w := s.dial()
				w.send("POST " + path + " HTTP/1.1\nHost: localhost\n" + wish + rest)

				resp, _ := w.answer("POST")
				require.Equal(t, status, resp.StatusCode, path)
				if resp.Close { // what the API has read to its end leaves the connection open
					_, err := w.from.ReadByte()
					require.Equal(t, io.EOF, err, path)
				}
			}
		}
	}
}
