package retry_test

import (
	"io"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fleetthrottle/throttle"
	"github.com/fleetthrottle/throttle/retry"
)

// stalling answers with the beginning of a body whose end comes after a day.
func stalling(status int, begin string) base {
	return func(r *http.Request) (*http.Response, error) {
		body, upstream := io.Pipe()
		go func() {
			if _, err := io.WriteString(upstream, begin); err == nil {
				time.Sleep(24 * time.Hour)
			}
			upstream.Close()
		}()
		return &http.Response{StatusCode: status, Header: http.Header{}, Request: r, Body: body, ContentLength: -1}, nil
	}
}

// TestPitfall_AStalledAnswer: the default client reads an answer that it makes
// nothing of for as long as the upstream likes.
func TestPitfall_AStalledAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		up := newUpstream(stalling(429, "later"), answer(200, ""))
		c := usual(newTransport(t, up))
		c.RetryWaitMin, c.RetryWaitMax = 0, 0
		require.Equal(t, 200, status(t, c, get(t)))
		require.Equal(t, []time.Duration{0, 24 * time.Hour}, up.seen())
	})
	for _, begin := range []string{"", "later"} {
		synctest.Test(t, func(t *testing.T) {
			up := newUpstream(stalling(503, begin), stalling(503, begin), answer(200, ""))
			require.Equal(t, 200, status(t, prompt(newTransport(t, up)), get(t)))
			require.Equal(t, []time.Duration{0, retry.DrainTime, 2 * retry.DrainTime}, up.seen())
			time.Sleep(48 * time.Hour) // until the upstream has ended, too
		})
	}
}

// TestTheLastAnswerMayBeSlow: its reader has all the time in the world.
func TestTheLastAnswerMayBeSlow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := prompt(newTransport(t, stalling(500, "slowly")))
		c.RetryMax = 0
		begin := time.Now()
		resp, err := c.Do(get(t))
		require.NoError(t, err)
		body, err := io.ReadAll(resp.Body)
		require.NoError(t, err)
		require.NoError(t, resp.Body.Close())
		require.Equal(t, "slowly", string(body))
		require.Equal(t, 24*time.Hour, time.Since(begin))
	})
}

// TestAStalledServer: over a real connection, whose end the server sees.
func TestAStalledServer(t *testing.T) {
	var arrived atomic.Int32
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if arrived.Add(1) > 1 {
			return
		}
		w.WriteHeader(http.StatusServiceUnavailable)
		_, _ = io.WriteString(w, "later") // to a client that leaves
		w.(http.Flusher).Flush()
		<-r.Context().Done()
	}))
	defer server.Close()
	base := new(http.Transport)
	defer base.CloseIdleConnections()
	tr := newTransport(t, base, throttle.Policy{Name: "p", Match: "/", Limit: throttle.PerSecond(1000)})
	require.Equal(t, 200, status(t, prompt(tr), request(t, http.MethodGet, server.URL, nil)))
	require.EqualValues(t, 2, arrived.Load())
}
