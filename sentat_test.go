package throttle_test

import (
	"net/http"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fleetthrottle/throttle"
	"github.com/fleetthrottle/throttle/memstore"
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

// TestP11_LateRefusalsEndTogether: ten refusals that were decided in one second
// arrive one by one. Their ends are those of the first, as far as anybody can tell.
func TestP11_LateRefusalsEndTogether(t *testing.T) {
	for _, c := range []struct {
		name  string
		ahead time.Duration
		want  time.Duration // how long the budget is closed after the last arrived
	}{
		{"clocks are right", 0, 0},
		{"the upstream's is an hour ahead", time.Hour, 2 * time.Second},
		{"the upstream's is an hour behind", -time.Hour, 2 * time.Second},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				store := memstore.New()
				tr := must(throttle.New(throttle.Config{Store: store, Policies: []throttle.Policy{{Name: "p", Limit: throttle.PerSecond(100)}},
					Base: dated(c.ahead, answer(429, "", "Retry-After", "2"))}))
				var all sync.WaitGroup
				for _, d := range []string{"2s", "4s", "6s", "8s", "10s", "12s", "14s", "16s", "18s", "20s"} {
					r := get(t, home+d)
					all.Go(func() {
						resp := must(tr.RoundTrip(r))
						require.NoError(t, resp.Body.Close())
						require.Positive(t, throttle.PenaltyOf(resp), "it is a refusal all the same")
						require.Equal(t, r, resp.Request.WithContext(r.Context()))
					})
				}
				all.Wait()
				require.Equal(t, c.want, status(t, store, tr, get(t, home)).Paused)
			})
		})
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
