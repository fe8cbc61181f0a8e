package fleet

import (
	"io"
	"net/http"
	"net/http/httptest"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// send delivers one request to u and returns the status.
func send(u *Upstream, worker string) int {
	w := httptest.NewRecorder()
	r := httptest.NewRequest(http.MethodGet, "/", nil)
	r.Header.Set(WorkerHeader, worker)
	u.ServeHTTP(w, r)
	return w.Code
}

func TestUpstreamBans(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		u := NewUpstream(2, time.Second, 5*time.Second)
		var got []int
		for _, after := range []time.Duration{
			0, 999 * ms, // two in a second
			ms,                        // a second after the first
			998 * ms,                  // the third within a second: a ban until 6.998 s
			time.Second, 3999 * ms, 0, // refused; they do not count later
			ms, 0, // two more, a second later
			999 * ms, // and a second ban
		} {
			time.Sleep(after)
			got = append(got, send(u, "a"))
		}
		require.Equal(t, []int{200, 200, 200, 403, 403, 403, 403, 200, 200, 403}, got)
		require.Equal(t, 2, u.Bans())
		require.Equal(t, map[string]int{"a": 5}, u.PerWorker())
		require.Len(t, u.Arrivals(), 10)
		require.Equal(t, 4, u.Worst(), "refused arrivals are arrivals")
	})
}

func TestUpstreamAllowsTheLimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		u := NewUpstream(40, time.Second, 5*time.Second)
		begin := time.Now()
		for range 10 {
			for range 40 {
				require.Equal(t, http.StatusOK, send(u, "a"))
			}
			time.Sleep(time.Second)
		}
		require.Zero(t, u.Bans())
		require.Equal(t, 40, u.Worst())
		require.Equal(t, 1.0, u.Useful(begin.Add(2*time.Second), time.Now()))
	})
}

func TestUpstreamStampsOutOfOrder(t *testing.T) {
	u := NewUpstream(2, time.Second, 5*time.Second)
	require.True(t, u.admit(Arrival{At: 3 * time.Second}))
	require.True(t, u.admit(Arrival{At: 3500 * ms}))
	require.True(t, u.admit(Arrival{At: 2500 * ms}))
	require.False(t, u.admit(Arrival{At: 2501 * ms}), "2.5, 2.501 and 3 s")
	require.Equal(t, 1, u.Bans())
	require.Equal(t, 3, u.Worst())
}

// A token bucket is what most limiters are. Full of 40 and refilled with 40 a
// second, it passes 79 in its first second.
func TestUpstreamCatchesATokenBucket(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		u := NewUpstream(40, time.Second, 5*time.Second)
		b := newBucket(40, time.Second, 40)
		begin := time.Now()
		for range 200 {
			require.NoError(t, b.wait(t.Context()))
			send(u, "a")
		}
		require.Equal(t, 4*time.Second, time.Since(begin))
		require.Equal(t, 79, u.Worst())
		require.Equal(t, 1, u.Bans())
		require.Equal(t, map[string]int{"a": 40}, u.PerWorker())
	})
}

func TestServeTLS(t *testing.T) {
	u := NewUpstream(10, time.Second, time.Second)
	s := Serve(u, ms)
	defer s.Close()
	resp, err := s.Client().Get(s.URL)
	require.NoError(t, err)
	_, err = io.Copy(io.Discard, resp.Body)
	require.NoError(t, err)
	require.NoError(t, resp.Body.Close())
	require.NotNil(t, resp.TLS)
	require.Equal(t, http.StatusOK, resp.StatusCode)
	require.Len(t, u.Arrivals(), 1)
}
