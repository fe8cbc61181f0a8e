package throttle_test

import (
	"context"

	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fleetthrottle/throttle"
)

// TestPenaltyOf_ThroughHTTPClient: with a Timeout it wraps the body.
func TestPenaltyOf_ThroughHTTPClient(t *testing.T) {
	tr := newTransport(t, answer(429, "", "Retry-After", "7"), throttle.Policy{Name: "p", Limit: throttle.PerSecond(9)})
	client := http.Client{Transport: tr, Timeout: time.Minute}
	resp, err := client.Do(get(t, home))
	require.NoError(t, err)
	require.NoError(t, resp.Body.Close())
	require.Equal(t, 7*time.Second, throttle.PenaltyOf(resp))
}

// TestPenaltyOf_TheRequestIsTheCallers in all but its context's value.
func TestPenaltyOf_TheRequestIsTheCallers(t *testing.T) {
	tr := newTransport(t, answer(429, ""), throttle.Policy{Name: "p", Limit: throttle.PerSecond(9)})
	type key struct{}
	r := get(t, home)
	r = r.WithContext(context.WithValue(r.Context(), key{}, "caller's own"))
	resp, err := tr.RoundTrip(r)
	require.NoError(t, err)
	require.NoError(t, resp.Body.Close())
	require.Equal(t, "caller's own", resp.Request.Context().Value(key{}))
	require.Equal(t, r, resp.Request.WithContext(r.Context()))
	require.Same(t, r.URL, resp.Request.URL)
}

// TestPenaltyOf_IsOfOneAnswer: the request of a refused answer, sent again, does
// not make the next answer a refusal.
func TestPenaltyOf_IsOfOneAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tr := newTransport(t, firstly(answer(429, ""), answer(200, "")), throttle.Policy{Name: "p", Limit: throttle.PerSecond(9)})
		first, err := tr.RoundTrip(get(t, home))
		require.NoError(t, err)
		require.NoError(t, first.Body.Close())
		second, err := tr.RoundTrip(first.Request)
		require.NoError(t, err)
		require.NoError(t, second.Body.Close())
		require.Equal(t, time.Second, throttle.PenaltyOf(first))
		require.Zero(t, throttle.PenaltyOf(second))
	})
}
