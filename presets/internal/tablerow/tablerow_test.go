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

// TestUntil: what cannot be read says nothing, of a 429 neither, and a Retry-After counts before the reset.
func TestUntil(t *testing.T) {
	until := tablerow.Until(feedback.Headers{Reset: "X-Reset"})
	for _, c := range []struct {
		header http.Header
		want   time.Duration
	}{
		{http.Header{"X-Reset": {"52"}}, 52 * time.Second},
		{http.Header{"X-Reset": {"52"}, "Retry-After": {"7"}}, 7 * time.Second},
		{http.Header{"X-Reset": {"soon"}}, 0},
		{http.Header{"X-Reset": {"0"}}, 0},
		{http.Header{}, 0},
	} {
		for _, status := range []int{http.StatusBadRequest, http.StatusForbidden, http.StatusTooManyRequests} {
			resp := &http.Response{StatusCode: status, Header: c.header}
			require.Equal(t, c.want, until(resp), "%d %v", status, c.header)
			require.Equal(t, status, resp.StatusCode, "the answer is left alone")
		}
	}
}
