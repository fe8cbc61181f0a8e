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
	says := throttle.Refused(time.Second).WithLeft(throttle.Quota{Left: 7})
	read := tablerow.IfCharged(cost, func(*http.Response) throttle.Answer { return says })

	require.Zero(t, read(&http.Response{Request: &http.Request{Method: "GET"}}))
	require.Equal(t, says, read(&http.Response{Request: &http.Request{Method: "POST"}}))
	require.Zero(t, read(&http.Response{}))
}

// TestTable: a row of a table is left open by what its Answer does not know, and a row without an Answer
// keeps the default.
func TestTable(t *testing.T) {
	rows := tablerow.Table([]throttle.Policy{
		{Name: "reads", Answer: feedback.When{Header: map[string]string{"Mine": ""}}.Then(feedback.For(time.Minute))},
		{Name: "open", Answer: feedback.LeaveOpen},
		{Name: "default"},
	})
	mine := &http.Response{StatusCode: 429, Header: http.Header{"Mine": {"1"}}}
	require.Equal(t, throttle.Refused(time.Minute), rows[0].Answer(mine))
	for _, row := range rows[:2] {
		require.Equal(t, throttle.Refused(0), row.Answer(&http.Response{StatusCode: 429}), row.Name)
		require.Equal(t, throttle.Refused(0), row.Answer(&http.Response{StatusCode: 503}), row.Name)
		require.Zero(t, row.Answer(&http.Response{StatusCode: 200}), row.Name)
		require.Zero(t, row.Answer(&http.Response{StatusCode: 403}), row.Name)
	}
	require.Nil(t, rows[2].Answer)
}

// TestOutage: one backend of many closes nothing.
func TestOutage(t *testing.T) {
	outage := tablerow.Outage()
	away := &http.Response{StatusCode: 503, Header: http.Header{"Retry-After": {"7"}}}
	for _, between := range []*http.Response{{StatusCode: 200}, {StatusCode: 503}} {
		for range tablerow.OutageAnswers - 1 {
			require.Zero(t, outage(away).Close)
		}
		require.Zero(t, outage(between).Close)
	}
	for range tablerow.OutageAnswers - 1 {
		require.Zero(t, outage(away).Close)
	}
	require.Equal(t, throttle.Refused(7*time.Second), outage(away))
	require.Equal(t, throttle.Refused(7*time.Second), outage(away))
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
			require.Equal(t, c.want, until(resp).Close, "%d %v", status, c.header)
			require.Equal(t, status, resp.StatusCode, "the answer is left alone")
		}
	}
}
