package throttle_test

import (
	"net/http"

	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fleetthrottle/throttle"
)

// dated is a base whose answers say when they were made, by a clock that is so much
// ahead of ours, and arrive later by what the request's path says.
func dated(ahead time.Duration, then base) base {
	return func(r *http.Request) (*http.Response, error) {
		resp, err := then(r)
		if resp != nil {
			resp.Header.Set("Date", time.Now().Add(ahead).UTC().Format(http.TimeFormat))
		}
		time.Sleep(must(time.ParseDuration(r.URL.Path[1:])))
		return resp, err
	}
}

// TestSentAt: outside of a Transport, and of an answer that was fast, nobody knows.
func TestSentAt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		now := time.Now()
		date := now.Add(-5 * time.Second).UTC().Format(http.TimeFormat)
		require.Equal(t, now, throttle.SentAt(nil))
		require.Equal(t, now, throttle.SentAt(refusal(429, "", date)))
		for _, c := range []struct {
			takes string
			ago   time.Duration
		}{{"900ms", 0}, {"1s", 0}, {"1001ms", 1 * ms}, {"5500ms", 4500 * ms}} {
			var sent time.Time
			p := throttle.Policy{Name: "p", Limit: throttle.PerSecond(100), Penalty: func(resp *http.Response) time.Duration {
				sent = throttle.SentAt(resp)
				return 0
			}}
			require.NoError(t, send(t, newTransport(t, dated(0, answer(200, "")), p), get(t, home+c.takes)))
			require.Equal(t, c.ago, time.Since(sent), c.takes)
			time.Sleep(time.Until(time.Now().Add(time.Second).Truncate(time.Second))) // so that Date cuts off nothing
		}
	})
}
