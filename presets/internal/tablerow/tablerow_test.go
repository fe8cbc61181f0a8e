package tablerow_test

import (
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fleetthrottle/throttle"
	"github.com/fleetthrottle/throttle/feedback"
	"github.com/fleetthrottle/throttle/presets/internal/tablerow"
)

// TestFreeRequests: what an answer to one says is another row's.
func TestFreeRequests(t *testing.T) {
	cost := func(r *http.Request) int { return len(r.Method) - len("GET") }
	closes := tablerow.PenaltyIfCharged(cost, feedback.For(time.Second))
	leaves := tablerow.QuotaIfCharged(cost, func(*http.Response) (throttle.Quota, bool) { return throttle.Quota{Left: 7}, true })

	for method, costs := range map[string]bool{"GET": false, "POST": true} {
		resp := &http.Response{Request: &http.Request{Method: method}}
		require.Equal(t, costs, closes(resp) == time.Second, method)
		_, ok := leaves(resp)
		require.Equal(t, costs, ok, method)
	}
	require.Zero(t, closes(&http.Response{}))
	_, ok := leaves(&http.Response{})
	require.False(t, ok)
}

func TestAnothersRefusal(t *testing.T) {
	require.Zero(t, tablerow.WithoutDenials(feedback.For(feedback.NotRefused))(nil))
	require.Equal(t, time.Second, tablerow.WithoutDenials(feedback.For(time.Second))(nil))
}

// TestOutage: one backend of many closes nothing.
func TestOutage(t *testing.T) {
	outage := tablerow.Outage()
	away := &http.Response{StatusCode: 503, Header: http.Header{"Retry-After": {"7"}}}
	for _, between := range []*http.Response{{StatusCode: 200}, {StatusCode: 503}} {
		for range throttle.OutageAnswers - 1 {
			require.Zero(t, outage(away))
		}
		require.Zero(t, outage(between))
	}
	for range throttle.OutageAnswers - 1 {
		require.Zero(t, outage(away))
	}
	require.Equal(t, 7*time.Second, outage(away))
	require.Equal(t, 7*time.Second, outage(away))
}
