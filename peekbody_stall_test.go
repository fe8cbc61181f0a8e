package throttle_test

import (
	"io"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fleetthrottle/throttle"
)

// stalled returns an answer whose body stops after its first words.
func stalled(t *testing.T, status int, header ...string) (*http.Response, *io.PipeWriter) {
	t.Helper()
	resp, err := answer(status, "", header...)(get(t, home))
	require.NoError(t, err)
	r, w := io.Pipe()
	resp.Body = r
	go w.Write([]byte("first"))
	return resp, w
}

// TestP13_ABodyThatStalls is looked at for a second, by all together. Its reader gets
// every byte, also those that were late for the looks.
func TestP13_ABodyThatStalls(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		resp, w := stalled(t, 429)
		began := time.Now()
		for _, max := range []int64{100, 3, 1000} {
			head, err := throttle.PeekBody(resp, max)
			require.NoError(t, err)
			require.Equal(t, "first"[:min(max, 5)], string(head))
			require.Equal(t, time.Second, time.Since(began))
		}
		head, err := io.ReadAll(throttle.PeekReader(resp, 100))
		require.ErrorIs(t, err, io.ErrNoProgress)
		require.Equal(t, "first", string(head))
		require.Equal(t, time.Second, time.Since(began))

		go func() {
			time.Sleep(time.Hour)
			w.Write([]byte(" and last"))
			w.Close()
		}()
		body, err := io.ReadAll(resp.Body)
		require.NoError(t, err)
		require.Equal(t, "first and last", string(body))
		require.NoError(t, resp.Body.Close())
	})
}

// TestP13_ABodyThatStallsIsClosed ends the read that is on its way.
func TestP13_ABodyThatStallsIsClosed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) { // which sees that no goroutine stays
		resp, _ := stalled(t, 429)
		_, err := throttle.PeekBody(resp, 100)
		require.NoError(t, err)
		require.NoError(t, resp.Body.Close())
		_, err = io.ReadAll(resp.Body)
		require.ErrorIs(t, err, io.ErrClosedPipe)
		head, err := throttle.PeekBody(resp, 100)
		require.NoError(t, err)
		require.Empty(t, head)
	})
}

// TestP11_ABodyThatStallsHidesNothing: what the header says is learned all the same,
// before the caller gets the answer.
func TestP11_ABodyThatStallsHidesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		stalls := base(func(r *http.Request) (*http.Response, error) {
			resp, _ := stalled(t, 429, "Retry-After", "60")
			resp.Request = r
			return resp, nil
		})
		code := func(resp *http.Response) time.Duration {
			if head, err := throttle.PeekBody(resp, 100); err != nil || len(head) != 100 {
				return throttle.RetryAfter(resp)
			}
			return time.Hour
		}
		s := newStarts()
		s.then = firstly(stalls, answer(200, ""))
		tr := newTransport(t, s, throttle.Policy{Name: "p", Limit: throttle.PerHour(100), Penalty: code})
		resp, err := tr.RoundTrip(get(t, home))
		require.NoError(t, err)
		require.NoError(t, resp.Body.Close())
		line(t, tr, 1, home)
		require.Equal(t, []time.Duration{0, 61 * time.Second}, s.seen())
	})
}
