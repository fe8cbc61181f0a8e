package feedback_test

import (
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fleetthrottle/throttle"
	"github.com/fleetthrottle/throttle/feedback"
)

// date is when the answers of these tests were sent: 1767323045 seconds since
// 1970, and years away from any clock.
const date = "Fri, 02 Jan 2026 03:04:05 GMT"

// answer makes an answer of a status, a body and, in pairs, fields. It has the
// Date above unless a field says otherwise.
func answer(status int, body string, fields ...string) *http.Response {
	h := http.Header{"Date": {date}}
	for i := 0; i < len(fields); i += 2 {
		if fields[i] == "Date" {
			h.Del("Date")
		}
		h.Add(fields[i], fields[i+1])
	}
	return &http.Response{
		StatusCode:    status,
		Header:        h,
		ContentLength: int64(len(body)),
		Body:          io.NopCloser(strings.NewReader(body)),
	}
}

// jsonAnswer makes a JSON answer.
func jsonAnswer(status int, body string) *http.Response {
	return answer(status, body, "Content-Type", "application/json;charset=UTF-8")
}

// requireBody reads the whole body of an answer that somebody may have peeked at.
func requireBody(t *testing.T, want string, resp *http.Response) {
	t.Helper()
	got, err := io.ReadAll(resp.Body)
	require.NoError(t, err)
	require.Equal(t, want, string(got))
}

// left is a shorthand for an expected quota.
func left(n int, reset time.Duration) *throttle.Quota {
	return &throttle.Quota{Left: n, Reset: reset}
}

// requireQuota expects an answer to tell a quota, or none if want is nil.
func requireQuota(t *testing.T, want *throttle.Quota, read feedback.Reader, resp *http.Response) {
	t.Helper()
	q, ok := read(resp).Left()
	require.Equal(t, want != nil, ok)
	if want == nil {
		require.Zero(t, q)
		return
	}
	require.Equal(t, *want, q)
}

// no is, in tables of how long answers close a budget, what is certainly no refusal.
const no = time.Duration(-1)

// lengthOf returns for how long an answer closes the budget, or no.
func lengthOf(a throttle.Answer) time.Duration {
	if a.Verdict == throttle.VerdictNotRefused && a.Close == 0 {
		return no
	}
	return a.Close
}

// requireCloses expects an answer to close the budget for so long, as a refusal; or to be certainly none, if want
// is no.
func requireCloses(t require.TestingT, want time.Duration, got throttle.Answer, about ...any) {
	require.Equal(t, want, lengthOf(got), about...)
	if want > 0 {
		require.Equal(t, throttle.VerdictRefused, got.Verdict, about...)
	}
}

// requireCost expects an answer to tell a cost, or none if want is below 0.
func requireCost(t *testing.T, want int, got throttle.Answer) {
	t.Helper()
	cost, ok := got.Cost()
	require.Equal(t, want >= 0, ok)
	require.Equal(t, max(0, want), cost)
}
